/* What an answer must look like, in all the ways in which clients say it. */
#include "serve/call.h"

#include "fmt/json_doc.h"
#include "serve/fields.h"
#include <json-c/json_object.h>
#include <string.h>

struct asked {
    struct constraint_request request;
    const char *by;             /* the member that asked first; NULL: none */
    struct json_object *parsed; /* a schema that came as text; ours */
};

static bool claim(struct asked *asked, enum constraint_kind kind, const char *by, struct problem *problem)
{
    if (asked->by)
        return problem_set(problem, PROBLEM_CONFLICT, by, "%s: the answer is already constrained by %s", by, asked->by);
    asked->by = by;
    asked->request.kind = kind;
    return true;
}

/* A schema as an object, as true or false, or as text that holds it. */
static bool ask_schema(struct asked *asked, struct alloc *alloc, struct json_object *schema, const char *by,
                       struct problem *problem)
{
    struct err err = {0};
    if (!claim(asked, CONSTRAINT_SCHEMA, by, problem)) return false;
    if (json_object_is_type(schema, json_type_string)) {
        if (!json_doc_parse(&asked->parsed, alloc, &json_rules_request, by, json_object_get_string(schema),
                            (size_t)json_object_get_string_len(schema), &err))
            return problem_from(problem, PROBLEM_SCHEMA, &err);
        schema = asked->parsed;
    }
    if (!json_object_is_type(schema, json_type_object) && !json_object_is_type(schema, json_type_boolean))
        return problem_set(problem, PROBLEM_SCHEMA, by, "%s: the schema must be an object", by);
    asked->request.value = schema;
    return true;
}

static bool ask_text(struct asked *asked, enum constraint_kind kind, struct json_object *text, const char *by,
                     struct problem *problem)
{
    if (!claim(asked, kind, by, problem)) return false;
    if (!json_object_is_type(text, json_type_string))
        return problem_set(problem, PROBLEM_INVALID_TYPE, by, "%s: must be a string", by);
    asked->request.text = json_object_get_string(text);
    asked->request.bytes = (size_t)json_object_get_string_len(text);
    return true;
}

static bool ask_choice(struct asked *asked, struct json_object *list, const char *by, struct problem *problem)
{
    if (!claim(asked, CONSTRAINT_CHOICE, by, problem)) return false;
    if (!json_object_is_type(list, json_type_array))
        return problem_set(problem, PROBLEM_INVALID_TYPE, by, "%s: must be an array of strings", by);
    asked->request.value = list;
    return true;
}

/* A member of what `by` names. */
static bool read_flag(struct json_object *object, const char *by, const char *name, bool *out, struct problem *problem)
{
    struct json_object *value = json_object_object_get(object, name);
    if (!value) return true;
    *out = json_object_get_boolean(value);
    return json_object_is_type(value, json_type_boolean) ||
           problem_set(problem, PROBLEM_INVALID_TYPE, by, "%s.%s: must be true or false", by, name);
}

static bool read_format(struct asked *asked, struct alloc *alloc, struct json_object *format, const char *by,
                        struct problem *problem)
{
    const char *type = field_word(format, "type");
    if (!format || strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0) return claim(asked, CONSTRAINT_JSON_OBJECT, by, problem);
    if (strcmp(type, "json_schema") != 0)
        return problem_set(problem, PROBLEM_UNSUPPORTED, by,
                           "%s: the type must be text, json_object or json_schema, not '%.50s'", by, type);
    struct json_object *inner = json_object_object_get(format, "json_schema"), *schema;
    struct json_object *from = json_object_is_type(inner, json_type_object) ? inner : format;
    if (!json_object_object_get_ex(from, "schema", &schema) || !schema)
        return problem_set(problem, PROBLEM_MISSING_FIELD, by, "%s: json_schema needs a schema", by);
    return read_flag(from, by, "strict", &asked->request.strict, problem) &&
           ask_schema(asked, alloc, schema, by, problem);
}

/* What may stand between the marks of JSON: a pattern, or one space behind , and : and nothing else. */
static bool read_pattern(struct asked *asked, struct json_object *object, const char *name, const char *by,
                         struct problem *problem)
{
    struct json_object *value = json_object_object_get(object, name);
    if (!value) return true;
    if (!json_object_is_type(value, json_type_string))
        return problem_set(problem, PROBLEM_INVALID_TYPE, by, "%s: the pattern for white space must be a string", by);
    if (asked->request.blanks == JSON_BLANKS_FIXED)
        return problem_set(problem, PROBLEM_CONFLICT, by, "%s: %s, and any_whitespace is false", by, name);
    asked->request.blanks = JSON_BLANKS_PATTERN;
    asked->request.blanks_pattern = json_object_get_string(value);
    asked->request.n_blanks_pattern = (size_t)json_object_get_string_len(value);
    return true;
}

static bool read_blanks(struct asked *asked, struct json_object *outputs, const char *by, struct problem *problem)
{
    bool any = true;
    if (!read_flag(outputs, by, "any_whitespace", &any, problem)) return false;
    if (!any) asked->request.blanks = JSON_BLANKS_FIXED;
    return read_pattern(asked, outputs, "whitespace_pattern", by, problem);
}

