#ifndef GRAM_GROW_H
#define GRAM_GROW_H
/* Arrays that grow up to a ceiling. */
#include "base/alloc.h"

struct grow {
    struct alloc *alloc;
    const char *what; /* for the message when the ceiling is reached */
    uint32_t max;
};

/* Makes room for `need` elements of `element_bytes` in *block, which holds *room. `block` is the address of the pointer
 * to the array. Past the ceiling: ERR_USER with the code unsupported_schema. On failure the array stays as it was. */
bool grow_room(const struct grow *grow, void *block, uint32_t *room, uint64_t need, uint32_t element_bytes,
               struct err *err) MUST_CHECK;

#endif
