#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H
/* The allocation seam. Everything that lives longer than a call takes its memory from a struct alloc, which counts it.
 *
 * With fail_at = k the k-th call fails: a test loops over k until a whole run succeeds, and finds every error path.
 * A zeroed struct alloc is ready to use. May be shared between threads: the counters are atomic. */
#include "base/err.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct alloc {
    uint64_t fail_at;       /* 0: never; set before first use */
    _Atomic uint64_t calls; /* allocations asked for */
    _Atomic uint64_t live;  /* allocations not yet given back */
    _Atomic uint64_t live_bytes;
};

/* Zeroed memory, aligned to 64 bytes, or NULL with ERR_NOMEM. Zero bytes give a pointer that must be given back too. */
void *alloc_get(struct alloc *alloc, uint64_t bytes, struct err *err) MUST_CHECK;
void *alloc_get_array(struct alloc *alloc, uint64_t count, uint64_t element_bytes, struct err *err) MUST_CHECK;

/* Grows or shrinks; on failure the old block stays as it was. New bytes are zeroed. */
void *alloc_resize(struct alloc *alloc, void *block, uint64_t bytes, struct err *err) MUST_CHECK;

char *alloc_text(struct alloc *alloc, const char *text, struct err *err) MUST_CHECK;

/* NULL is fine. */
void alloc_put(struct alloc *alloc, void *block);

#endif
