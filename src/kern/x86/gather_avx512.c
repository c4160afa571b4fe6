#include "kern/list_int.h"
#include "kern/x86/avx512_int.h"

/* Many queries against many rows by pointer. A tile of 4 by 4 results shares its eight operands, so the multiply-adds
 * and not the loads set the pace. */
enum {
    TILE = 4,
    ROWS_AT_ONCE = 2 * TILE, /* with four queries they fit the first cache level: a query is fetched once for eight */
    BLOCK_ROWS = 128,        /* rows whose strip of columns stays in the first cache level for all outputs */
    STRIP = 4 * KERN_LANES,
};

#define EACH_COLUMN(M, a) M(a, 0) M(a, 1) M(a, 2) M(a, 3)
#define EACH(M) EACH_COLUMN(M, 0) EACH_COLUMN(M, 1) EACH_COLUMN(M, 2) EACH_COLUMN(M, 3)

/* The dot products of four queries (q, q_stride apart; those from n_q on are the last again) and four rows: by query,
 * then by row, in low[0..3], low[4..7], high[0..3], high[4..7]. */
INLINE void dots_4x4(__m256 *low, __m256 *high, const float *q, size_t q_stride, size_t n_q, const float *const rows[4],
                     size_t dim)
{
    const float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    const float *q0 = q, *q1 = q0 + (n_q > 1) * q_stride, *q2 = q1 + (n_q > 2) * q_stride;
    const float *q3 = q2 + (n_q > 3) * q_stride;
#define BEGIN(a, b) __m512 s##a##b = _mm512_setzero_ps();
    EACH(BEGIN)
#undef BEGIN
#define STEP(a, b) s##a##b = _mm512_fmadd_ps(query##a, row##b, s##a##b);
    size_t c = 0;
    for (; c + KERN_LANES <= dim; c += KERN_LANES) {
        __m512 row0 = _mm512_loadu_ps(r0 + c), row1 = _mm512_loadu_ps(r1 + c);
        __m512 row2 = _mm512_loadu_ps(r2 + c), row3 = _mm512_loadu_ps(r3 + c);
        __m512 query0 = _mm512_loadu_ps(q0 + c), query1 = _mm512_loadu_ps(q1 + c);
        __m512 query2 = _mm512_loadu_ps(q2 + c), query3 = _mm512_loadu_ps(q3 + c);
        EACH(STEP)
    }
    if (c < dim) { /* lanes beyond the end: 0 times -0, which changes no sum */
        __mmask16 mask = (__mmask16)((1u << (dim - c)) - 1);
        __m512 minus = _mm512_set1_ps(-0.0f);
        __m512 row0 = _mm512_maskz_loadu_ps(mask, r0 + c), row1 = _mm512_maskz_loadu_ps(mask, r1 + c);
        __m512 row2 = _mm512_maskz_loadu_ps(mask, r2 + c), row3 = _mm512_maskz_loadu_ps(mask, r3 + c);
        __m512 query0 = _mm512_mask_loadu_ps(minus, mask, q0 + c), query1 = _mm512_mask_loadu_ps(minus, mask, q1 + c);
        __m512 query2 = _mm512_mask_loadu_ps(minus, mask, q2 + c), query3 = _mm512_mask_loadu_ps(minus, mask, q3 + c);
        EACH(STEP)
    }
#undef STEP
    __m512 first[8] = {s00, s01, s02, s03, s10, s11, s12, s13}, second[8] = {s20, s21, s22, s23, s30, s31, s32, s33};
    *low = fold_eight(first);
    *high = fold_eight(second);
}

/* The first `count` of four. Through memory where they are fewer: a masked store of half a register may be compiled
 * into an instruction that touches what the mask leaves out. */
INLINE void store_four(float *y, __m128 values, size_t count)
{
    float four[TILE];
    if (count >= TILE) {
        _mm_storeu_ps(y, values);
        return;
    }
    _mm_storeu_ps(four, values);
    memcpy(y, four, count * sizeof *y);
}

/* Rows t .. t+3; those from n_rows on are the last again. */
INLINE void rows_at(const float *four[4], const float *const *rows, size_t t, size_t n_rows)
{
    for (size_t k = 0; k < TILE; k++) four[k] = rows[t + k < n_rows ? t + k : n_rows - 1];
}

struct dots {
    float *y;
    const float *q;
    size_t y_stride, q_stride, n_q, dim;
    __m256 scale;
};

/* Queries h .. h+3 by rows t .. t+3, as far as there are. */
static void dots_tile(const struct dots *d, size_t h, const float *const *rows, size_t t, size_t n_rows)
{
    const float *four[TILE];
    size_t n_q = d->n_q - h;
    __m256 low, high;
    rows_at(four, rows, t, n_rows);
    dots_4x4(&low, &high, d->q + h * d->q_stride, d->q_stride, n_q, four, d->dim);
    low = _mm256_mul_ps(low, d->scale);
    high = _mm256_mul_ps(high, d->scale);
    float *y = d->y + h * d->y_stride + t;
    store_four(y, _mm256_castps256_ps128(low), n_rows - t);
    if (n_q > 1) store_four(y + d->y_stride, _mm256_extractf128_ps(low, 1), n_rows - t);
    if (n_q > 2) store_four(y + 2 * d->y_stride, _mm256_castps256_ps128(high), n_rows - t);
    if (n_q > 3) store_four(y + 3 * d->y_stride, _mm256_extractf128_ps(high, 1), n_rows - t);
}

