#ifndef PLAT_PAGES_H
#define PLAT_PAGES_H
/* Large blocks of whole pages, straight from the system and counted by a struct alloc like everything else.
 *
 * Aligned for huge pages, which are asked for. Pages cost memory from the first touch on; released pages cost nothing
 * until they are touched again, and are zero then. */
#include "base/alloc.h"

void *pages_get(struct alloc *alloc, uint64_t bytes, struct err *err) MUST_CHECK;
void pages_put(struct alloc *alloc, void *pages, uint64_t bytes); /* NULL is fine; bytes as given to pages_get */

/* Gives the memory of all pages that lie wholly inside back, and keeps the addresses. */
void pages_release(void *at, uint64_t bytes);

#endif
