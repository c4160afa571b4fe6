#ifndef BASE_ARENA_H
#define BASE_ARENA_H
/* Memory with one lifetime: many small pieces, given back all at once.
 *
 * Lifetimes in weir are boot (the model), session, request and step. Pieces are zeroed and aligned to 16 bytes.
 * Owned by one thread. arena_fini is safe twice and on a zeroed arena. */
#include "base/alloc.h"

struct arena_chunk;

struct arena {
    struct alloc *alloc;
    struct arena_chunk *chunk; /* the newest, in front of all older ones */
    uint64_t bytes;            /* handed out */
    uint64_t bytes_max;        /* ceiling given at birth */
};

void arena_init(struct arena *arena, struct alloc *alloc, uint64_t bytes_max);
void arena_fini(struct arena *arena);

void *arena_get(struct arena *arena, uint64_t bytes, struct err *err) MUST_CHECK;
void *arena_get_array(struct arena *arena, uint64_t count, uint64_t element_bytes, struct err *err) MUST_CHECK;

/* A copy of `bytes` bytes with a NUL behind them. */
char *arena_text(struct arena *arena, const char *text, size_t bytes, struct err *err) MUST_CHECK;

#endif
