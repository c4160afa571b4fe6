#ifndef KERN_TRANSPOSED_INT_H
#define KERN_TRANSPOSED_INT_H
/* Sums over the rows of a weight matrix, and rows unpacked. Element by element there is nothing to fold: y stays in the
 * first cache level while rows of weights stream by, four at a time, each element taking them in ascending order. */
#include "kern/list_int.h"
#include "kern/vector/isa_int.h"

/* Columns begin .. end-1 of `n` rows (4 or 1) with their coefficients. */
INLINE void add_rows(enum layout layout, float *y, const unsigned char *row, size_t row_bytes, size_t n, const float *c,
                     size_t begin, size_t end)
{
    const unsigned char *r1 = row + (n > 1) * row_bytes, *r2 = r1 + (n > 1) * row_bytes, *r3 = r2 + (n > 1) * row_bytes;
    wide c0 = wide_set1(c[0]), c1 = c0, c2 = c0, c3 = c0;
    if (n > 1) c1 = wide_set1(c[1]), c2 = wide_set1(c[2]), c3 = wide_set1(c[3]);
    size_t i = begin;
    for (; i + KERN_LANES <= end; i += KERN_LANES) {
        struct lanes sum = lanes_ordered(layout, lanes_load(y + i));
        sum = lanes_fma1(lanes_of_weights(layout, row, i), c0, sum);
        if (n > 1) {
            sum = lanes_fma1(lanes_of_weights(layout, r1, i), c1, sum);
            sum = lanes_fma1(lanes_of_weights(layout, r2, i), c2, sum);
            sum = lanes_fma1(lanes_of_weights(layout, r3, i), c3, sum);
        }
        lanes_store(y + i, lanes_plain(layout, sum));
    }
    for (; i < end; i++)
        for (size_t k = 0; k < n; k++) y[i] = fmaf(c[k], layout_value(layout, row + k * row_bytes, i), y[i]);
}

INLINE void transposed(enum layout layout, float *y, const void *w, const float *scales, const float *c, size_t n_out,
                       size_t n_in, size_t group)
{
    size_t row_bytes = layout_row_bytes(layout, n_in), row_scales = layout_row_scales(n_in, group);
    size_t step = group ? group : n_in;
    memset(y, 0, n_in * sizeof *y);
    for (size_t o = 0; o < n_out;) {
        size_t n = n_out - o >= 4 ? 4 : 1;
        const unsigned char *row = (const unsigned char *)w + o * row_bytes;
        for (size_t g = 0; g * step < n_in; g++) {
            float scaled[4];
            for (size_t k = 0; k < n; k++)
                scaled[k] = layout == LAYOUT_F32 ? c[o + k] : c[o + k] * scales[(o + k) * row_scales + g];
            size_t end = (g + 1) * step < n_in ? (g + 1) * step : n_in;
            if (n == 4)
                add_rows(layout, y, row, row_bytes, 4, scaled, g * step, end);
            else
                add_rows(layout, y, row, row_bytes, 1, scaled, g * step, end);
        }
        o += n;
    }
}

INLINE void unpack(enum layout layout, float *y, const void *w, const float *scales, size_t n_in, size_t group)
{
    size_t step = group ? group : n_in;
    for (size_t g = 0; g * step < n_in; g++) {
        size_t i = g * step, end = (g + 1) * step < n_in ? (g + 1) * step : n_in;
        float scale = scales[g];
        for (; i + KERN_LANES <= end; i += KERN_LANES) {
            struct lanes values = lanes_mul(lanes_of_weights(layout, w, i), lanes_set1(scale));
            lanes_store(y + i, lanes_plain(layout, values));
        }
        for (; i < end; i++) y[i] = layout_value(layout, w, i) * scale;
    }
}

#define DEFINE_TRANSPOSED(name, isa, layout, columns_per_scale)                                                       \
    void matmul_transposed_##name##_##isa(float *y, const void *w, const float *scales, const float *c, size_t n_out, \
                                          size_t n_in, size_t group)                                                  \
    {                                                                                                                 \
        (void)group;                                                                                                  \
        transposed(layout, y, w, scales, c, n_out, n_in, columns_per_scale);                                          \
    }

#define DEFINE_TRANSPOSEDS(isa)                              \
    DEFINE_TRANSPOSED(f32, isa, LAYOUT_F32, 0)               \
    DEFINE_TRANSPOSED(int8, isa, LAYOUT_INT8, 0)             \
    DEFINE_TRANSPOSED(int4, isa, LAYOUT_INT4, 0)             \
    DEFINE_TRANSPOSED(int4_grouped, isa, LAYOUT_INT4, group) \
    DEFINE_TRANSPOSED(int2, isa, LAYOUT_INT2, 0)             \
    DEFINE_TRANSPOSED(int3, isa, LAYOUT_INT3, INT3_GROUP)

#define DEFINE_UNPACK(name, isa, layout, columns_per_scale)                                             \
    void unpack_##name##_##isa(float *y, const void *w, const float *scales, size_t n_in, size_t group) \
    {                                                                                                   \
        (void)group;                                                                                    \
        unpack(layout, y, w, scales, n_in, columns_per_scale);                                          \
    }

#define DEFINE_UNPACKS(isa)                                                                        \
    void unpack_f32_##isa(float *y, const void *w, const float *scales, size_t n_in, size_t group) \
    {                                                                                              \
        (void)scales, (void)group;                                                                 \
        memcpy(y, w, n_in * sizeof *y);                                                            \
    }                                                                                              \
    DEFINE_UNPACK(int8, isa, LAYOUT_INT8, 0)                                                       \
    DEFINE_UNPACK(int4, isa, LAYOUT_INT4, 0)                                                       \
    DEFINE_UNPACK(int4_grouped, isa, LAYOUT_INT4, group)                                           \
    DEFINE_UNPACK(int2, isa, LAYOUT_INT2, 0)                                                       \
    DEFINE_UNPACK(int3, isa, LAYOUT_INT3, INT3_GROUP)

#endif
