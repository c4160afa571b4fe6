/* Which schemas hold together for a value: what $ref and allOf add. */
#include "gram/schema_int.h"

#include <json-c/json_object.h>
#include <json-c/json_pointer.h>
#include <stdlib.h>
#include <string.h>

enum { REFERENCE_BYTES_MAX = 1024 };

static bool percent_decode(char *out, const char *text)
{
    for (; *text; text++) {
        unsigned value;
        char digits[3] = {text[0] == '%' ? text[1] : 0, text[0] == '%' && text[1] ? text[2] : 0, 0};
        if (*text != '%') {
            *out++ = *text;
            continue;
        }
        if (strspn(digits, "0123456789abcdefABCDEF") != 2) return false;
        value = (unsigned)strtoul(digits, NULL, 16);
        if (value == 0) return false;
        *out++ = (char)value;
        text += 2;
    }
    *out = 0;
    return true;
}

static bool resolve(const struct schema *s, const struct schema_part *part, struct json_object *reference,
                    struct json_object **target, const struct schema_path **path, struct err *err)
{
    char pointer[REFERENCE_BYTES_MAX + 1];
    if (!json_object_is_type(reference, json_type_string))
        return schema_refuse(s, err, "invalid_schema", part->path, "$ref", "this must be a string");
    const char *text = json_object_get_string(reference);
    if (text[0] != '#' || (text[1] && text[1] != '/'))
        return schema_refuse(s, err, "unsupported_schema", part->path, "$ref",
                             "only references like #/$defs/name are supported");
    if (strlen(text) > REFERENCE_BYTES_MAX || !percent_decode(pointer, text + 1))
        return schema_refuse(s, err, "invalid_schema", part->path, "$ref", "this is not a JSON pointer");
    if (pointer[0] == 0)
        *target = s->root;
    else if (json_pointer_get(s->root, pointer, target) != 0)
        return schema_refuse(s, err, "invalid_schema", part->path, "$ref", "there is nothing at this place");
    *path = schema_path_key(s, NULL, text + 1, err);
    return *path != NULL;
}

/* ---- parts ---- */

bool schema_add_part(const struct schema *s, struct schema_parts *parts, const struct schema_part *from,
                     struct json_object *schema, const struct schema_path *path, struct err *err)
{
    if (!path) return false; /* there was no memory for it */
    for (const struct schema_trace *t = from ? from->trace : NULL; t; t = t->from)
        if (t->schema == schema)
            return schema_refuse(s, err, "invalid_schema", path, NULL, "this schema refers back to itself");
    if (json_object_is_type(schema, json_type_boolean)) {
        if (!json_object_get_boolean(schema)) parts->never = true;
        return true;
    }
    if (!json_object_is_type(schema, json_type_object))
        return schema_refuse(s, err, "invalid_schema", path, NULL, "a schema must be an object or a boolean");
    for (uint32_t i = 0; i < parts->n; i++)
        if (parts->at[i].schema == schema) return true;
    if (parts->n == PARTS_MAX)
        return schema_refuse(s, err, "unsupported_schema", path, NULL, "more than %d schemas hold together", PARTS_MAX);
    struct schema_trace *trace = arena_get(&s->builder->scratch, sizeof *trace, err);
    if (!trace) return false;
    *trace = (struct schema_trace){schema, from ? from->trace : NULL};
    parts->at[parts->n++] = (struct schema_part){schema, path, trace, 0};
    return true;
}

bool schema_list(const struct schema *s, const struct schema_part *part, const char *key, struct json_object **list,
                 struct err *err)
{
    if (json_object_is_type(*list, json_type_array) && json_object_array_length(*list) > 0) return true;
    return schema_refuse(s, err, "invalid_schema", part->path, key, "this must be a list of schemas");
}

static bool add_all_of(const struct schema *s, struct schema_parts *parts, const struct schema_part *part,
                       struct json_object *list, struct err *err)
{
    if (!schema_list(s, part, "allOf", &list, err)) return false;
    const struct schema_path *path = schema_path_key(s, part->path, "allOf", err);
    if (!path) return false;
    for (size_t i = 0; i < json_object_array_length(list); i++)
        if (!schema_add_part(s, parts, part, json_object_array_get_idx(list, i), schema_path_index(s, path, i, err),
                             err))
            return false;
    return true;
}

bool schema_expand(const struct schema *s, struct schema_parts *parts, struct err *err)
{
    for (uint32_t i = 0; i < parts->n; i++) { /* grows while it runs */
        struct schema_part *part = &parts->at[i];
        struct json_object *value, *target;
        const struct schema_path *path;
        if (!schema_check_keywords(s, part, err)) return false;
        if (!(part->done & DONE_REF) && json_object_object_get_ex(part->schema, "$ref", &value)) {
            part->done |= DONE_REF;
            if (!resolve(s, part, value, &target, &path, err) || !schema_add_part(s, parts, part, target, path, err))
                return false;
        }
        if (!(part->done & DONE_ALL_OF) && json_object_object_get_ex(part->schema, "allOf", &value)) {
            part->done |= DONE_ALL_OF;
            if (!add_all_of(s, parts, part, value, err)) return false;
        }
    }
    return true;
}
