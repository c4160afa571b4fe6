#include "gram/schema_int.h"

#include "fmt/json_text.h"
#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <string.h>

static struct json_object *member(struct json_object *object, const char *key)
{
    return json_object_is_type(object, json_type_object) ? json_object_object_get(object, key) : NULL;
}

static bool has_member(struct json_object *object, const char *key)
{
    return json_object_is_type(object, json_type_object) && json_object_object_get_ex(object, key, NULL);
}

static const struct schema_path *path_of(const struct schema *s, const struct schema_part *part, const char *key,
                                         const char *name, struct err *err)
{
    const struct schema_path *path = schema_path_key(s, part->path, key, err);
    return path && name ? schema_path_key(s, path, name, err) : path;
}

/* ---- members ---- */

struct gathering {
    struct schema *s;
    const struct schema_parts *parts;
    const struct schema_marks *marks; /* NULL: a JSON object */
    struct json_object *required;     /* an object used as a set */
    struct build_member *members;
    uint32_t n, room;
    struct err *err;
};

/* The names of all `required` lists. */
static bool gather_required(struct gathering *g)
{
    for (uint32_t i = 0; i < g->parts->n; i++) {
        const struct schema_part *part = &g->parts->at[i];
        struct json_object *list;
        if (!json_object_object_get_ex(part->schema, "required", &list)) continue;
        size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
        bool ok = json_object_is_type(list, json_type_array);
        for (size_t k = 0; ok && k < n; k++) {
            struct json_object *name = json_object_array_get_idx(list, k);
            ok = json_object_is_type(name, json_type_string) &&
                 strlen(json_object_get_string(name)) == (size_t)json_object_get_string_len(name);
            if (ok && json_object_object_add(g->required, json_object_get_string(name), NULL) != 0)
                return err_set(g->err, ERR_NOMEM, "no memory for a schema");
        }
        if (!ok)
            return schema_refuse(g->s, g->err, "invalid_schema", part->path, "required",
                                 "this must be a list of names");
    }
    return true;
}

/* A key as it is written, with its quotes or without. */
static bool set_key(struct gathering *g, const char *name, struct build_member *out)
{
    struct arena *scratch = &g->s->builder->scratch;
    if (g->marks) {
        out->n = strlen(name);
        out->key = arena_text(scratch, name, out->n, g->err);
        return out->key != NULL;
    }
    struct buf text;
    buf_init(&text, g->s->builder->alloc, SCHEMA_BYTES_MAX * 8);
    bool ok = json_text_add_string(&text, name, strlen(name), g->err);
    out->key = ok ? arena_text(scratch, text.data, text.bytes, g->err) : NULL;
    out->n = text.bytes;
    buf_fini(&text);
    return out->key != NULL;
}

/* What a part that does not declare a member says about it. */
static bool add_additional(struct gathering *g, const struct schema_part *part, const char *name,
                           struct schema_parts *value)
{
    struct json_object *additional;
    if (!json_object_object_get_ex(part->schema, "additionalProperties", &additional)) return true;
    if (json_object_is_type(additional, json_type_boolean) && !json_object_get_boolean(additional))
        return schema_refuse(g->s, g->err, "unsupported_schema", part->path, "additionalProperties",
                             "this forbids the member %.60s, which another part of the schema names", name);
    return schema_add_part(g->s, value, NULL, additional, path_of(g->s, part, "additionalProperties", NULL, g->err),
                           g->err);
}

static uint32_t value_node(const struct gathering *g, uint32_t value)
{
    struct builder *b = g->s->builder;
    if (!g->marks) return build_seq(b, (uint32_t[]){g->s->nodes->colon, value}, 2);
    return build_seq(b, (uint32_t[]){g->marks->key_end, g->marks->value, value, g->marks->value_end}, 4);
}

static bool add_member(struct gathering *g, const char *name)
{
    struct schema *s = g->s;
    struct schema_parts value = {.n = 0};
    uint32_t node;
    if (++s->n_members > SCHEMA_MEMBERS_MAX)
        return schema_refuse(s, g->err, "unsupported_schema", NULL, NULL, "more than %d members", SCHEMA_MEMBERS_MAX);
    for (uint32_t i = 0; i < g->parts->n; i++) {
        const struct schema_part *part = &g->parts->at[i];
        struct json_object *declared = member(part->schema, "properties");
        if (!has_member(declared, name)) {
            if (!add_additional(g, part, name, &value)) return false;
        } else if (!schema_add_part(s, &value, NULL, member(declared, name),
                                    path_of(s, part, "properties", name, g->err), g->err)) {
            return false;
        }
    }
    struct build_member *out = &g->members[g->n++];
    out->required = has_member(g->required, name);
    if (!set_key(g, name, out) || !schema_value(s, &value, g->marks ? SPELL_RAW : SPELL_JSON, &node, g->err))
        return false;
    out->value = value_node(g, node);
    return true;
}

