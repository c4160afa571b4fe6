#include "kern/vector/isa_int.h"
#include "kern/list_int.h"

/* Many queries against rows by pointer: dots in tiles of 2 by 2, mixes of four outputs in strips of sixteen columns. */

enum { DOTS_TILE = 2, MIX_TILE = 4, ROWS_AT_ONCE = 4, BLOCK_ROWS = 128 };

static void dots_tile(float *y, size_t y_stride, const float *const q[2], size_t n_q, const float *const rows[2],
                      size_t n_rows, size_t dim, float scale)
{
    struct lanes sums[DOTS] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
    const unsigned char *w[DOTS] = {(const unsigned char *)(const void *)rows[0],
                                    (const unsigned char *)(const void *)rows[1]};
    float values[DOTS]; /* rows[0] by both queries, then rows[1] */
    lanes_dots(LAYOUT_F32, sums, w, q, 2, 0, dim);
    dots_store(values, dots_mul(lanes_fold_dots(sums), dots_set1(scale)));
    for (size_t h = 0; h < n_q; h++)
        for (size_t t = 0; t < n_rows; t++) y[h * y_stride + t] = values[2 * t + h];
}

void gather_dots_neon(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q, const float *const *rows,
                      size_t n_rows, size_t dim, float scale)
{
    for (size_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        size_t end = n_rows - first < ROWS_AT_ONCE ? n_rows : first + ROWS_AT_ONCE;
        for (size_t h = 0; h < n_q; h += DOTS_TILE) {
            size_t queries = n_q - h < DOTS_TILE ? n_q - h : DOTS_TILE;
            const float *two_q[2] = {q + h * q_stride, q + (h + queries - 1) * q_stride};
            for (size_t t = first; t < end; t += DOTS_TILE) {
                size_t n = end - t < DOTS_TILE ? end - t : DOTS_TILE;
                const float *two_rows[2] = {rows[t], rows[t + n - 1]};
                dots_tile(y + h * y_stride + t, y_stride, two_q, queries, two_rows, n, dim, scale);
            }
        }
    }
}

/* DOTS rows beginning at t; where fewer are left the last is repeated, and its result not stored. */
INLINE void rows_at(const float *const *rows, size_t t, size_t n_rows, const unsigned char *some[DOTS])
{
    for (size_t k = 0; k < DOTS; k++)
        some[k] = (const unsigned char *)(const void *)rows[t + k < n_rows ? t + k : n_rows - 1];
}

INLINE dots dots_of_query(const unsigned char *const rows[DOTS], const float *q, size_t dim)
{
    struct lanes sums[DOTS] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
    const float *const inputs[2] = {q, q};
    lanes_dots(LAYOUT_F32, sums, rows, inputs, 1, 0, dim);
    return lanes_fold_dots(sums);
}

void index_scores_neon(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                       size_t n_heads, size_t dim, float dot_scale)
{
    for (size_t t = 0; t < n_keys; t += DOTS) {
        const unsigned char *rows[DOTS];
        float values[DOTS];
        dots scores = dots_set1(0);
        rows_at(keys, t, n_keys, rows);
        for (size_t g = 0; g < n_heads; g++) {
            dots match = dots_mul(dots_of_query(rows, q + g * dim, dim), dots_set1(dot_scale));
            scores = dots_fma(dots_set1(w[g]), dots_not_below_zero(match), scores);
        }
        dots_store(values, scores);
        memcpy(y + t, values, (n_keys - t < DOTS ? n_keys - t : DOTS) * sizeof *y);
    }
}

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
