#include "kern/list_int.h"
#include "kern/x86/avx512_int.h"

/* The shape of transposed_avx2.c. Elements of y stand in register order between their load and their store. */

/* Columns begin .. end-1 of `n` rows (4 or 1) with their coefficients. */
INLINE void add_rows(enum layout layout, float *y, const unsigned char *row, size_t row_bytes, size_t n, const float *c,
                     size_t begin, size_t end)
{
    const unsigned char *r1 = row + (n > 1) * row_bytes, *r2 = r1 + (n > 1) * row_bytes, *r3 = r2 + (n > 1) * row_bytes;
    __m512 c0 = _mm512_set1_ps(c[0]), c1 = c0, c2 = c0, c3 = c0;
    if (n > 1) c1 = _mm512_set1_ps(c[1]), c2 = _mm512_set1_ps(c[2]), c3 = _mm512_set1_ps(c[3]);
    size_t i = begin;
    for (; i + KERN_LANES <= end; i += KERN_LANES) {
        __m512 sum = inputs_at(layout, y + i, KERN_LANES);
        sum = _mm512_fmadd_ps(weights_at(layout, row, i, KERN_LANES), c0, sum);
        if (n > 1) {
            sum = _mm512_fmadd_ps(weights_at(layout, r1, i, KERN_LANES), c1, sum);
            sum = _mm512_fmadd_ps(weights_at(layout, r2, i, KERN_LANES), c2, sum);
            sum = _mm512_fmadd_ps(weights_at(layout, r3, i, KERN_LANES), c3, sum);
        }
        _mm512_storeu_ps(y + i, to_plain_order(layout, sum));
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

#define DEFINE(name, layout, columns_per_scale)                                                                        \
    void matmul_transposed_##name##_avx512(float *y, const void *w, const float *scales, const float *c, size_t n_out, \
                                           size_t n_in, size_t group)                                                  \
    {                                                                                                                  \
        (void)group;                                                                                                   \
        transposed(layout, y, w, scales, c, n_out, n_in, columns_per_scale);                                           \
    }

DEFINE(f32, LAYOUT_F32, 0)
DEFINE(int8, LAYOUT_INT8, 0)
DEFINE(int4, LAYOUT_INT4, 0)
DEFINE(int4_grouped, LAYOUT_INT4, group)
DEFINE(int2, LAYOUT_INT2, 0)
DEFINE(int3, LAYOUT_INT3, INT3_GROUP)
