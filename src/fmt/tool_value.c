#include "fmt/tool_value.h"

#include "base/utf8.h"
#include "fmt/json_doc.h"
#include <json-c/json_pointer.h>
#include <string.h>

/* What a schema allows, as far as choosing between text and JSON needs it. */
enum { ALLOWS_STRING = 1, ALLOWS_NULL = 2, ALLOWS_OTHER = 4 };

/* Schemas may refer to themselves. A walk over one ends after this many steps, and goes no deeper than this; what lies
 * beyond counts as not said. */
enum { STEPS_MAX = 100000, DEPTH_MAX = 64, REFERENCE_BYTES_MAX = 1024 };

struct walk {
    struct json_object *root;
    int steps, depth;
};

static bool step(struct walk *walk)
{
    return walk->steps > 0 && walk->steps-- > 0;
}

static const char *const unions[] = {"anyOf", "oneOf", "allOf"};

static bool is_text(struct json_object *value, const char *text, size_t bytes)
{
    return json_object_is_type(value, json_type_string) && (size_t)json_object_get_string_len(value) == bytes &&
           memcmp(json_object_get_string(value), text, bytes) == 0;
}

/* Follows references within the same document; NULL when one leads nowhere or the walk is over. */
static struct json_object *resolve(struct walk *walk, struct json_object *schema)
{
    struct json_object *reference;
    while (step(walk) && json_object_is_type(schema, json_type_object)) {
        if (!json_object_object_get_ex(schema, "$ref", &reference)) return schema;
        const char *path = json_object_is_type(reference, json_type_string) ? json_object_get_string(reference) : "";
        if (path[0] != '#' || strlen(path) > REFERENCE_BYTES_MAX ||
            json_pointer_get(walk->root, path + 1, &schema) != 0)
            return NULL;
    }
    return NULL;
}

static unsigned allows_type(struct json_object *name)
{
    if (is_text(name, "string", 6)) return ALLOWS_STRING;
    return is_text(name, "null", 4) ? ALLOWS_NULL : ALLOWS_OTHER;
}

static unsigned allows_value(struct json_object *value)
{
    if (json_object_is_type(value, json_type_string)) return ALLOWS_STRING;
    return value ? ALLOWS_OTHER : ALLOWS_NULL;
}

static unsigned allows_each(struct walk *walk, struct json_object *list, unsigned (*allows)(struct json_object *))
{
    unsigned all = 0;
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n && step(walk); i++) all |= allows(json_object_array_get_idx(list, i));
    return all;
}

/* The type member: a name or a list of them. */
static unsigned allows_types(struct walk *walk, struct json_object *type)
{
    return json_object_is_type(type, json_type_array) ? allows_each(walk, type, allows_type) : allows_type(type);
}

static unsigned allows_of(struct walk *walk, struct json_object *schema)
{
    struct json_object *member;
    unsigned all = 0;
    schema = resolve(walk, schema);
    if (!schema || walk->depth == DEPTH_MAX) return 0;
    walk->depth++;
    if (json_object_object_get_ex(schema, "type", &member)) all |= allows_types(walk, member);
    if (json_object_object_get_ex(schema, "const", &member)) all |= allows_value(member);
    all |= allows_each(walk, json_object_object_get(schema, "enum"), allows_value);
    for (size_t u = 0; u < 3; u++) {
        struct json_object *list = json_object_object_get(schema, unions[u]);
        size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
        for (size_t i = 0; i < n && step(walk); i++) all |= allows_of(walk, json_object_array_get_idx(list, i));
    }
    walk->depth--;
    if (json_object_get_boolean(json_object_object_get(schema, "nullable"))) all |= ALLOWS_NULL;
    if (!all && (json_object_object_get(schema, "properties") || json_object_object_get(schema, "items")))
        all = ALLOWS_OTHER;
    return all;
}

static bool holds_text(struct walk *walk, struct json_object *list, const char *text, size_t bytes)
{
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n && step(walk); i++)
        if (is_text(json_object_array_get_idx(list, i), text, bytes)) return true;
    return false;
}

static bool accepts(struct walk *walk, struct json_object *schema, const char *text, size_t bytes);

/* Members that accept the text: all of them, or at least one, or there is no such list. */
static bool union_accepts(struct walk *walk, struct json_object *list, bool needs_all, const char *text, size_t bytes)
{
    if (!json_object_is_type(list, json_type_array)) return true;
    size_t n = json_object_array_length(list), n_accept = 0;
    for (size_t i = 0; i < n && step(walk); i++)
        n_accept += accepts(walk, json_object_array_get_idx(list, i), text, bytes);
    return needs_all ? n_accept == n : n_accept > 0;
}

