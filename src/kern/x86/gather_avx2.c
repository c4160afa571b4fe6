#include "kern/fetch_int.h"
#include "kern/list_int.h"
#include "kern/vector/isa_int.h"

/* The shape of gathers_avx512.c in sixteen registers of half the width: dots in tiles of 2 by 2, mixes of four outputs
 * in strips of sixteen columns. */
enum {
    DOTS_TILE = 2,
    DOTS_QUERIES = 3,
    DOTS_ROWS = 2,
    MIX_TILE = 4,
    ROWS_AT_ONCE = 12,
    BLOCK_ROWS = 128,
    FETCH_KEYS = 8
};

/* Four dot products: of two queries with one row, then with another. */
INLINE __m128 dots_2x2(const float *const q[2], const float *const rows[2], size_t dim)
{
    struct lanes sums[4] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
    const unsigned char *w[4] = {(const unsigned char *)(const void *)rows[0],
                                 (const unsigned char *)(const void *)rows[1]};
    lanes_dots(LAYOUT_F32, sums, w, q, 2, 0, dim);
    return lanes_fold_dots(sums);
}

#define EACH(M, half) M(0, 0, half) M(0, 1, half) M(1, 0, half) M(1, 1, half) M(2, 0, half) M(2, 1, half)

/* Six dot products: of each of three queries with two rows, in out[query][row]. Twelve sums, two rows and a query are
 * what sixteen registers hold, so the halves of the lanes take turns. */
INLINE void dots_3x2(float out[DOTS_QUERIES][DOTS_ROWS], const float *const q[DOTS_QUERIES],
                     const float *const rows[DOTS_ROWS], size_t dim, float scale)
{
    const float *q0 = q[0], *q1 = q[1], *q2 = q[2], *r0 = rows[0], *r1 = rows[1];
#define BEGIN(a, b, half) __m256 s##a##b##half = _mm256_setzero_ps();
    EACH(BEGIN, low)
    EACH(BEGIN, high)
#undef BEGIN
#define STEP(a, b, half) s##a##b##half = _mm256_fmadd_ps(query##a, row##b, s##a##b##half);
    size_t c = 0;
    for (; c + KERN_LANES <= dim; c += KERN_LANES) {
        {
            __m256 row0 = _mm256_loadu_ps(r0 + c), row1 = _mm256_loadu_ps(r1 + c);
            __m256 query0 = _mm256_loadu_ps(q0 + c), query1 = _mm256_loadu_ps(q1 + c), query2 = _mm256_loadu_ps(q2 + c);
            EACH(STEP, low)
        }
        {
            __m256 row0 = _mm256_loadu_ps(r0 + c + 8), row1 = _mm256_loadu_ps(r1 + c + 8);
            __m256 query0 = _mm256_loadu_ps(q0 + c + 8), query1 = _mm256_loadu_ps(q1 + c + 8);
            __m256 query2 = _mm256_loadu_ps(q2 + c + 8);
            EACH(STEP, high)
        }
    }
    if (c < dim) {
        struct lanes r[DOTS_ROWS], last[DOTS_QUERIES];
        for (size_t k = 0; k < DOTS_ROWS; k++)
            r[k] = lanes_of_last_weights(LAYOUT_F32, (const unsigned char *)(const void *)rows[k], c, dim - c);
        for (size_t k = 0; k < DOTS_QUERIES; k++) last[k] = lanes_of_last(q[k] + c, dim - c);
        {
            __m256 row0 = r[0].low, row1 = r[1].low;
            __m256 query0 = last[0].low, query1 = last[1].low, query2 = last[2].low;
            EACH(STEP, low)
        }
        {
            __m256 row0 = r[0].high, row1 = r[1].high;
            __m256 query0 = last[0].high, query1 = last[1].high, query2 = last[2].high;
            EACH(STEP, high)
        }
    }
#undef STEP
    const struct lanes first[4] = {{s00low, s00high}, {s01low, s01high}, {s10low, s10high}, {s11low, s11high}};
    const struct lanes second[4] = {{s20low, s20high}, {s21low, s21high}, {s20low, s20high}, {s21low, s21high}};
    _mm_storeu_ps(out[0], _mm_mul_ps(lanes_fold_dots(first), _mm_set1_ps(scale)));
    _mm_storel_pi((__m64 *)(void *)out[2], _mm_mul_ps(lanes_fold_dots(second), _mm_set1_ps(scale)));
}

