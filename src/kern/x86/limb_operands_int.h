#ifndef KERN_LIMB_OPERANDS_INT_H
#define KERN_LIMB_OPERANDS_INT_H
/* What the vector products of split inputs share: their operands, and the public functions made of one body. */
#include "kern/limb_int.h"
#include "kern/list_int.h"
#include "kern/x86/matmul_int.h"

struct limb_operands {
    float *y;
    const unsigned char *w, *split;
    const float *scales;
    size_t y_stride, split_stride, row_bytes, row_scales, n_out, n_in, group;
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

/* One function of kern.h by limb_matmul(limbs, operands, n_rows), which is inlined and sees the limbs, and a group of
 * 0, as constants. */
#define DEFINE_LIMB_MATMUL(name, isa, layout, n_limbs, grouped)                                                     \
    void matmul_limb##n_limbs##_##name##_##isa(float *y, size_t y_stride, const void *w, const float *scales,       \
                                               const void *split, size_t split_stride, size_t n_rows, size_t n_out, \
                                               size_t n_in, size_t group)                                           \
    {                                                                                                               \
        struct limb_operands m = {.y = y, .w = w, .split = split, .scales = scales, .split_stride = split_stride};  \
        m.y_stride = y_stride;                                                                                      \
        m.n_out = n_out;                                                                                            \
        m.n_in = n_in;                                                                                              \
        m.group = group;                                                                                            \
        m.is_grouped = grouped;                                                                                     \
        m.row_bytes = layout_row_bytes(layout, n_in);                                                               \
        m.row_scales = layout_row_scales(n_in, (grouped) ? group : 0);                                              \
        limb_matmul((struct limbs){layout, n_limbs}, m, n_rows);                                                    \
    }

#define DEFINE_LIMB_MATMULS(isa)                                \
    DEFINE_LIMB_MATMUL(int4, isa, LAYOUT_INT4, 3, false)        \
    DEFINE_LIMB_MATMUL(int4_grouped, isa, LAYOUT_INT4, 3, true) \
    DEFINE_LIMB_MATMUL(int4, isa, LAYOUT_INT4, 1, false)        \
    DEFINE_LIMB_MATMUL(int4_grouped, isa, LAYOUT_INT4, 1, true) \
    DEFINE_LIMB_MATMUL(int8, isa, LAYOUT_INT8, 1, false)

#endif
