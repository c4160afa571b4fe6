#ifndef KERN_OPERANDS_INT_H
#define KERN_OPERANDS_INT_H
/* The operands of a vector matrix product in one struct, and what is ahead of them in memory. */
#include "kern/layout_int.h"
#include "kern/list_int.h"

struct operands {
    float *y;
    const unsigned char *w;
    const float *scales, *x;
    size_t y_stride, x_stride, row_bytes, row_scales, n_out, n_in, group;
};

/* The row of an output, the last one for those beyond it: they are computed, and not stored. */
static inline size_t clamp_output(const struct operands *m, size_t o)
{
    return o < m->n_out ? o : m->n_out - 1;
}

/* How far behind a byte of weights the one lies that is worth asking for when it is read: the same column of the next
 * outputs, or of rows so wide that this would leave the cache before it is used, a little further on. */
static inline size_t prefetch_distance(size_t row_bytes, size_t outs)
{
    return outs * row_bytes <= 1 << 16 ? outs * row_bytes : 2048;
}

/* Asks for what lies `distance` behind columns begin .. end-1 of n rows of weights. Inlined early, before the compiler
 * finds that it does nothing and drops the call. */
__attribute__((always_inline)) static inline void prefetch_columns(enum layout layout, const unsigned char *const *w,
                                                                   size_t n, size_t begin, size_t end, size_t distance)
{
    size_t first = layout_row_bytes(layout, begin) + distance, last = layout_row_bytes(layout, end) + distance;
    for (size_t at = first; at < last; at += 64)
        for (size_t k = 0; k < n; k++) __builtin_prefetch(w[k] + at);
}

/* Columns that are asked for at a time: a cache line of each row. */
static inline size_t stream_columns(enum layout layout)
{
    return 64 * 64 / layout_row_bytes(layout, 64);
}

/* What a folded sum is multiplied with. 1 changes no bit: there is no scale, or it is in the sum already. */
static inline float row_scale(enum layout layout, const struct operands *m, size_t o)
{
    return layout == LAYOUT_F32 || m->group ? 1 : m->scales[o];
}

#endif
