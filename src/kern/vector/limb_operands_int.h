#ifndef KERN_LIMB_OPERANDS_INT_H
#define KERN_LIMB_OPERANDS_INT_H
/* What the vector products of split inputs are made of: their operands, and a tile of sums. */
#include "kern/limb_int.h"
#include "kern/vector/isa_int.h"
#include "kern/vector/operands_int.h"

/* A tile is OUTS outputs by up to ROWS rows of inputs. Its sums are in memory, where adding a block to one costs less
 * than what it would push out of the registers. */
enum { OUTS = 8, ROWS = 16 };

struct limb_operands {
    float *y;
    const unsigned char *w, *split;
    const float *scales;
    size_t y_stride, split_stride, row_bytes, row_scales, n_rows, n_out, n_in, group;
    bool is_grouped;
};

/* The row of an output, the last one for those beyond it: they are computed, and not stored. */
static inline const unsigned char *weights_of_output(const struct limb_operands *m, size_t o)
{
    return m->w + (o < m->n_out ? o : m->n_out - 1) * m->row_bytes;
}

static inline const float *scales_of_output(const struct limb_operands *m, size_t o)
{
    return m->scales + (o < m->n_out ? o : m->n_out - 1) * m->row_scales;
}

/* Asks for what lies `distance` behind a block of weights. Inlined early, before the compiler finds that it does
 * nothing and drops the call. */
__attribute__((always_inline)) static inline void prefetch_block(enum layout layout, const unsigned char *w,
                                                                 size_t distance)
{
    __builtin_prefetch(w + distance);
    __builtin_prefetch(w + distance + 64);
    if (layout == LAYOUT_INT4) return;
    __builtin_prefetch(w + distance + 128);
    __builtin_prefetch(w + distance + 192);
}

struct tile {
    struct lanes sums[ROWS][OUTS];
    const unsigned char *w[OUTS];
    const float *scales[OUTS];
    size_t at, distance; /* of the current block in rows of weights, and how far ahead to ask for them */
};

#endif
