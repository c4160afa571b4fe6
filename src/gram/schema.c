#include "gram/schema_int.h"

#include "fmt/json_text.h"
#include "gram/grow.h"
#include <inttypes.h>
#include <json-c/json_object.h>
#include <json-c/json_pointer.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS_MAX = 1 << 16, BUCKETS = 1 << 12, REFERENCE_BYTES_MAX = 1024 };

struct schema_task {
    struct schema_part *parts;
    uint32_t n, link, bucket_next; /* bucket_next: task + 1 */
    enum spelling spelling;
    bool never;
};

/* ---- paths and messages ---- */

const struct schema_path *schema_path_key(const struct schema *s, const struct schema_path *up, const char *key,
                                          struct err *err)
{
    struct schema_path *path = arena_get(&s->builder->scratch, sizeof *path, err);
    if (path) *path = (struct schema_path){up, key, 0};
    return path;
}

const struct schema_path *schema_path_index(const struct schema *s, const struct schema_path *up, size_t index,
                                            struct err *err)
{
    struct schema_path *path = arena_get(&s->builder->scratch, sizeof *path, err);
    if (path) *path = (struct schema_path){up, NULL, index};
    return path;
}

struct printed {
    char text[512];
    size_t n;
};

static void print_key(struct printed *out, const char *key)
{
    for (; *key && out->n + 3 < sizeof out->text; key++) {
        if (*key == '~' || *key == '/') out->text[out->n++] = '~';
        out->text[out->n++] = *key == '~' ? '0' : *key == '/' ? '1' : *key < 0x20 && *key >= 0 ? '?' : *key;
    }
    out->text[out->n] = 0;
}

static void print_path(struct printed *out, const struct schema_path *path)
{
    enum { DEPTH_MAX = 80 };
    const struct schema_path *steps[DEPTH_MAX];
    int n = 0;
    for (; path && n < DEPTH_MAX; path = path->up) steps[n++] = path;
    while (n-- > 0) {
        size_t left = sizeof out->text - out->n;
        if (left < 32) return;
        if (!steps[n]->up) {
            out->n += (size_t)snprintf(out->text + out->n, left - 24, "%s", steps[n]->key);
            if (out->n > sizeof out->text - 25) out->n = sizeof out->text - 25;
        } else if (steps[n]->key) {
            out->text[out->n++] = '/';
            print_key(out, steps[n]->key);
        } else {
            out->n += (size_t)snprintf(out->text + out->n, left, "/%zu", steps[n]->index);
        }
    }
}

bool schema_refuse(const struct schema *s, struct err *err, const char *code, const struct schema_path *path,
                   const char *key, const char *format, ...)
{
    struct printed where = {.n = 0};
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    print_path(&where, path);
    if (key && where.n + 2 < sizeof where.text) {
        where.text[where.n++] = '/';
        print_key(&where, key);
    }
    return err_set(err, ERR_USER, "%s: %s#%s: %s", code, s->where, where.text, what);
}

/* ---- references ---- */

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

static bool list_of(const struct schema *s, const struct schema_part *part, const char *key, struct json_object **list,
                    struct err *err)
{
    if (json_object_is_type(*list, json_type_array) && json_object_array_length(*list) > 0) return true;
    return schema_refuse(s, err, "invalid_schema", part->path, key, "this must be a list of schemas");
}

static bool add_all_of(const struct schema *s, struct schema_parts *parts, const struct schema_part *part,
                       struct json_object *list, struct err *err)
{
    if (!list_of(s, part, "allOf", &list, err)) return false;
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

/* ---- tasks ---- */

static uint32_t hash_parts(const struct schema_part *parts, uint32_t n, enum spelling spelling)
{
    uint64_t h = 1469598103934665603u + spelling;
    for (uint32_t i = 0; i < n; i++) h = (h ^ ((uintptr_t)parts[i].schema >> 4) ^ parts[i].done) * 1099511628211u;
    return (uint32_t)(h >> 32) % BUCKETS;
}

static bool same_parts(const struct schema_task *task, const struct schema_parts *parts, enum spelling spelling)
{
    if (task->n != parts->n || task->spelling != spelling || task->never != parts->never) return false;
    for (uint32_t i = 0; i < task->n; i++)
        if (task->parts[i].schema != parts->at[i].schema || task->parts[i].done != parts->at[i].done) return false;
    return true;
}

/* Parts that say nothing of their own are left out, so that many ways to the same schema are one task. */
static void drop_empty(struct schema_parts *parts)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < parts->n; i++)
        if (!schema_says_nothing(&parts->at[i])) parts->at[kept++] = parts->at[i];
    parts->n = kept;
}

bool schema_value(struct schema *s, const struct schema_parts *given, enum spelling spelling, uint32_t *node,
                  struct err *err)
{
    struct schema_parts parts = *given;
    const struct grow grow = {s->builder->alloc, "schemas", TASKS_MAX};
    drop_empty(&parts);
    uint32_t *bucket = &s->buckets[hash_parts(parts.at, parts.n, spelling)];
    for (uint32_t i = *bucket; i; i = s->tasks[i - 1].bucket_next) {
        if (!same_parts(&s->tasks[i - 1], &parts, spelling)) continue;
        *node = s->tasks[i - 1].link;
        return true;
    }
    struct schema_task task = {.n = parts.n, .bucket_next = *bucket, .spelling = spelling, .never = parts.never};
    task.parts = arena_get_array(&s->builder->scratch, parts.n, sizeof *task.parts, err);
    if (!task.parts || !grow_room(&grow, &s->tasks, &s->tasks_room, (uint64_t)s->n_tasks + 1, sizeof task, err))
        return false;
    memcpy(task.parts, parts.at, parts.n * sizeof *task.parts);
    *node = task.link = build_link(s->builder);
    s->tasks[s->n_tasks++] = task;
    *bucket = s->n_tasks;
    return build_ok(s->builder, err);
}