static bool is_declared(const struct gathering *g, uint32_t n_parts, const char *name)
{
    for (uint32_t i = 0; i < n_parts; i++)
        if (has_member(member(g->parts->at[i].schema, "properties"), name)) return true;
    return false;
}

/* All that any part declares, in order, then what is required without being declared. */
static bool gather_members(struct gathering *g)
{
    uint64_t most = (uint64_t)json_object_object_length(g->required);
    for (uint32_t i = 0; i < g->parts->n; i++) {
        struct json_object *declared = member(g->parts->at[i].schema, "properties");
        if (has_member(g->parts->at[i].schema, "properties") && !json_object_is_type(declared, json_type_object))
            return schema_refuse(g->s, g->err, "invalid_schema", g->parts->at[i].path, "properties",
                                 "this must be an object");
        if (declared) most += (uint64_t)json_object_object_length(declared);
    }
    g->members = arena_get_array(&g->s->builder->scratch, most, sizeof *g->members, g->err);
    if (!g->members) return false;
    for (uint32_t i = 0; i < g->parts->n; i++) {
        struct json_object *declared = member(g->parts->at[i].schema, "properties");
        if (!declared) continue;
        for (const struct lh_entry *e = json_object_get_object(declared)->head; e; e = e->next)
            if (!is_declared(g, i, lh_entry_k(e)) && !add_member(g, lh_entry_k(e))) return false;
    }
    for (const struct lh_entry *e = json_object_get_object(g->required)->head; e; e = e->next)
        if (!is_declared(g, g->parts->n, lh_entry_k(e)) && !add_member(g, lh_entry_k(e))) return false;
    return true;
}

/* Names that are not declared, in their one spelling. */
static uint32_t extra_key_term(struct gathering *g)
{
    struct regular *r = &g->s->builder->regular;
    uint32_t quote = regular_text(r, "\"");
    uint32_t any = regular_many(r, code_range_term(r, 1, 0x10FFFF, SPELL_JSON)); /* see json_key_term */
    uint32_t *keys = arena_get_array(&g->s->builder->scratch, g->n, sizeof *keys, &r->err);
    if (!keys) return REGULAR_NOTHING;
    for (uint32_t i = 0; i < g->n; i++) keys[i] = regular_bytes(r, g->members[i].key + 1, g->members[i].n - 2);
    uint32_t body = regular_and(r, any, regular_not(r, regular_any_of(r, keys, g->n)));
    return regular_seq_of(r, (uint32_t[]){quote, body, quote}, 3);
}

/* Members beyond the declared ones, when a part asks for them and none forbids them. */
static bool set_extra(struct gathering *g, struct gram_members *list)
{
    struct schema_parts value = {.n = 0};
    bool asked = false;
    uint32_t node;
    list->extra_key = list->extra_value = GRAM_NONE;
    for (uint32_t i = 0; i < g->parts->n; i++) {
        const struct schema_part *part = &g->parts->at[i];
        struct json_object *additional;
        if (!json_object_object_get_ex(part->schema, "additionalProperties", &additional)) continue;
        if (json_object_is_type(additional, json_type_boolean) && !json_object_get_boolean(additional)) return true;
        asked = true;
        if (!schema_add_part(g->s, &value, NULL, additional, path_of(g->s, part, "additionalProperties", NULL, g->err),
                             g->err))
            return false;
    }
    if (!asked || g->marks) return true;
    if (!schema_value(g->s, &value, SPELL_JSON, &node, g->err)) return false;
    list->extra_value = value_node(g, node);
    list->extra_key = build_term(g->s->builder, extra_key_term(g));
    return true;
}

/* No part says anything about members: any object will do. */
static bool says_nothing(const struct schema_parts *parts)
{
    static const char *const keys[] = {"properties", "required", "additionalProperties"};
    for (uint32_t i = 0; i < parts->n; i++)
        for (int k = 0; k < 3; k++)
            if (has_member(parts->at[i].schema, keys[k])) return false;
    return true;
}

bool schema_members(struct schema *s, const struct schema_parts *parts, const struct schema_marks *marks,
                    uint32_t *node, struct err *err)
{
    struct gathering g = {.s = s, .parts = parts, .marks = marks, .err = err};
    const struct json_nodes *j = s->nodes;
    struct gram_members list = {.open = j->open_object, .close = j->close_object};
    list.blanks = j->blank;
    list.separator = j->comma;
    if (!marks && says_nothing(parts)) {
        *node = j->any_object;
        return true;
    }
    if (marks) list.open = list.close = list.blanks = list.separator = marks->key;
    g.required = json_object_new_object();
    if (!g.required) return err_set(err, ERR_NOMEM, "no memory for a schema");
    bool ok = gather_required(&g) && gather_members(&g) && set_extra(&g, &list);
    json_object_put(g.required);
    if (!ok) return false;
    *node = build_members(s->builder, marks ? NODE_ARGS : NODE_OBJECT, &list, g.members, g.n);
    return build_ok(s->builder, err);
}

