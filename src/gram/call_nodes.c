#include "gram/call_nodes.h"

#include "gram/schema.h"
#include <json-c/json_object.h>
#include <string.h>

struct calls {
    struct builder *b;
    struct json_nodes *json;
    const struct constraint_request *request;
    struct schema_marks marks;
    uint32_t loose; /* arguments without a schema */
    struct err *err;
};

static uint32_t text_node(struct builder *b, uint32_t min)
{
    uint32_t any = code_any_term(&b->regular, SPELL_RAW);
    return build_term(b, regular_repeat(&b->regular, any, min, REGULAR_MANY));
}

/* Any keys with any text. */
static uint32_t loose_args(const struct calls *c)
{
    const struct schema_marks *m = &c->marks;
    uint32_t pair = build_seq(
        c->b, (uint32_t[]){m->key, text_node(c->b, 1), m->key_end, m->value, text_node(c->b, 0), m->value_end}, 6);
    return build_repeat(c->b, pair, 0, REGULAR_MANY);
}

static bool args_node(const struct calls *c, const struct chat_tool *tool, uint32_t *node)
{
    struct arena *scratch = &c->b->scratch;
    if (!tool->parameters) {
        *node = build_seq(c->b, NULL, 0);
        return build_ok(c->b, c->err);
    }
    size_t n = tool->name_bytes < 64 ? tool->name_bytes : 64;
    char *where = arena_get(scratch, n + 8, c->err);
    if (!where) return false;
    memcpy(where, "tool ", 5);
    memcpy(where + 5, tool->name, n);
    struct schema *schema = schema_new(c->b, c->json, tool->parameters, where, c->err);
    bool ok = schema && schema_args(schema, &c->marks, node, c->err) && schema_run(schema, c->err);
    schema_fini(schema);
    return ok;
}

static bool names_node(const struct calls *c, uint32_t *node)
{
    const struct chat_tools *tools = c->request->tools;
    struct build_word *words = arena_get_array(&c->b->scratch, tools->n_tools, sizeof *words, c->err);
    if (!words) return false;
    bool may_be_loose = c->request->calls == CALLS_AUTO && c->request->kind == CONSTRAINT_NONE;
    for (size_t i = 0; i < tools->n_tools; i++) {
        const struct chat_tool *tool = &tools->tools[i];
        bool is_strict = c->request->strict_tools && c->request->strict_tools[i];
        uint32_t args = c->loose;
        if ((is_strict || !may_be_loose) && !args_node(c, tool, &args)) return false;
        words[i] = (struct build_word){tool->name, tool->name_bytes, 0, args};
    }
    *node = build_words(c->b, words, (uint32_t)tools->n_tools);
    return build_ok(c->b, c->err);
}

bool call_nodes_make(struct builder *b, struct json_nodes *json, const struct constraint_request *request,
                     const struct control_ids *ids, uint32_t value, uint32_t *node, struct err *err)
{
    struct calls c = {.b = b, .json = json, .request = request, .err = err};
    uint32_t names;
    if (!request->tools || request->tools->n_tools == 0)
        return err_set(err, ERR_USER, "invalid_schema: a call is asked for, but there are no tools");
    c.marks = (struct schema_marks){build_token(b, ids->arg_key), build_token(b, ids->arg_key_end),
                                    build_token(b, ids->arg_value), build_token(b, ids->arg_value_end)};
    c.loose = loose_args(&c);
    if (!names_node(&c, &names)) return false;
    uint32_t call =
        build_seq(b, (uint32_t[]){build_token(b, ids->tool_call), names, build_token(b, ids->tool_call_end)}, 3);
    uint32_t calls = build_repeat(b, call, 1, request->one_call ? 1 : REGULAR_MANY);
    if (request->calls == CALLS_REQUIRED)
        *node = calls;
    else if (value != GRAM_NONE)
        *node = build_union(b, (uint32_t[]){calls, value}, 2);
    else
        *node = build_seq(b, (uint32_t[]){text_node(b, 0), build_repeat(b, calls, 0, 1)}, 2);
    return build_ok(b, err);
}
