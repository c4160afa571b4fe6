#include "gram/constraint_forms.h"

#include "fmt/json_doc.h"
#include <json-c/json_object.h>
#include <string.h>

struct reader {
    struct constraint_forms *forms;
    struct alloc *alloc;
    struct err *err;
};

static bool refuse(const struct reader *r, const char *name, const char *what)
{
    return err_set(r->err, ERR_USER, "invalid_schema: %s: %s", name, what);
}

static struct json_object *member(struct json_object *object, const char *key)
{
    return json_object_is_type(object, json_type_object) ? json_object_object_get(object, key) : NULL;
}

/* Notes what a member asks for; the second one that asks is refused. */
static bool set(const struct reader *r, const char *name, enum constraint_kind kind, struct json_object *value)
{
    struct constraint_forms *forms = r->forms;
    if (forms->name)
        return err_set(r->err, ERR_USER, "conflicting_constraints: %s and %s both constrain the answer", forms->name,
                       name);
    forms->name = name;
    forms->request.kind = kind;
    forms->request.value = value;
    if (kind != CONSTRAINT_REGEX && kind != CONSTRAINT_GBNF) return true;
    forms->request.value = NULL;
    if (!json_object_is_type(value, json_type_string)) return refuse(r, name, "this must be a text");
    forms->request.text = json_object_get_string(value);
    forms->request.bytes = (size_t)json_object_get_string_len(value);
    return true;
}

static bool read_flag(const struct reader *r, struct json_object *object, const char *key, bool *flag, bool *found)
{
    struct json_object *value = member(object, key);
    *found = value != NULL;
    if (!value) return true;
    if (!json_object_is_type(value, json_type_boolean)) return refuse(r, key, "this must be true or false");
    *flag = json_object_get_boolean(value);
    return true;
}

/* A schema may come as text. */
static bool set_schema(const struct reader *r, const char *name, struct json_object *schema)
{
    if (!json_object_is_type(schema, json_type_string)) return set(r, name, CONSTRAINT_SCHEMA, schema);
    struct err why = {0};
    if (!json_doc_parse(&r->forms->parsed, r->alloc, &json_rules_request, name, json_object_get_string(schema),
                        (size_t)json_object_get_string_len(schema), &why)) {
        if (why.kind == ERR_USER) return err_set(r->err, ERR_USER, "invalid_schema: %s", why.text);
        if (r->err) *r->err = why;
        return false;
    }
    return set(r, name, CONSTRAINT_SCHEMA, r->forms->parsed);
}

/* {type, ...}, with the schema in a member json_schema or beside the type. */
static bool read_format(const struct reader *r, const char *name, struct json_object *format)
{
    bool found;
    if (!format) return true;
    struct json_object *type = member(format, "type"), *inside = member(format, "json_schema");
    if (!json_object_is_type(type, json_type_string)) return refuse(r, name, "it needs a type");
    const char *text = json_object_get_string(type);
    if (strcmp(text, "text") == 0) return true;
    if (strcmp(text, "json_object") == 0) return set(r, name, CONSTRAINT_JSON_OBJECT, NULL);
    if (strcmp(text, "structural_tag") == 0)
        return err_set(r->err, ERR_USER, "unsupported_schema: %s: structural tags are not supported", name);
    if (strcmp(text, "json_schema") != 0) return refuse(r, name, "the type must be text, json_object or json_schema");
    if (!inside) inside = format;
    if (!json_object_is_type(inside, json_type_object)) return refuse(r, name, "json_schema must be an object");
    if (!json_object_object_get_ex(inside, "schema", NULL)) return refuse(r, name, "the schema is missing");
    if (!read_flag(r, inside, "strict", &r->forms->request.strict, &found)) return false;
    return set(r, name, CONSTRAINT_SCHEMA, member(inside, "schema"));
}

static bool read_structured(const struct reader *r, struct json_object *structured)
{
    static const char name[] = "structured_outputs";
    static const struct {
        const char *key;
        enum constraint_kind kind;
    } kinds[] = {{"regex", CONSTRAINT_REGEX}, {"choice", CONSTRAINT_CHOICE}, {"grammar", CONSTRAINT_GBNF}};
    bool flag = false, found, any_blanks = true, asked = false;
    if (!structured) return true;
    if (!json_object_is_type(structured, json_type_object)) return refuse(r, name, "this must be an object");
    if (member(structured, "whitespace_pattern") || member(structured, "structural_tag"))
        return err_set(r->err, ERR_USER, "unsupported_schema: %s: patterns for white space and structural tags", name);
    if (!read_flag(r, structured, "any_whitespace", &any_blanks, &found)) return false;
    if (!any_blanks) r->forms->request.blanks = JSON_BLANKS_FIXED;
    asked = found;
    for (int i = 0; i < 3; i++) {
        struct json_object *value = member(structured, kinds[i].key);
        asked |= value != NULL;
        if (value && !set(r, name, kinds[i].kind, value)) return false;
    }
    if (member(structured, "json")) {
        asked = true;
        if (!set_schema(r, name, member(structured, "json"))) return false;
    }
    if (json_object_object_get_ex(structured, "json_object", NULL)) {
        asked = true;
        if (!read_flag(r, structured, "json_object", &flag, &found)) return false;
        if (flag && !set(r, name, CONSTRAINT_JSON_OBJECT, NULL)) return false;
    }
    return asked || set(r, name, CONSTRAINT_SCHEMA, structured);
}

bool constraint_forms_read(struct constraint_forms *forms, struct alloc *alloc, struct json_object *body,
                           struct err *err)
{
    static const struct {
        const char *key;
        enum constraint_kind kind;
    } plain[] = {
        {"guided_regex", CONSTRAINT_REGEX},
        {"guided_choice", CONSTRAINT_CHOICE},
        {"guided_grammar", CONSTRAINT_GBNF},
        {"grammar", CONSTRAINT_GBNF},
    };
    struct reader r = {forms, alloc, err};
    *forms = (struct constraint_forms){.request = {.kind = CONSTRAINT_NONE}};
    bool ok = read_format(&r, "response_format", member(body, "response_format")) &&
              read_format(&r, "text.format", member(member(body, "text"), "format")) &&
              read_format(&r, "output_config.format", member(member(body, "output_config"), "format")) &&
              read_format(&r, "output_format", member(body, "output_format"));
    if (ok && member(body, "guided_json")) ok = set_schema(&r, "guided_json", member(body, "guided_json"));
    for (int i = 0; ok && i < 4; i++) {
        struct json_object *value = member(body, plain[i].key);
        if (value) ok = set(&r, plain[i].key, plain[i].kind, value);
    }
    if (ok && member(body, "structural_tag"))
        ok = err_set(err, ERR_USER, "unsupported_schema: structural_tag: structural tags are not supported");
    if (ok && read_structured(&r, member(body, "structured_outputs"))) return true;
    constraint_forms_fini(forms);
    return false;
}

void constraint_forms_fini(struct constraint_forms *forms)
{
    json_object_put(forms->parsed);
    *forms = (struct constraint_forms){.request = {.kind = CONSTRAINT_NONE}};
}