/* A choice between the branches of the first anyOf or oneOf, each together with all the other parts. */
static bool branch(struct schema *s, struct schema_parts *parts, uint32_t at, const char *key, unsigned done,
                   enum spelling spelling, uint32_t *node, struct err *err)
{
    struct schema_part *part = &parts->at[at];
    struct json_object *list = json_object_object_get(part->schema, key);
    part->done |= done;
    if (!list_of(s, part, key, &list, err)) return false;
    size_t n = json_object_array_length(list);
    uint32_t *nodes = arena_get_array(&s->builder->scratch, n, sizeof *nodes, err);
    const struct schema_path *path = nodes ? schema_path_key(s, part->path, key, err) : NULL;
    if (!path) return false;
    for (size_t i = 0; i < n; i++) {
        struct schema_parts branch_parts = *parts;
        if (!schema_add_part(s, &branch_parts, part, json_object_array_get_idx(list, i),
                             schema_path_index(s, path, i, err), err) ||
            !schema_value(s, &branch_parts, spelling, &nodes[i], err))
            return false;
    }
    *node = build_union(s->builder, nodes, (uint32_t)n);
    return true;
}

static bool compile(struct schema *s, const struct schema_task *task, uint32_t *node, struct err *err)
{
    struct schema_parts parts = {.n = task->n, .never = task->never};
    memcpy(parts.at, task->parts, task->n * sizeof *task->parts);
    if (!schema_expand(s, &parts, err)) return false;
    if (parts.never) {
        *node = build_union(s->builder, NULL, 0);
        return true;
    }
    for (uint32_t i = 0; i < parts.n; i++) {
        const struct schema_part *part = &parts.at[i];
        if (!(part->done & DONE_ANY_OF) && json_object_object_get_ex(part->schema, "anyOf", NULL))
            return branch(s, &parts, i, "anyOf", DONE_ANY_OF, task->spelling, node, err);
        if (!(part->done & DONE_ONE_OF) && json_object_object_get_ex(part->schema, "oneOf", NULL))
            return branch(s, &parts, i, "oneOf", DONE_ONE_OF, task->spelling, node, err);
    }
    drop_empty(&parts);
    return schema_emit(s, &parts, task->spelling, node, err);
}

bool schema_run(struct schema *s, struct err *err)
{
    bool ok = true;
    while (ok && s->next_task < s->n_tasks) {
        struct schema_task task = s->tasks[s->next_task++];
        uint32_t node;
        ok = compile(s, &task, &node, err) && build_ok(s->builder, err);
        if (ok) build_link_to(s->builder, task.link, node);
    }
    return ok;
}

void schema_fini(struct schema *s)
{
    if (!s) return;
    alloc_put(s->builder->alloc, s->tasks);
    s->tasks = NULL;
    s->n_tasks = s->next_task = s->tasks_room = 0;
}

/* ---- the doors ---- */

static bool check_size(const struct schema *s, struct err *err)
{
    struct buf text;
    struct err why = {0};
    buf_init(&text, s->builder->alloc, SCHEMA_BYTES_MAX);
    bool ok = json_text_add(&text, s->root, JSON_COMPACT, &why);
    buf_fini(&text);
    if (ok) return true;
    if (why.kind == ERR_NOMEM) {
        if (err) *err = why;
        return false;
    }
    return schema_refuse(s, err, "unsupported_schema", NULL, NULL, "a schema may have %d bytes at most",
                         SCHEMA_BYTES_MAX);
}

struct schema *schema_new(struct builder *builder, struct json_nodes *nodes, struct json_object *root,
                          const char *where, struct err *err)
{
    struct schema *s = arena_get(&builder->scratch, sizeof *s, err);
    if (!s) return NULL;
    *s = (struct schema){.builder = builder, .nodes = nodes, .root = root, .where = where};
    s->buckets = arena_get_array(&builder->scratch, BUCKETS, sizeof *s->buckets, err);
    return s->buckets && check_size(s, err) ? s : NULL;
}

static bool root_parts(struct schema *s, struct schema_parts *parts, struct err *err)
{
    *parts = (struct schema_parts){.n = 0};
    return schema_add_part(s, parts, NULL, s->root, schema_path_key(s, NULL, "", err), err);
}

bool schema_node(struct schema *s, enum spelling spelling, uint32_t *node, struct err *err)
{
    struct schema_parts parts;
    return root_parts(s, &parts, err) && schema_value(s, &parts, spelling, node, err);
}

bool schema_args(struct schema *s, const struct schema_marks *marks, uint32_t *node, struct err *err)
{
    struct schema_parts parts;
    struct schema_facts facts;
    if (!root_parts(s, &parts, err) || !schema_expand(s, &parts, err)) return false;
    for (uint32_t i = 0; i < parts.n; i++)
        for (int k = 0; k < 2; k++) {
            const char *key = k ? "oneOf" : "anyOf";
            if (json_object_object_get_ex(parts.at[i].schema, key, NULL))
                return schema_refuse(s, err, "unsupported_schema", parts.at[i].path, key,
                                     "a choice between whole sets of arguments is not supported");
        }
    if (!schema_facts_of(s, &parts, SPELL_RAW, &facts, err)) return false;
    if (parts.never || facts.has_values || !(facts.types & TYPE_OBJECT))
        return schema_refuse(s, err, "unsupported_schema", NULL, NULL, "the arguments of a tool must be an object");
    return schema_members(s, &parts, marks, node, err);
}
