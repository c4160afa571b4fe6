#include "serve/responses_store.h"

#include "base/assert.h"
#include "serve/names.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct entry {
    struct entry *next, **link; /* the most recently used first */
    char id[NAME_BYTES];
    char *response, *input;
    size_t n_response, n_input;
    int64_t until_ns;
};

struct response_store {
    struct alloc *alloc;
    struct clock clock;
    pthread_mutex_t lock; /* for everything below */
    struct entry *first;
    struct response_store_stats stats;
};

bool response_store_new(struct response_store **store, struct alloc *alloc, struct clock clock, struct err *err)
{
    struct response_store *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    s->alloc = alloc;
    s->clock = clock;
    pthread_mutex_init(&s->lock, NULL);
    *store = s;
    return true;
}

static size_t bytes_of(const struct entry *e)
{
    return sizeof *e + e->n_response + e->n_input;
}

static void link_first(struct response_store *s, struct entry *e)
{
    e->next = s->first;
    e->link = &s->first;
    if (e->next) e->next->link = &e->next;
    s->first = e;
}

static void unlink_entry(struct entry *e)
{
    *e->link = e->next;
    if (e->next) e->next->link = e->link;
}

static void forget(struct response_store *s, struct entry *e)
{
    unlink_entry(e);
    s->stats.n--;
    s->stats.bytes -= bytes_of(e);
    alloc_put(s->alloc, e->response);
    alloc_put(s->alloc, e->input);
    alloc_put(s->alloc, e);
}

void response_store_free(struct response_store *store)
{
    if (!store) return;
    while (store->first) forget(store, store->first);
    ASSERT(store->stats.bytes == 0);
    pthread_mutex_destroy(&store->lock);
    alloc_put(store->alloc, store);
}

/* Lets go of what is too old, and of the last in line until there is room for so much more. */
static void make_room(struct response_store *s, size_t bytes)
{
    int64_t now = clock_now_ns(s->clock);
    struct entry *last = NULL;
    for (struct entry *e = s->first, *next; e; e = next) {
        next = e->next;
        if (e->until_ns <= now) forget(s, e);
    }
    while (s->first && s->stats.bytes + bytes > RESPONSE_STORE_BYTES_MAX) {
        for (struct entry *e = s->first; e; e = e->next) last = e;
        forget(s, last);
    }
}

static struct entry *find(struct response_store *s, const char *id)
{
    make_room(s, 0);
    struct entry *e = s->first;
    while (e && strcmp(e->id, id) != 0) e = e->next;
    return e;
}

void response_store_put(struct response_store *store, const char *id, struct buf *response, struct buf *input)
{
    struct response_store *s = store;
    struct entry *e = alloc_get(s->alloc, sizeof *e, NULL);
    if (!e || sizeof *e + response->bytes + input->bytes > RESPONSE_STORE_BYTES_MAX) {
        alloc_put(s->alloc, e);
        return;
    }
    snprintf(e->id, sizeof e->id, "%s", id);
    e->n_response = response->bytes;
    e->n_input = input->bytes;
    e->response = buf_take(response);
    e->input = buf_take(input);
    pthread_mutex_lock(&s->lock);
    make_room(s, bytes_of(e));
    e->until_ns = clock_now_ns(s->clock) + RESPONSE_STORE_SECONDS * INT64_C(1000000000);
    link_first(s, e);
    s->stats.n++;
    s->stats.bytes += bytes_of(e);
    pthread_mutex_unlock(&s->lock);
}

/* The quotation marks are no part of any text: there they would be escaped. */
static struct entry *find_by_item(struct response_store *s, const char *id)
{
    char member[NAME_BYTES + 32];
    int n = snprintf(member, sizeof member, "\"id\":\"%s\"", id);
    if (n >= (int)sizeof member) return NULL; /* none of ours is so long */
    make_room(s, 0);
    struct entry *e = s->first;
    while (e && !memmem(e->response, e->n_response, member, (size_t)n) &&
           !memmem(e->input, e->n_input, member, (size_t)n))
        e = e->next;
    return e;
}

/* Under the lock. */
static bool copy(struct response_store *s, struct entry *e, struct buf *response, struct buf *input, struct err *err)
{
    unlink_entry(e);
    link_first(s, e);
    return (!response || buf_add(response, e->response, e->n_response, err)) &&
           (!input || buf_add(input, e->input, e->n_input, err));
}

bool response_store_get(struct response_store *store, const char *id, struct buf *response, struct buf *input,
                        struct err *err)
{
    pthread_mutex_lock(&store->lock);
    struct entry *e = find(store, id);
    bool ok = e ? copy(store, e, response, input, err)
                : err_set(err, ERR_USER, "there is no stored response '%.60s'; they are kept for an hour", id);
    pthread_mutex_unlock(&store->lock);
    return ok;
}

bool response_store_get_by_item(struct response_store *store, const char *id, struct buf *response, struct buf *input,
                                struct err *err)
{
    pthread_mutex_lock(&store->lock);
    struct entry *e = find_by_item(store, id);
    bool ok = e ? copy(store, e, response, input, err)
                : err_set(err, ERR_USER, "there is no stored item '%.60s'; they are kept for an hour", id);
    pthread_mutex_unlock(&store->lock);
    return ok;
}

bool response_store_delete(struct response_store *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    struct entry *e = find(store, id);
    bool was_there = e != NULL;
    if (e) forget(store, e);
    pthread_mutex_unlock(&store->lock);
    return was_there;
}

struct response_store_stats response_store_stats(struct response_store *store)
{
    pthread_mutex_lock(&store->lock);
    struct response_store_stats stats = store->stats;
    pthread_mutex_unlock(&store->lock);
    return stats;
}
