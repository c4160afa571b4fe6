#include "kern/lanes_int.h"
#include "kern/layout_int.h"
#include "kern/list_int.h"

#include <math.h>

/* The definition of every operation on a weight matrix: plain loops in the canonical order of kern.h. */

static float dot_row(enum layout layout, const unsigned char *row, const float *x, size_t n_in)
{
    float lanes[KERN_LANES] = {0};
    for (size_t i = 0; i < n_in; i++)
        lanes[i % KERN_LANES] = fmaf(layout_value(layout, row, i), x[i], lanes[i % KERN_LANES]);
    return fold_lanes(lanes);
}

static float dot_row_grouped(enum layout layout, const unsigned char *row, const float *scales, const float *x,
                             size_t n_in, size_t group)
{
    float total[KERN_LANES] = {0};
    for (size_t begin = 0; begin < n_in; begin += group) {
        float partial[KERN_LANES] = {0};
        for (size_t i = begin; i < n_in && i < begin + group; i++)
            partial[i % KERN_LANES] = fmaf(layout_value(layout, row, i), x[i], partial[i % KERN_LANES]);
        for (int j = 0; j < KERN_LANES; j++) total[j] = fmaf(partial[j], scales[begin / group], total[j]);
    }
    return fold_lanes(total);
}

static void matmul(enum layout layout, float *y, size_t y_stride, const void *w, const float *scales, const float *x,
                   size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)
{
    size_t row_bytes = layout_row_bytes(layout, n_in);
    size_t row_scales = layout_row_scales(n_in, group);
    for (size_t r = 0; r < n_rows; r++) {
        const float *input = x + r * x_stride;
        for (size_t o = 0; o < n_out; o++) {
            const unsigned char *row = (const unsigned char *)w + o * row_bytes;
            float *out = &y[r * y_stride + o];
            if (group)
                *out = dot_row_grouped(layout, row, scales + o * row_scales, input, n_in, group);
            else if (layout == LAYOUT_F32)
                *out = dot_row(layout, row, input, n_in);
            else
                *out = dot_row(layout, row, input, n_in) * scales[o];
        }
    }
}

static void transposed(enum layout layout, float *y, const void *w, const float *scales, const float *c, size_t n_out,
                       size_t n_in, size_t group)
{
    size_t row_bytes = layout_row_bytes(layout, n_in);
    size_t row_scales = layout_row_scales(n_in, group);
    for (size_t i = 0; i < n_in; i++) {
        float sum = 0;
        for (size_t o = 0; o < n_out; o++) {
            const unsigned char *row = (const unsigned char *)w + o * row_bytes;
            float coefficient = c[o];
            if (layout != LAYOUT_F32) coefficient *= scales[o * row_scales + (group ? i / group : 0)];
            sum = fmaf(coefficient, layout_value(layout, row, i), sum);
        }
        y[i] = sum;
    }
}

static void unpack(enum layout layout, float *y, const void *w, const float *scales, size_t n_in, size_t group)
{
    for (size_t i = 0; i < n_in; i++) {
        y[i] = layout_value(layout, w, i);
        if (layout != LAYOUT_F32) y[i] *= scales[group ? i / group : 0];
    }
}

/* One row per name: its layout, and the columns per scale, which is the caller's, none, or fixed by the layout. */
#define DEFINE(name, layout, columns_per_scale)                                                                     \
    void matmul_##name##_ref(float *y, size_t y_stride, const void *w, const float *scales, const float *x,         \
                             size_t x_stride, size_t n_rows, size_t n_out, size_t n_in, size_t group)               \
    {                                                                                                               \
        (void)group;                                                                                                \
        matmul(layout, y, y_stride, w, scales, x, x_stride, n_rows, n_out, n_in, columns_per_scale);                \
    }                                                                                                               \
    void matmul_transposed_##name##_ref(float *y, const void *w, const float *scales, const float *c, size_t n_out, \
                                        size_t n_in, size_t group)                                                  \
    {                                                                                                               \
        (void)group;                                                                                                \
        transposed(layout, y, w, scales, c, n_out, n_in, columns_per_scale);                                        \
    }                                                                                                               \
    void unpack_##name##_ref(float *y, const void *w, const float *scales, size_t n_in, size_t group)               \
    {                                                                                                               \
        (void)group;                                                                                                \
        unpack(layout, y, w, scales, n_in, columns_per_scale);                                                      \
    }

DEFINE(f32, LAYOUT_F32, 0)
DEFINE(int8, LAYOUT_INT8, 0)
DEFINE(int4, LAYOUT_INT4, 0)
DEFINE(int4_grouped, LAYOUT_INT4, group)
DEFINE(int2, LAYOUT_INT2, 0)
DEFINE(int3, LAYOUT_INT3, INT3_GROUP)
