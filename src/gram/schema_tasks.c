/* What is still to be compiled: each set of schemas once, however many ways lead to it. */
#include "gram/schema_int.h"

#include "gram/grow.h"
#include <string.h>

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

void schema_drop_empty(struct schema_parts *parts)
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
    schema_drop_empty(&parts);
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
