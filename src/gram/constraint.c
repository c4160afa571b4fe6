#include "gram/constraint.h"

#include "gram/call_nodes.h"
#include "gram/gbnf.h"
#include "gram/regex_text.h"
#include "gram/schema.h"
#include <json-c/json_object.h>
#include <stdatomic.h>

struct constraint {
    struct alloc *alloc;
    atomic_uint owners;
    bool has_value;
    struct grammar grammar;
};

static bool schema_kind(struct builder *b, struct json_nodes *json, const struct constraint_request *request,
                        uint32_t *node, struct err *err)
{
    if (request->strict && !schema_check_strict(request->value, "schema", err)) return false;
    struct schema *schema = schema_new(b, json, request->value, "schema", err);
    bool ok = schema && schema_node(schema, SPELL_JSON, node, err) && schema_run(schema, err);
    schema_fini(schema);
    return ok;
}

static bool regex_kind(struct builder *b, const struct constraint_request *request, uint32_t *node, struct err *err)
{
    const struct regex_text regex = {"regex", request->text, request->bytes, SPELL_RAW, false};
    uint32_t term;
    if (!regex_text_term(&b->regular, &regex, &term, err)) return false;
    *node = build_term(b, term);
    return build_ok(b, err);
}

static bool choice_kind(struct builder *b, const struct constraint_request *request, uint32_t *node, struct err *err)
{
    struct json_object *list = request->value;
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    if (n == 0) return err_set(err, ERR_USER, "invalid_schema: choice: this must be a list of texts");
    struct build_word *words = arena_get_array(&b->scratch, n, sizeof *words, err);
    if (!words) return false;
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (!json_object_is_type(item, json_type_string))
            return err_set(err, ERR_USER, "invalid_schema: choice/%zu: this must be a text", i);
        words[i] =
            (struct build_word){json_object_get_string(item), (size_t)json_object_get_string_len(item), 0, GRAM_NONE};
    }
    *node = build_words(b, words, (uint32_t)n);
    return build_ok(b, err);
}

/* The node of what the request asks for beside calls; GRAM_NONE when that is nothing. */
static bool value_node(struct builder *b, struct json_nodes *json, const struct constraint_request *request,
                       bool inlines, uint32_t *node, struct err *err)
{
    *node = GRAM_NONE;
    switch (request->kind) {
    case CONSTRAINT_NONE: return true;
    case CONSTRAINT_JSON_OBJECT: *node = json->any_object; return true;
    case CONSTRAINT_SCHEMA: return schema_kind(b, json, request, node, err);
    case CONSTRAINT_REGEX: return regex_kind(b, request, node, err);
    case CONSTRAINT_GBNF: return gbnf_node(b, &(struct gbnf_text){request->text, request->bytes, inlines}, node, err);
    case CONSTRAINT_CHOICE: return choice_kind(b, request, node, err);
    }
    return err_set(err, ERR_FAILED, "a constraint of unknown kind");
}

static bool compile(struct grammar *grammar, struct alloc *alloc, const struct constraint_request *request,
                    const struct control_ids *ids, bool inlines, struct err *err)
{
    struct builder b;
    struct json_nodes json;
    uint32_t node;
    bool is_json = request->kind == CONSTRAINT_JSON_OBJECT || request->kind == CONSTRAINT_SCHEMA;
    if (!builder_init(&b, alloc, err)) return false;
    struct json_spacing spacing = {.blanks = request->blanks};
    bool ok = request->blanks != JSON_BLANKS_PATTERN ||
              json_spacing_read(&spacing, &b.regular, request->blanks_pattern, request->n_blanks_pattern, err);
    if (ok && (is_json || request->calls != CALLS_FREE)) json_nodes_init(&json, &b, spacing);
    ok = ok && build_ok(&b, err) && value_node(&b, &json, request, inlines, &node, err);
    if (ok && request->calls != CALLS_FREE) ok = call_nodes_make(&b, &json, request, ids, node, &node, err);
    ok = ok && build_finish(&b, node, grammar, err);
    builder_fini(&b);
    return ok;
}

bool constraint_new(struct constraint **out, struct alloc *alloc, const struct constraint_request *request,
                    const struct control_ids *ids, struct err *err)
{
    struct err why = {0};
    *out = NULL;
    if (request->kind == CONSTRAINT_NONE && request->calls == CALLS_FREE) return true;
    struct constraint *c = alloc_get(alloc, sizeof *c, err);
    if (!c) return false;
    c->alloc = alloc;
    atomic_init(&c->owners, 1);
    c->has_value = request->kind != CONSTRAINT_NONE;
    bool ok = compile(&c->grammar, alloc, request, ids, true, &why);
    /* A grammar whose rules make too large an automaton when joined may do as rules. */
    if (!ok && why.kind == ERR_USER && request->kind == CONSTRAINT_GBNF)
        ok = compile(&c->grammar, alloc, request, ids, false, &why);
    if (ok) {
        *out = c;
        return true;
    }
    if (err) *err = why;
    alloc_put(alloc, c);
    return false;
}

struct constraint *constraint_hold(struct constraint *c)
{
    atomic_fetch_add(&c->owners, 1);
    return c;
}

void constraint_drop(struct constraint *c)
{
    if (!c || atomic_fetch_sub(&c->owners, 1) > 1) return;
    grammar_fini(&c->grammar);
    alloc_put(c->alloc, c);
}

bool constraint_has_value(const struct constraint *c)
{
    return c && c->has_value;
}

const struct grammar *constraint_grammar(const struct constraint *c)
{
    return &c->grammar;
}
