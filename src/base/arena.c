#include "base/arena.h"

#include "base/checked.h"
#include <inttypes.h>
#include <string.h>

#define CHUNK_BYTES (64u << 10)
#define PIECE_ALIGNMENT 16

struct arena_chunk {
    struct arena_chunk *older;
    uint64_t used, size;
    _Alignas(PIECE_ALIGNMENT) char data[];
};

void arena_init(struct arena *arena, struct alloc *alloc, uint64_t bytes_max)
{
    *arena = (struct arena){.alloc = alloc, .bytes_max = bytes_max};
}

void arena_fini(struct arena *arena)
{
    while (arena->chunk) {
        struct arena_chunk *chunk = arena->chunk;
        arena->chunk = chunk->older;
        alloc_put(arena->alloc, chunk);
    }
    arena->bytes = 0;
}

static bool add_chunk(struct arena *arena, uint64_t bytes, struct err *err)
{
    uint64_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct arena_chunk *chunk = alloc_get(arena->alloc, sizeof *chunk + size, err);
    if (!chunk) return false;
    chunk->size = size;
    chunk->older = arena->chunk;
    arena->chunk = chunk;
    return true;
}

void *arena_get(struct arena *arena, uint64_t bytes, struct err *err)
{
    if (bytes > arena->bytes_max - arena->bytes) {
        err_set(err, ERR_NOMEM, "%" PRIu64 " bytes more would pass this arena's ceiling of %" PRIu64 " bytes", bytes,
                arena->bytes_max);
        return NULL;
    }
    uint64_t padded = round_up(bytes, PIECE_ALIGNMENT);
    if (!arena->chunk || arena->chunk->size - arena->chunk->used < padded)
        if (!add_chunk(arena, padded, err)) return NULL;
    void *piece = arena->chunk->data + arena->chunk->used;
    arena->chunk->used += padded;
    arena->bytes += bytes;
    return piece;
}

void *arena_get_array(struct arena *arena, uint64_t count, uint64_t element_bytes, struct err *err)
{
    uint64_t bytes;
    if (!checked_mul(&bytes, count, element_bytes)) bytes = UINT64_MAX;
    return arena_get(arena, bytes, err);
}

char *arena_text(struct arena *arena, const char *text, size_t bytes, struct err *err)
{
    char *copy = arena_get(arena, (uint64_t)bytes + 1, err);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
