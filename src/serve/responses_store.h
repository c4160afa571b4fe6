#ifndef SERVE_RESPONSES_STORE_H
#define SERVE_RESPONSES_STORE_H
/* Answers that may be asked for again: in memory only, for an hour, up to a size; the least recently used leaves first.
 *
 * An entry is two JSON texts: the response as it was sent, and the list of its input items, with those of the responses
 * before it. Any thread; locks inside. */
#include "base/buf.h"
#include "plat/clock.h"

struct response_store;

enum { RESPONSE_STORE_BYTES_MAX = 32 << 20, RESPONSE_STORE_SECONDS = 3600 };

bool response_store_new(struct response_store **store, struct alloc *alloc, struct clock clock,
                        struct err *err) MUST_CHECK;
void response_store_free(struct response_store *store); /* NULL is fine */

/* Takes the bytes of both texts. What is too large for the whole store is not kept. */
void response_store_put(struct response_store *store, const char *id, struct buf *response, struct buf *input);

/* Appends copies to the bufs (NULL: not wanted). False with ERR_USER: there is no such response. */
bool response_store_get(struct response_store *store, const char *id, struct buf *response, struct buf *input,
                        struct err *err) MUST_CHECK;

/* The same for the most recently used response that has an item of this id, in its output or its input. */
bool response_store_get_by_item(struct response_store *store, const char *id, struct buf *response, struct buf *input,
                                struct err *err) MUST_CHECK;

/* False: there was none. */
bool response_store_delete(struct response_store *store, const char *id);

struct response_store_stats {
    uint64_t n, bytes;
};
struct response_store_stats response_store_stats(struct response_store *store);

#endif