/* Queries q, as far as n_q goes, by rows t and t + 1, if there is one. */
INLINE void dots_tile(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q, const float *const *rows,
                      size_t n_rows, size_t dim, float scale)
{
    const float *second = q + (n_q > 1) * q_stride, *third = second + (n_q > 2) * q_stride;
    const float *const queries[DOTS_QUERIES] = {q, second, third}, *const two[DOTS_ROWS] = {rows[0], rows[n_rows > 1]};
    float out[DOTS_QUERIES][DOTS_ROWS];
    dots_3x2(out, queries, two, dim, scale);
    for (size_t k = 0; k < DOTS_QUERIES && k < n_q; k++) {
        y[k * y_stride] = out[k][0];
        if (n_rows > 1) y[k * y_stride + 1] = out[k][1];
    }
}

void gather_dots_avx2(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q, const float *const *rows,
                      size_t n_rows, size_t dim, float scale)
{
    size_t step = (dim * DOTS_QUERIES + n_q - 1) / n_q; /* of the rows that come next, beside each three queries */
    for (size_t first = 0; first < n_rows; first += ROWS_AT_ONCE)
        for (size_t h = 0, part = 0; h < n_q; h += DOTS_QUERIES, part += step) {
            fetch_rows(rows, n_rows, first + ROWS_AT_ONCE, ROWS_AT_ONCE, part, part + step < dim ? part + step : dim);
            for (size_t t = first; t < n_rows && t < first + ROWS_AT_ONCE; t += DOTS_ROWS)
                dots_tile(y + h * y_stride + t, y_stride, q + h * q_stride, q_stride, n_q - h, rows + t, n_rows - t,
                          dim, scale);
        }
}

void index_scores_avx2(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                       size_t n_heads, size_t dim, float dot_scale)
{
    size_t step = (dim * DOTS_TILE + n_heads - 1) / n_heads; /* of the keys that come next, beside each two heads */
    for (size_t t = 0; t < n_keys; t += DOTS_TILE) {
        size_t n = n_keys - t < DOTS_TILE ? n_keys - t : DOTS_TILE;
        const float *two_keys[2] = {keys[t], keys[t + n - 1]};
        __m128 scores = _mm_setzero_ps(); /* of the keys in 0 and 2 */
        for (size_t g = 0, part = 0; g < n_heads; g += DOTS_TILE, part += step) {
            bool both = n_heads - g > 1;
            const float *two_q[2] = {q + g * dim, q + (g + both) * dim};
            fetch_rows(keys, n_keys, t + FETCH_KEYS, DOTS_TILE, part, part + step < dim ? part + step : dim);
            __m128 match = _mm_mul_ps(dots_2x2(two_q, two_keys, dim), _mm_set1_ps(dot_scale));
            match = _mm_max_ps(_mm_setzero_ps(), match); /* of 0 and NaN this gives NaN: the second */
            scores = _mm_fmadd_ps(_mm_set1_ps(w[g]), match, scores);
            if (both) scores = _mm_fmadd_ps(_mm_set1_ps(w[g + 1]), _mm_movehdup_ps(match), scores);
        }
        y[t] = _mm_cvtss_f32(scores);
        if (n > 1) y[t + 1] = _mm_cvtss_f32(_mm_movehl_ps(scores, scores));
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
        s0 = lanes_fma1(row, _mm256_set1_ps(p0[t]), s0);
        s1 = lanes_fma1(row, _mm256_set1_ps(p1[t]), s1);
        s2 = lanes_fma1(row, _mm256_set1_ps(p2[t]), s2);
        s3 = lanes_fma1(row, _mm256_set1_ps(p3[t]), s3);
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

void gather_mixes_avx2(float *y, size_t y_stride, const float *p, size_t p_stride, size_t n_y, const float *const *rows,
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
