#ifndef KERN_MATMUL_INT_H
#define KERN_MATMUL_INT_H
/* What the vector matrix products share: their operands in one struct, and the public functions made of one body. */
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

/* What a folded sum is multiplied with. 1 changes no bit: there is no scale, or it is in the sum already. */
static inline float row_scale(enum layout layout, const struct operands *m, size_t o)
{
    return layout == LAYOUT_F32 || m->group ? 1 : m->scales[o];
}

/* One function of kern.h by matmul(layout, operands, n_rows), which is inlined and sees the layout as a constant. */
#define DEFINE_MATMUL(name, isa, layout, columns_per_scale)                                                         \
    void matmul_##name##_##isa(float *y, size_t y_stride, const void *w, const float *scales, const float *x,       \
                               size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)             \
    {                                                                                                               \
        struct operands m = {.y = y, .w = w, .scales = scales, .x = x, .y_stride = y_stride, .x_stride = x_stride}; \
        (void)group;                                                                                                \
        m.n_out = n_out;                                                                                            \
        m.n_in = n_in;                                                                                              \
        m.group = columns_per_scale;                                                                                \
        m.row_bytes = layout_row_bytes(layout, n_in);                                                               \
        m.row_scales = layout_row_scales(n_in, m.group);                                                            \
        matmul(layout, m, n_rows);                                                                                  \
    }

#define DEFINE_MATMULS(isa)                              \
    DEFINE_MATMUL(f32, isa, LAYOUT_F32, 0)               \
    DEFINE_MATMUL(int8, isa, LAYOUT_INT8, 0)             \
    DEFINE_MATMUL(int4, isa, LAYOUT_INT4, 0)             \
    DEFINE_MATMUL(int4_grouped, isa, LAYOUT_INT4, group) \
    DEFINE_MATMUL(int2, isa, LAYOUT_INT2, 0)             \
    DEFINE_MATMUL(int3, isa, LAYOUT_INT3, INT3_GROUP)

#endif
