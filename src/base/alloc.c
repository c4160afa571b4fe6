#include "base/alloc.h"

#include "base/assert.h"
#include "base/checked.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* In front of every block, one cache line that remembers its size. */
#define ALIGNMENT 64
struct header {
    uint64_t bytes;
    uint64_t guard;
};
#define GUARD 0x5745495257454952u
static_assert(sizeof(struct header) <= ALIGNMENT, "the header fits in front of the block");

static struct header *header_of(void *block)
{
    return (struct header *)((char *)block - ALIGNMENT);
}

void *alloc_get(struct alloc *alloc, uint64_t bytes, struct err *err)
{
    uint64_t call = atomic_fetch_add(&alloc->calls, 1) + 1;
    uint64_t total;
    char *base = NULL;
    if (call != alloc->fail_at && checked_add(&total, bytes, 2 * ALIGNMENT) && total <= SIZE_MAX / 2)
        base = aligned_alloc(ALIGNMENT, round_down(total, ALIGNMENT));
    if (!base) {
        err_set(err, ERR_NOMEM, "out of memory: could not get %" PRIu64 " bytes", bytes);
        return NULL;
    }
    *(struct header *)base = (struct header){.bytes = bytes, .guard = GUARD};
    atomic_fetch_add(&alloc->live, 1);
    atomic_fetch_add(&alloc->live_bytes, bytes);
    return memset(base + ALIGNMENT, 0, bytes);
}

void *alloc_get_array(struct alloc *alloc, uint64_t count, uint64_t element_bytes, struct err *err)
{
    uint64_t bytes;
    if (!checked_mul(&bytes, count, element_bytes)) bytes = UINT64_MAX; /* refused below, and counted */
    return alloc_get(alloc, bytes, err);
}

void *alloc_resize(struct alloc *alloc, void *block, uint64_t bytes, struct err *err)
{
    void *fresh = alloc_get(alloc, bytes, err);
    if (!fresh || !block) return fresh;
    uint64_t old = header_of(block)->bytes;
    memcpy(fresh, block, old < bytes ? old : bytes);
    alloc_put(alloc, block);
    return fresh;
}

char *alloc_text(struct alloc *alloc, const char *text, struct err *err)
{
    size_t n = strlen(text) + 1;
    char *copy = alloc_get(alloc, n, err);
    return copy ? memcpy(copy, text, n) : NULL;
}

void alloc_put(struct alloc *alloc, void *block)
{
    if (!block) return;
    struct header *header = header_of(block);
    ASSERT(header->guard == GUARD); /* given back twice, or never ours */
    ASSERT(atomic_load(&alloc->live) > 0);
    header->guard = 0;
    atomic_fetch_sub(&alloc->live, 1);
    atomic_fetch_sub(&alloc->live_bytes, header->bytes);
    free(header);
}
