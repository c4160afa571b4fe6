#include "gram/schema.h"

#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <string.h>

/* OpenAI's limits of 2026. */
enum {
    MEMBERS_MAX = 5000,
    LEVELS_MAX = 10,
    TEXT_MAX = 120000, /* of names and values */
    VALUES_MAX = 1000,
    MANY_VALUES = 250, /* from here on the text of one enum is limited too */
    ENUM_TEXT_MAX = 15000,
};

struct strict {
    const char *where;
    size_t members, text, values;
    struct err *err;
};

static bool refuse(const struct strict *x, const char *what)
{
    return err_set(x->err, ERR_USER, "invalid_schema: %s#: strict: %s", x->where, what);
}

static bool check(struct strict *x, struct json_object *schema, int level);

static size_t text_of(struct json_object *value)
{
    return json_object_is_type(value, json_type_string) ? (size_t)json_object_get_string_len(value) : 0;
}

static bool check_enum(struct strict *x, struct json_object *list)
{
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0, text = 0;
    for (size_t i = 0; i < n; i++) text += text_of(json_object_array_get_idx(list, i));
    x->values += n;
    x->text += text;
    return n <= MANY_VALUES || text <= ENUM_TEXT_MAX || refuse(x, "an enum of many strings has too much text");
}

static bool is_required(struct json_object *schema, const char *name)
{
    struct json_object *list = json_object_object_get(schema, "required");
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (json_object_is_type(item, json_type_string) && strcmp(json_object_get_string(item), name) == 0) return true;
    }
    return false;
}

static bool check_object(struct strict *x, struct json_object *schema, int level)
{
    struct json_object *more = json_object_object_get(schema, "additionalProperties");
    struct json_object *members = json_object_object_get(schema, "properties");
    if (!json_object_is_type(more, json_type_boolean) || json_object_get_boolean(more))
        return refuse(x, "every object needs additionalProperties false");
    if (!json_object_is_type(members, json_type_object)) return true;
    for (const struct lh_entry *e = json_object_get_object(members)->head; e; e = e->next) {
        x->members++;
        x->text += strlen(lh_entry_k(e));
        if (!is_required(schema, lh_entry_k(e))) return refuse(x, "every object must list all its members in required");
        if (!check(x, lh_entry_v(e), level + 1)) return false;
    }
    return true;
}

static bool check_list(struct strict *x, struct json_object *list, int level)
{
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++)
        if (!check(x, json_object_array_get_idx(list, i), level)) return false;
    return true;
}

static bool check_definitions(struct strict *x, struct json_object *definitions)
{
    if (!json_object_is_type(definitions, json_type_object)) return true;
    for (const struct lh_entry *e = json_object_get_object(definitions)->head; e; e = e->next) {
        x->text += strlen(lh_entry_k(e));
        if (!check(x, lh_entry_v(e), 1)) return false;
    }
    return true;
}

static bool is_object(struct json_object *schema)
{
    struct json_object *type = json_object_object_get(schema, "type");
    if (json_object_is_type(type, json_type_string)) return strcmp(json_object_get_string(type), "object") == 0;
    size_t n = json_object_is_type(type, json_type_array) ? json_object_array_length(type) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *name = json_object_array_get_idx(type, i);
        if (json_object_is_type(name, json_type_string) && strcmp(json_object_get_string(name), "object") == 0)
            return true;
    }
    return json_object_object_get_ex(schema, "properties", NULL);
}

static bool check(struct strict *x, struct json_object *schema, int level)
{
    static const char *const lists[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
    if (!json_object_is_type(schema, json_type_object)) return true;
    if (level > LEVELS_MAX) return refuse(x, "objects nest deeper than 10 levels");
    if (is_object(schema) && !check_object(x, schema, level)) return false;
    for (int i = 0; i < 4; i++)
        if (!check_list(x, json_object_object_get(schema, lists[i]), level)) return false;
    if (!check_enum(x, json_object_object_get(schema, "enum"))) return false;
    x->text += text_of(json_object_object_get(schema, "const"));
    return check(x, json_object_object_get(schema, "items"), level + 1) &&
           check_definitions(x, json_object_object_get(schema, "$defs")) &&
           check_definitions(x, json_object_object_get(schema, "definitions"));
}

bool schema_check_strict(struct json_object *root, const char *where, struct err *err)
{
    struct strict x = {.where = where, .err = err};
    if (!json_object_is_type(root, json_type_object)) return refuse(&x, "the schema must be an object");
    if (json_object_object_get_ex(root, "anyOf", NULL)) return refuse(&x, "the root must not be an anyOf");
    if (!is_object(root) && !json_object_object_get_ex(root, "$ref", NULL))
        return refuse(&x, "the root must be of type object");
    if (!check(&x, root, 1)) return false;
    if (x.members > MEMBERS_MAX) return refuse(&x, "more than 5000 members");
    if (x.values > VALUES_MAX) return refuse(&x, "more than 1000 values of enums");
    return x.text <= TEXT_MAX || refuse(&x, "more than 120000 characters of names and values");
}
