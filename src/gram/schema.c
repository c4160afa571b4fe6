#include "gram/schema_int.h"

#include "fmt/json_text.h"
#include <json-c/json_object.h>
#include <string.h>

/* A choice between the branches of the first anyOf or oneOf, each together with all the other parts. */
static bool branch(struct schema *s, struct schema_parts *parts, uint32_t at, const char *key, unsigned done,
                   enum spelling spelling, uint32_t *node, struct err *err)
{
    struct schema_part *part = &parts->at[at];
    struct json_object *list = json_object_object_get(part->schema, key);
    part->done |= done;
    if (!schema_list(s, part, key, &list, err)) return false;
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
    schema_drop_empty(&parts);
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
