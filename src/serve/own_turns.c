#include "serve/own_turns.h"

#include "base/utf8.h"
#include "fmt/json_doc.h"
#include <json-c/json_object.h>
#include <pthread.h>
#include <string.h>

struct entry {
    struct entry *newer, *older;
    uint64_t bytes;
    struct own_turn turn; /* points into this allocation, but for the calls */
    _Alignas(uint32_t) char room[];
};

struct own_turns {
    struct alloc *alloc;
    uint64_t bytes_max;
    pthread_mutex_t lock; /* for everything below */
    struct entry *newest, *oldest;
    struct own_turns_stats stats;
};

bool own_turns_new(struct own_turns **turns, struct alloc *alloc, uint64_t bytes_max, struct err *err)
{
    struct own_turns *t = alloc_get(alloc, sizeof *t, err);
    if (!t) return false;
    t->alloc = alloc;
    t->bytes_max = bytes_max;
    pthread_mutex_init(&t->lock, NULL);
    *turns = t;
    return true;
}

static void unlink_entry(struct own_turns *t, struct entry *e)
{
    *(e->newer ? &e->newer->older : &t->newest) = e->older;
    *(e->older ? &e->older->newer : &t->oldest) = e->newer;
    t->stats.n--;
    t->stats.bytes -= e->bytes;
}

static void link_newest(struct own_turns *t, struct entry *e)
{
    e->newer = NULL;
    e->older = t->newest;
    *(e->older ? &e->older->newer : &t->oldest) = e;
    t->newest = e;
    t->stats.n++;
    t->stats.bytes += e->bytes;
}

static void drop_oldest(struct own_turns *t)
{
    struct entry *e = t->oldest;
    unlink_entry(t, e);
    json_object_put(e->turn.calls);
    alloc_put(t->alloc, e);
}

void own_turns_free(struct own_turns *turns)
{
    if (!turns) return;
    while (turns->oldest) drop_oldest(turns);
    pthread_mutex_destroy(&turns->lock);
    alloc_put(turns->alloc, turns);
}

/* --- comparing --- */