/* The members of structured_outputs; an object that has none of them is a schema itself. */
static bool read_structured(struct asked *asked, struct alloc *alloc, struct json_object *body, struct problem *problem)
{
    static const char by[] = "structured_outputs";
    static const char *const members[] = {
        "json", "regex", "choice", "grammar", "json_object", "whitespace_pattern", "any_whitespace"};
    struct json_object *outputs = NULL, *value;
    bool is_object = false, is_bare = true;
    if (!field_object(body, by, &outputs, problem)) return false;
    if (!outputs || json_object_object_length(outputs) == 0) return true;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        is_bare = is_bare && !json_object_object_get_ex(outputs, members[i], NULL);
    if (json_object_object_get(outputs, "structural_tag"))
        return problem_set(problem, PROBLEM_UNSUPPORTED, by, "%s: structural_tag is not supported", by);
    if (is_bare) return ask_schema(asked, alloc, outputs, by, problem);
    if ((value = json_object_object_get(outputs, "json")) && !ask_schema(asked, alloc, value, by, problem))
        return false;
    if ((value = json_object_object_get(outputs, "regex")) && !ask_text(asked, CONSTRAINT_REGEX, value, by, problem))
        return false;
    if ((value = json_object_object_get(outputs, "grammar")) && !ask_text(asked, CONSTRAINT_GBNF, value, by, problem))
        return false;
    if ((value = json_object_object_get(outputs, "choice")) && !ask_choice(asked, value, by, problem)) return false;
    if (!read_flag(outputs, by, "json_object", &is_object, problem)) return false;
    if (is_object && !claim(asked, CONSTRAINT_JSON_OBJECT, by, problem)) return false;
    return read_blanks(asked, outputs, by, problem);
}

static bool read_older(struct asked *asked, struct alloc *alloc, struct json_object *body, struct problem *problem)
{
    struct json_object *value;
    if ((value = json_object_object_get(body, "guided_json")) &&
        !ask_schema(asked, alloc, value, "guided_json", problem))
        return false;
    if (!read_pattern(asked, body, "guided_whitespace_pattern", "guided_whitespace_pattern", problem)) return false;
    if ((value = json_object_object_get(body, "guided_regex")) &&
        !ask_text(asked, CONSTRAINT_REGEX, value, "guided_regex", problem))
        return false;
    if ((value = json_object_object_get(body, "guided_grammar")) &&
        !ask_text(asked, CONSTRAINT_GBNF, value, "guided_grammar", problem))
        return false;
    if ((value = json_object_object_get(body, "grammar")) &&
        !ask_text(asked, CONSTRAINT_GBNF, value, "grammar", problem))
        return false;
    return !(value = json_object_object_get(body, "guided_choice")) ||
           ask_choice(asked, value, "guided_choice", problem);
}

/* Which calls may, must or need not come. `one` has room for the tool that was named. */
static bool ask_calls(struct asked *asked, struct call *call, struct chat_tools *one, struct problem *problem)
{
    struct err err = {0};
    const struct tools *tools = &call->tools;
    size_t n = tools->chat.n_tools;
    bool any_strict = false;
    if (!call->is_chat || n == 0 || tools->choice == TOOLS_NONE) return true;
    bool *strict = arena_get_array(&call->arena, n, sizeof *strict, &err);
    if (!strict) return problem_from(problem, PROBLEM_INTERNAL, &err);
    for (size_t i = 0; i < n; i++) {
        strict[i] = tools->origins[i].is_strict;
        any_strict = any_strict || strict[i];
    }
    bool is_forced = tools->choice == TOOLS_REQUIRED || tools->choice == TOOLS_NAMED;
    if (!is_forced && !any_strict && asked->request.kind == CONSTRAINT_NONE) return true;
    asked->request.calls = is_forced ? CALLS_REQUIRED : CALLS_AUTO;
    asked->request.tools = &tools->chat;
    asked->request.strict_tools = strict;
    asked->request.one_call = tools->one_call;
    if (tools->choice == TOOLS_NAMED) {
        size_t at = (size_t)(tools->named - tools->chat.tools);
        *one = (struct chat_tools){.tools = &tools->chat.tools[at], .n_tools = 1};
        asked->request.tools = one;
        asked->request.strict_tools = &strict[at];
    }
    return true;
}

/* The code for the client stands in front of the message. */
static bool refuse(const struct err *err, const char *by, struct problem *problem)
{
    static const struct {
        const char *code;
        enum problem_kind kind;
    } codes[] = {{"invalid_schema", PROBLEM_SCHEMA},
                 {"unsupported_schema", PROBLEM_SCHEMA_UNSUPPORTED},
                 {"conflicting_constraints", PROBLEM_CONFLICT}};
    if (err->kind != ERR_USER) return problem_from(problem, PROBLEM_INTERNAL, err);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        size_t n = strlen(codes[i].code);
        if (strncmp(err->text, codes[i].code, n) != 0) continue;
        const char *text = err->text + n;
        return problem_set(problem, codes[i].kind, by, "%s: %s", by, text + strspn(text, ": "));
    }
    return problem_set(problem, PROBLEM_SCHEMA, by, "%s: %s", by, err->text);
}

bool call_read_constraint(struct call *call, struct json_object *format, const char *name, struct problem *problem)
{
    struct err err = {0};
    struct asked asked = {0};
    struct chat_tools one;
    struct alloc *alloc = call->server->alloc;
    const struct text_model *model = call->model->text;
    const struct control_ids ids = control_ids_of(&model->chat, model->ends, model->n_ends_chat);
    bool ok = read_format(&asked, alloc, format, name, problem) && read_older(&asked, alloc, call->body, problem) &&
              read_structured(&asked, alloc, call->body, problem) && ask_calls(&asked, call, &one, problem);
    if (ok && !constraint_new(&call->constraint, alloc, &asked.request, &ids, &err)) {
        bool is_calls = asked.request.calls == CALLS_REQUIRED || !asked.by;
        ok = refuse(&err, is_calls ? "tools" : asked.by, problem);
    }
    json_object_put(asked.parsed);
    return ok;
}