void gather_dots_avx512(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q,
                        const float *const *rows, size_t n_rows, size_t dim, float scale)
{
    const struct dots d = {.y = y,
                           .q = q,
                           .y_stride = y_stride,
                           .q_stride = q_stride,
                           .n_q = n_q,
                           .dim = dim,
                           .scale = _mm256_set1_ps(scale)};
    for (size_t first = 0; first < n_rows; first += ROWS_AT_ONCE)
        for (size_t h = 0; h < n_q; h += TILE)
            for (size_t t = first; t < n_rows && t < first + ROWS_AT_ONCE; t += TILE) dots_tile(&d, h, rows, t, n_rows);
}

void index_scores_avx512(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                         size_t n_heads, size_t dim, float dot_scale)
{
    __m128 zero = _mm_setzero_ps();
    __m256 scale = _mm256_set1_ps(dot_scale);
    for (size_t t = 0; t < n_keys; t += TILE) {
        const float *four[TILE];
        __m128 scores = zero;
        rows_at(four, keys, t, n_keys);
        for (size_t g = 0; g < n_heads; g += TILE) {
            size_t n = n_heads - g;
            __m256 low, high;
            dots_4x4(&low, &high, q + g * dim, dim, n, four, dim);
            low = _mm256_mul_ps(low, scale);
            high = _mm256_mul_ps(high, scale);
#define ADD_HEAD(k, match) /* of 0 and NaN the maximum is NaN: the second */ \
    if (n > (k)) scores = _mm_fmadd_ps(_mm_set1_ps(w[g + (k)]), _mm_max_ps(zero, match), scores);
            ADD_HEAD(0, _mm256_castps256_ps128(low))
            ADD_HEAD(1, _mm256_extractf128_ps(low, 1))
            ADD_HEAD(2, _mm256_castps256_ps128(high))
            ADD_HEAD(3, _mm256_extractf128_ps(high, 1))
#undef ADD_HEAD
        }
        store_four(y + t, scores, n_keys - t);
    }
}

struct mixes {
    float *y;
    const float *p;
    size_t y_stride, p_stride, n_y;
};

/* Outputs h .. h+3, columns column .. column+63, rows begin .. end-1. */
static void mix_strip(const struct mixes *m, size_t h, const float *const *rows, size_t begin, size_t end,
                      size_t column)
{
    size_t n = m->n_y - h < TILE ? m->n_y - h : TILE;
    float *y0 = m->y + h * m->y_stride + column, *y1 = y0 + (n > 1) * m->y_stride, *y2 = y1 + (n > 2) * m->y_stride;
    float *y3 = y2 + (n > 3) * m->y_stride;
    const float *p0 = m->p + h * m->p_stride, *p1 = p0 + (n > 1) * m->p_stride, *p2 = p1 + (n > 2) * m->p_stride;
    const float *p3 = p2 + (n > 3) * m->p_stride;
#define BEGIN(a, b) __m512 s##a##b = _mm512_loadu_ps(y##a + 16 * (b));
    EACH(BEGIN)
#undef BEGIN
    for (size_t t = begin; t < end; t++) {
        const float *row = rows[t] + column;
        __m512 row0 = _mm512_loadu_ps(row), row1 = _mm512_loadu_ps(row + 16);
        __m512 row2 = _mm512_loadu_ps(row + 32), row3 = _mm512_loadu_ps(row + 48);
        __m512 weight0 = _mm512_set1_ps(p0[t]), weight1 = _mm512_set1_ps(p1[t]);
        __m512 weight2 = _mm512_set1_ps(p2[t]), weight3 = _mm512_set1_ps(p3[t]);
#define STEP(a, b) s##a##b = _mm512_fmadd_ps(weight##a, row##b, s##a##b);
        EACH(STEP)
#undef STEP
    }
#define END(a, b) \
    if ((a) < n) _mm512_storeu_ps(y##a + 16 * (b), s##a##b);
    EACH(END)
#undef END
}

/* Fewer columns than a strip, for one output. */
static void mix_last(float *y, const float *p, const float *const *rows, size_t begin, size_t end, size_t column,
                     size_t count)
{
    __mmask16 mask = (__mmask16)(count < KERN_LANES ? (1u << count) - 1 : 0xffff);
    __m512 sum = _mm512_maskz_loadu_ps(mask, y + column);
    for (size_t t = begin; t < end; t++)
        sum = _mm512_fmadd_ps(_mm512_set1_ps(p[t]), _mm512_maskz_loadu_ps(mask, rows[t] + column), sum);
    _mm512_mask_storeu_ps(y + column, mask, sum);
}

void gather_mixes_avx512(float *y, size_t y_stride, const float *p, size_t p_stride, size_t n_y,
                         const float *const *rows, size_t n_rows, size_t dim)
{
    const struct mixes m = {.y = y, .p = p, .y_stride = y_stride, .p_stride = p_stride, .n_y = n_y};
    for (size_t begin = 0; begin < n_rows; begin += BLOCK_ROWS) {
        size_t end = n_rows - begin < BLOCK_ROWS ? n_rows : begin + BLOCK_ROWS, column = 0;
        for (; column + STRIP <= dim; column += STRIP)
            for (size_t h = 0; h < n_y; h += TILE) mix_strip(&m, h, rows, begin, end, column);
        for (; column < dim; column += KERN_LANES)
            for (size_t h = 0; h < n_y; h++)
                mix_last(y + h * y_stride, p + h * p_stride, rows, begin, end, column, dim - column);
    }
}