/* Would this text, as a string, satisfy type, enum and const? */
static bool accepts(struct walk *walk, struct json_object *schema, const char *text, size_t bytes)
{
    struct json_object *member;
    schema = resolve(walk, schema);
    if (!schema || walk->depth == DEPTH_MAX) return true;
    if (json_object_object_get_ex(schema, "type", &member) && !(allows_types(walk, member) & ALLOWS_STRING))
        return false;
    if (json_object_object_get_ex(schema, "enum", &member) && !holds_text(walk, member, text, bytes)) return false;
    if (json_object_object_get_ex(schema, "const", &member) && !is_text(member, text, bytes)) return false;
    walk->depth++;
    bool ok = true;
    for (size_t u = 0; ok && u < 3; u++)
        ok = union_accepts(walk, json_object_object_get(schema, unions[u]), u == 2, text, bytes);
    walk->depth--;
    return ok;
}

enum parsed { PARSED_VALUE, PARSED_NOTHING, PARSED_ERROR };

static enum parsed parse(struct json_object **value, struct alloc *alloc, const char *text, size_t bytes,
                         struct err *err)
{
    struct err why = {0};
    text = utf8_strip(text, &bytes);
    if (json_doc_parse(value, alloc, &json_rules_request, "argument", text, bytes, &why)) return PARSED_VALUE;
    if (why.kind == ERR_USER) return PARSED_NOTHING;
    if (err) *err = why;
    return PARSED_ERROR;
}

/* The model has seen much Python. */
static enum parsed parse_python(struct json_object **value, const char *text, size_t bytes, struct err *err)
{
    text = utf8_strip(text, &bytes);
    *value = NULL;
    if (bytes == 4 && memcmp(text, "None", 4) == 0) return PARSED_VALUE;
    bool is_true = bytes == 4 && memcmp(text, "True", 4) == 0;
    if (!is_true && !(bytes == 5 && memcmp(text, "False", 5) == 0)) return PARSED_NOTHING;
    *value = json_object_new_boolean(is_true);
    if (*value) return PARSED_VALUE;
    err_set(err, ERR_NOMEM, "no memory for an argument");
    return PARSED_ERROR;
}

/* Tries what the schema of the argument makes of the text other than a string. */
static enum parsed parse_by_schema(struct json_object **value, struct alloc *alloc, struct walk *walk,
                                   struct json_object *schema, const struct tool_argument *a, struct err *err)
{
    unsigned allowed = allows_of(walk, schema);
    if (allowed & ALLOWS_STRING) {
        *value = NULL;
        if ((allowed & ALLOWS_NULL) && a->bytes == 4 && memcmp(a->text, "null", 4) == 0) return PARSED_VALUE;
        walk->steps = STEPS_MAX;
        if (!(allowed & ALLOWS_OTHER) || accepts(walk, schema, a->text, a->bytes)) return PARSED_NOTHING;
        return parse(value, alloc, a->text, a->bytes, err);
    }
    enum parsed parsed = parse(value, alloc, a->text, a->bytes, err);
    if (allowed) return parsed == PARSED_NOTHING ? parse_python(value, a->text, a->bytes, err) : parsed;
    if (parsed == PARSED_VALUE && json_object_is_type(*value, json_type_string)) {
        json_object_put(*value); /* nothing asks for a string here, so the quotes are the model's own */
        return PARSED_NOTHING;
    }
    return parsed;
}

bool tool_value_make(struct json_object **value, struct alloc *alloc, struct json_object *parameters,
                     const struct tool_argument *argument, struct err *err)
{
    struct walk walk = {.root = parameters, .steps = STEPS_MAX};
    struct json_object *object = resolve(&walk, parameters);
    struct json_object *schema = json_object_object_get(json_object_object_get(object, "properties"), argument->key);
    enum parsed parsed = parse_by_schema(value, alloc, &walk, schema, argument, err);
    if (parsed != PARSED_NOTHING) return parsed == PARSED_VALUE;
    *value = json_object_new_string_len(argument->text, (int)argument->bytes);
    return *value || err_set(err, ERR_NOMEM, "no memory for an argument");
}

bool tool_value_required(struct json_object *parameters)
{
    struct walk walk = {.root = parameters, .steps = STEPS_MAX};
    struct json_object *required = json_object_object_get(resolve(&walk, parameters), "required");
    return json_object_is_type(required, json_type_array) && json_object_array_length(required) > 0;
}
