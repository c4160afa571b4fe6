#ifndef KERN_FETCH_INT_H
#define KERN_FETCH_INT_H
/* Rows by pointer that come next, asked for while the present ones are worked on. They are read from memory once and
 * then serve many queries, during which the memory would have nothing to do; and since they may lie anywhere, the
 * processor cannot guess them. Asking changes no result. */
#include <stddef.h>

enum { FETCH_LINE = 64 / sizeof(float) };

/* Floats begin .. end-1 of rows first .. first+count-1, as far as there are. */
static inline void fetch_rows(const float *const *rows, size_t n_rows, size_t first, size_t count, size_t begin,
                              size_t end)
{
    for (size_t t = first; t < n_rows && t < first + count; t++)
        for (size_t i = begin; i < end; i += FETCH_LINE) __builtin_prefetch(rows[t] + i, 0, 2);
}

#endif