static const char *word_of(struct json_object *object, const char *key)
{
    struct json_object *value = json_object_object_get(object, key);
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

static const char *first_id(struct json_object *calls)
{
    return json_object_is_type(calls, json_type_array) && json_object_array_length(calls) > 0
               ? word_of(json_object_array_get_idx(calls, 0), "id")
               : "";
}

/* The object of a call's arguments, ours to put, however they were given. */
static struct json_object *arguments_of(struct json_object *function, struct alloc *alloc)
{
    struct err err;
    struct json_object *given = json_object_object_get(function, "arguments"), *parsed = NULL;
    if (!json_object_is_type(given, json_type_string)) return json_object_get(given);
    size_t bytes = (size_t)json_object_get_string_len(given);
    if (bytes == 0) return json_object_new_object();
    return json_doc_parse(&parsed, alloc, &json_rules_request, "arguments", json_object_get_string(given), bytes, &err)
               ? parsed
               : NULL;
}

static bool same_call(struct json_object *a, struct json_object *b, struct alloc *alloc)
{
    struct json_object *f = json_object_object_get(a, "function"), *g = json_object_object_get(b, "function");
    if (strcmp(word_of(a, "id"), word_of(b, "id")) != 0 || strcmp(word_of(f, "name"), word_of(g, "name")) != 0)
        return false;
    struct json_object *x = arguments_of(f, alloc), *y = arguments_of(g, alloc);
    bool same = x && y && json_object_equal(x, y);
    json_object_put(x);
    json_object_put(y);
    return same;
}

static bool same_calls(struct json_object *a, struct json_object *b, struct alloc *alloc)
{
    size_t n = json_object_array_length(a);
    if (json_object_array_length(b) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (!same_call(json_object_array_get_idx(a, i), json_object_array_get_idx(b, i), alloc)) return false;
    return true;
}

/* A content is a string, null, or parts that are read one behind the other; blanks around it do not count. */
static bool same_content(struct json_object *content, const struct own_turn *turn, struct alloc *alloc)
{
    struct buf text;
    struct err err;
    bool ok = true;
    size_t n = json_object_is_type(content, json_type_array) ? json_object_array_length(content) : 0, a, b;
    buf_init(&text, alloc, SIZE_MAX / 2);
    if (json_object_is_type(content, json_type_string))
        ok = buf_add(&text, json_object_get_string(content), (size_t)json_object_get_string_len(content), &err);
    for (size_t i = 0; i < n && ok; i++)
        ok = buf_add_text(&text, word_of(json_object_array_get_idx(content, i), "text"), &err);
    a = text.bytes;
    b = turn->content_bytes;
    const char *x = utf8_strip(text.data ? text.data : "", &a), *y = utf8_strip(turn->content, &b);
    ok = ok && a == b && memcmp(x, y, a) == 0;
    buf_fini(&text);
    return ok;
}

static struct entry *find(struct own_turns *t, struct json_object *message)
{
    struct json_object *calls = json_object_object_get(message, "tool_calls");
    const char *id = first_id(calls);
    if (!*id || strcmp(word_of(message, "role"), "assistant") != 0) return NULL;
    for (struct entry *e = t->newest; e; e = e->older)
        if (strcmp(first_id(e->turn.calls), id) == 0)
            return same_calls(e->turn.calls, calls, t->alloc) &&
                           same_content(json_object_object_get(message, "content"), &e->turn, t->alloc)
                       ? e
                       : NULL;
    return NULL;
}

/* --- keeping and finding --- */

static void *append(struct entry *e, size_t *at, const void *from, size_t bytes)
{
    void *to = e->room + *at;
    if (bytes) memcpy(to, from, bytes);
    *at += bytes;
    return to;
}

void own_turns_keep(struct own_turns *turns, const struct own_turn *turn)
{
    size_t n_ids = turn->n_thought + turn->n_rest, at = 0;
    size_t calls_bytes = strlen(json_object_to_json_string_ext(turn->calls, JSON_C_TO_STRING_PLAIN));
    uint64_t bytes = sizeof(struct entry) + n_ids * sizeof(uint32_t) + turn->reasoning_bytes + turn->content_bytes;
    if (bytes + calls_bytes > turns->bytes_max) return;
    struct entry *e = alloc_get(turns->alloc, bytes, NULL);
    if (!e) return;
    e->turn = *turn;
    e->bytes = bytes + calls_bytes; /* the tree of the calls is larger than its text, but not by an order */
    e->turn.thought = append(e, &at, turn->thought, turn->n_thought * sizeof(uint32_t));
    e->turn.rest = append(e, &at, turn->rest, turn->n_rest * sizeof(uint32_t));
    e->turn.reasoning = append(e, &at, turn->reasoning, turn->reasoning_bytes);
    e->turn.content = append(e, &at, turn->content, turn->content_bytes);
    json_object_get(turn->calls);
    pthread_mutex_lock(&turns->lock);
    while (turns->stats.bytes + e->bytes > turns->bytes_max) drop_oldest(turns);
    link_newest(turns, e);
    pthread_mutex_unlock(&turns->lock);
}

static bool copy_turn(struct arena *arena, const struct own_turn *turn, size_t message, struct chat_own_turn *out,
                      struct err *err)
{
    uint32_t *ids = arena_get_array(arena, turn->n_thought + turn->n_rest + 1, sizeof *ids, err);
    char *reasoning = ids ? arena_text(arena, turn->reasoning, turn->reasoning_bytes, err) : NULL;
    if (!reasoning) return false;
    if (turn->n_thought) memcpy(ids, turn->thought, turn->n_thought * sizeof *ids);
    memcpy(ids + turn->n_thought, turn->rest, turn->n_rest * sizeof *ids);
    *out = (struct chat_own_turn){.message = message,
                                  .reasoning = reasoning,
                                  .reasoning_bytes = turn->reasoning_bytes,
                                  .thought = ids,
                                  .n_thought = turn->n_thought,
                                  .rest = ids + turn->n_thought,
                                  .n_rest = turn->n_rest};
    return true;
}

bool own_turns_find(struct own_turns *turns, struct arena *arena, struct json_object *messages,
                    const struct chat_own_turn **list, size_t *n, struct err *err)
{
    size_t n_messages = json_object_is_type(messages, json_type_array) ? json_object_array_length(messages) : 0;
    struct chat_own_turn *found = NULL;
    *n = 0;
    *list = NULL;
    bool ok = true;
    pthread_mutex_lock(&turns->lock);
    for (size_t i = 0; i < n_messages && ok; i++) {
        struct entry *e = find(turns, json_object_array_get_idx(messages, i));
        if (!e) continue;
        if (!found) found = arena_get_array(arena, n_messages, sizeof *found, err);
        ok = found && copy_turn(arena, &e->turn, i, &found[(*n)++], err);
        unlink_entry(turns, e);
        link_newest(turns, e);
        turns->stats.n_reused++;
    }
    pthread_mutex_unlock(&turns->lock);
    *list = found;
    return ok;
}

struct own_turns_stats own_turns_stats(struct own_turns *turns)
{
    pthread_mutex_lock(&turns->lock);
    struct own_turns_stats stats = turns->stats;
    pthread_mutex_unlock(&turns->lock);
    return stats;
}