/* ---- items ---- */

/* Parts that together say what the item at `index` must be; *closed when there can be none. */
static bool item_parts(struct schema *s, const struct schema_parts *parts, size_t index, struct schema_parts *item,
                       bool *closed, struct err *err)
{
    bool is_said = false, has_prefix = false;
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct schema_part *part = &parts->at[i];
        struct json_object *prefix = member(part->schema, "prefixItems"), *items;
        size_t n = json_object_is_type(prefix, json_type_array) ? json_object_array_length(prefix) : 0;
        has_prefix |= n > 0;
        if (index < n) {
            is_said = true;
            const struct schema_path *path = path_of(s, part, "prefixItems", NULL, err);
            if (!path || !schema_add_part(s, item, NULL, json_object_array_get_idx(prefix, index),
                                          schema_path_index(s, path, index, err), err))
                return false;
        } else if (json_object_object_get_ex(part->schema, "items", &items)) {
            is_said = true;
            if (json_object_is_type(items, json_type_array))
                return schema_refuse(s, err, "unsupported_schema", part->path, "items",
                                     "a list of schemas belongs in prefixItems");
            if (!schema_add_part(s, item, NULL, items, path_of(s, part, "items", NULL, err), err)) return false;
        }
    }
    *closed = item->never || (has_prefix && !is_said);
    return true;
}

static bool prefix_length(struct schema *s, const struct schema_parts *parts, uint32_t *n, struct err *err)
{
    *n = 0;
    for (uint32_t i = 0; i < parts->n; i++) {
        struct json_object *prefix = member(parts->at[i].schema, "prefixItems");
        if (!has_member(parts->at[i].schema, "prefixItems")) continue;
        if (!json_object_is_type(prefix, json_type_array))
            return schema_refuse(s, err, "invalid_schema", parts->at[i].path, "prefixItems", "this must be a list");
        if (json_object_array_length(prefix) > SCHEMA_ITEMS_MAX)
            return schema_refuse(s, err, "unsupported_schema", parts->at[i].path, "prefixItems", "more than %d items",
                                 SCHEMA_ITEMS_MAX);
        if (json_object_array_length(prefix) > *n) *n = (uint32_t)json_object_array_length(prefix);
    }
    return true;
}

/* The items behind the first `index`, each with its comma: some of them, or nothing where that is allowed. */
static uint32_t rest_node(struct schema *s, const struct schema_facts *f, uint32_t item, uint32_t rest, uint32_t index)
{
    struct builder *b = s->builder;
    if (index >= f->max_items) return build_seq(b, NULL, 0);
    uint32_t more = build_seq(b, (uint32_t[]){s->nodes->comma, item, rest}, 3);
    return build_repeat(b, more, index < f->min_items, 1);
}

bool schema_items(struct schema *s, const struct schema_parts *parts, const struct schema_facts *f, uint32_t *node,
                  struct err *err)
{
    struct builder *b = s->builder;
    uint32_t n_prefix, item, rest = 0;
    bool closed;
    if (!prefix_length(s, parts, &n_prefix, err)) return false;
    struct schema_parts tail = {.n = 0};
    if (!item_parts(s, parts, n_prefix, &tail, &closed, err)) return false;
    if (closed && f->min_items > n_prefix && !tail.never) closed = false; /* what minItems asks for may be anything */
    if (!schema_value(s, &tail, SPELL_JSON, &item, err)) return false;
    uint32_t first = n_prefix ? n_prefix : 1; /* items that do not belong to the repetition */
    uint32_t min = f->min_items > first ? f->min_items - first : 0;
    uint32_t max = f->max_items == REGULAR_MANY ? REGULAR_MANY : f->max_items > first ? f->max_items - first : 0;
    if (closed) max = 0;
    if (min > max) { /* minItems asks for more than there can be */
        *node = build_union(b, NULL, 0);
        return true;
    }
    rest = build_repeat(b, build_seq(b, (uint32_t[]){s->nodes->comma, item}, 2), min, max);
    for (uint32_t index = n_prefix; index-- > 0;) {
        struct schema_parts here = {.n = 0};
        if (!item_parts(s, parts, index, &here, &closed, err) || !schema_value(s, &here, SPELL_JSON, &item, err))
            return false;
        closed = here.never;
        if (index > 0) rest = rest_node(s, f, item, rest, index);
    }
    struct json_array_form form = {item, rest, f->min_items == 0, f->max_items > 0 && !closed};
    *node = json_array_node(s->nodes, b, &form);
    return true;
}
