#include "kern/vector/turned_int.h"

/* Mixes of four outputs in strips of sixteen columns. */
enum { MIX_TILE = 4, BLOCK_ROWS = 128 };

DEFINE_TURNED(neon)

struct mixes {
    float *y;
    const float *p;
    size_t y_stride, p_stride, n_y;
};

/* Outputs h .. h+3, sixteen columns from `column` on, rows begin .. end-1. */
static void mix_strip(const struct mixes *m, size_t h, const float *const *rows, size_t begin, size_t end,
                      size_t column)
{
    size_t n = m->n_y - h < MIX_TILE ? m->n_y - h : MIX_TILE;
    float *y0 = m->y + h * m->y_stride + column, *y1 = y0 + (n > 1) * m->y_stride, *y2 = y1 + (n > 2) * m->y_stride;
    float *y3 = y2 + (n > 3) * m->y_stride;
    const float *p0 = m->p + h * m->p_stride, *p1 = p0 + (n > 1) * m->p_stride, *p2 = p1 + (n > 2) * m->p_stride;
    const float *p3 = p2 + (n > 3) * m->p_stride;
    struct lanes s0 = lanes_load(y0), s1 = lanes_load(y1), s2 = lanes_load(y2), s3 = lanes_load(y3);
    for (size_t t = begin; t < end; t++) {
        struct lanes row = lanes_load(rows[t] + column);
        s0 = lanes_fma1(row, wide_set1(p0[t]), s0);
        s1 = lanes_fma1(row, wide_set1(p1[t]), s1);
        s2 = lanes_fma1(row, wide_set1(p2[t]), s2);
        s3 = lanes_fma1(row, wide_set1(p3[t]), s3);
    }
    lanes_store(y0, s0);
    if (n > 1) lanes_store(y1, s1);
    if (n > 2) lanes_store(y2, s2);
    if (n > 3) lanes_store(y3, s3);
}

static void mix_element(float *y, const float *p, const float *const *rows, size_t begin, size_t end, size_t column)
{
    float sum = *y;
    for (size_t t = begin; t < end; t++) sum = fmaf(p[t], rows[t][column], sum);
    *y = sum;
}

void gather_mixes_neon(float *y, size_t y_stride, const float *p, size_t p_stride, size_t n_y, const float *const *rows,
                       size_t n_rows, size_t dim)
{
    const struct mixes m = {.y = y, .p = p, .y_stride = y_stride, .p_stride = p_stride, .n_y = n_y};
    for (size_t begin = 0; begin < n_rows; begin += BLOCK_ROWS) {
        size_t end = n_rows - begin < BLOCK_ROWS ? n_rows : begin + BLOCK_ROWS, column = 0;
        for (; column + KERN_LANES <= dim; column += KERN_LANES)
            for (size_t h = 0; h < n_y; h += MIX_TILE) mix_strip(&m, h, rows, begin, end, column);
        for (; column < dim; column++)
            for (size_t h = 0; h < n_y; h++)
                mix_element(y + h * y_stride + column, p + h * p_stride, rows, begin, end, column);
    }
}
