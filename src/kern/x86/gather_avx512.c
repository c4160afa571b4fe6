#include "kern/fetch_int.h"
#include "kern/list_int.h"
#include "kern/x86/avx512_int.h"

/* Many queries against many rows by pointer. A tile of 4 queries by 6 rows shares its ten operands, so the
 * multiply-adds and not the loads set the pace. */
enum {
    TILE = 4,
    DOTS_ROWS = 6,
    ROWS_AT_ONCE = 2 * DOTS_ROWS, /* with four queries they fit the first cache level: a query is fetched for twelve */
    BLOCK_ROWS = 128,             /* rows whose strip of columns stays in the first cache level for all outputs */
    STRIP = 4 * KERN_LANES,
    FETCH_DISTANCE = 48, /* rows of a mix, about as far as the memory is away */
};

#define EACH_COLUMN(M, a) M(a, 0) M(a, 1) M(a, 2) M(a, 3)
#define EACH(M) EACH_COLUMN(M, 0) EACH_COLUMN(M, 1) EACH_COLUMN(M, 2) EACH_COLUMN(M, 3)
#define EACH_ROW(M, a) EACH_COLUMN(M, a) M(a, 4) M(a, 5)
#define EACH_SUM(M) EACH_ROW(M, 0) EACH_ROW(M, 1) EACH_ROW(M, 2) EACH_ROW(M, 3)

/* The last floats of a row and of a query: in the lanes beyond them 0 times -0, which changes no sum. */
#define LAST_ROW(pointer) _mm512_maskz_loadu_ps(mask, pointer)
#define LAST_QUERY(pointer) _mm512_mask_loadu_ps(minus, mask, pointer)

/* The dot products of four queries (q, q_stride apart; those from n_q on are the last again) and six rows, by query. */
INLINE void dots_4x6(float out[TILE][DOTS_ROWS], const float *q, size_t q_stride, size_t n_q,
                     const float *const rows[DOTS_ROWS], size_t dim, __m256 scale)
{
    const float *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3], *r4 = rows[4], *r5 = rows[5];
    const float *q0 = q, *q1 = q0 + (n_q > 1) * q_stride, *q2 = q1 + (n_q > 2) * q_stride;
    const float *q3 = q2 + (n_q > 3) * q_stride;
#define BEGIN(a, b) __m512 s##a##b = _mm512_setzero_ps();
    EACH_SUM(BEGIN)
#undef BEGIN
#define STEP(a, b) s##a##b = _mm512_fmadd_ps(query, row##b, s##a##b);
#define STEPS(load_row, load_query)                                                   \
    __m512 row0 = load_row(r0 + c), row1 = load_row(r1 + c), row2 = load_row(r2 + c); \
    __m512 row3 = load_row(r3 + c), row4 = load_row(r4 + c), row5 = load_row(r5 + c); \
    __m512 query = load_query(q0 + c);                                                \
    EACH_ROW(STEP, 0)                                                                 \
    query = load_query(q1 + c);                                                       \
    EACH_ROW(STEP, 1)                                                                 \
    query = load_query(q2 + c);                                                       \
    EACH_ROW(STEP, 2)                                                                 \
    query = load_query(q3 + c);                                                       \
    EACH_ROW(STEP, 3)
    size_t c = 0;
    for (; c + KERN_LANES <= dim; c += KERN_LANES) {
        STEPS(_mm512_loadu_ps, _mm512_loadu_ps)
    }
    if (c < dim) {
        __mmask16 mask = (__mmask16)((1u << (dim - c)) - 1);
        __m512 minus = _mm512_set1_ps(-0.0f);
        STEPS(LAST_ROW, LAST_QUERY)
    }
#undef STEPS
#undef STEP
    __m512 first[8] = {s00, s01, s02, s03, s04, s05, s10, s11}, second[8] = {s12, s13, s14, s15, s20, s21, s22, s23};
    __m512 third[8] = {s24, s25, s30, s31, s32, s33, s34, s35};
    float *sums = out[0]; /* the whole tile, row behind row */
    _mm256_storeu_ps(sums, _mm256_mul_ps(fold_eight(first), scale));
    _mm256_storeu_ps(sums + 8, _mm256_mul_ps(fold_eight(second), scale));
    _mm256_storeu_ps(sums + 16, _mm256_mul_ps(fold_eight(third), scale));
}

/* Rows t .. t+5; those from n_rows on are the last again. */
INLINE void rows_at(const float *six[DOTS_ROWS], const float *const *rows, size_t t, size_t n_rows)
{
    for (size_t k = 0; k < DOTS_ROWS; k++) six[k] = rows[t + k < n_rows ? t + k : n_rows - 1];
}

struct dots {
    float *y;
    const float *q;
    size_t y_stride, q_stride, n_q, dim;
    float scale;
};

/* Queries h .. h+3 by rows t .. t+5, as far as there are. */
static void dots_tile(const struct dots *d, size_t h, const float *const *rows, size_t t, size_t n_rows)
{
    const float *six[DOTS_ROWS];
    float out[TILE][DOTS_ROWS];
    size_t n_q = d->n_q - h, count = n_rows - t;
    rows_at(six, rows, t, n_rows);
    dots_4x6(out, d->q + h * d->q_stride, d->q_stride, n_q, six, d->dim, _mm256_set1_ps(d->scale));
    for (size_t k = 0; k < TILE && k < n_q; k++) {
        float *y = d->y + (h + k) * d->y_stride + t;
        if (count >= DOTS_ROWS)
            memcpy(y, out[k], sizeof out[k]);
        else
            memcpy(y, out[k], count * sizeof *y);
    }
}

void gather_dots_avx512(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q,
                        const float *const *rows, size_t n_rows, size_t dim, float scale)
{
    const struct dots d = {
        .y = y, .q = q, .y_stride = y_stride, .q_stride = q_stride, .n_q = n_q, .dim = dim, .scale = scale};
    size_t step = (dim * TILE + n_q - 1) / n_q; /* of the rows that come next, beside each four queries */
    for (size_t first = 0; first < n_rows; first += ROWS_AT_ONCE)
        for (size_t h = 0, part = 0; h < n_q; h += TILE, part += step) {
            fetch_rows(rows, n_rows, first + ROWS_AT_ONCE, ROWS_AT_ONCE, part, part + step < dim ? part + step : dim);
            for (size_t t = first; t < n_rows && t < first + ROWS_AT_ONCE; t += DOTS_ROWS)
                dots_tile(&d, h, rows, t, n_rows);
        }
}

/* The dot products of four queries, dim apart, with four keys: by query in low, low, high, high. */
INLINE void dots_4x4(__m256 *low, __m256 *high, const float *q, size_t n_q, const float *const keys[TILE], size_t dim)
{
    const float *r0 = keys[0], *r1 = keys[1], *r2 = keys[2], *r3 = keys[3];
    const float *q0 = q, *q1 = q0 + (n_q > 1) * dim, *q2 = q1 + (n_q > 2) * dim, *q3 = q2 + (n_q > 3) * dim;
#define BEGIN(a, b) __m512 s##a##b = _mm512_setzero_ps();
    EACH(BEGIN)
#undef BEGIN
#define STEP(a, b) s##a##b = _mm512_fmadd_ps(query##a, row##b, s##a##b);
#define STEPS(load_row, load_query)                                                           \
    __m512 row0 = load_row(r0 + c), row1 = load_row(r1 + c), row2 = load_row(r2 + c);         \
    __m512 row3 = load_row(r3 + c), query0 = load_query(q0 + c), query1 = load_query(q1 + c); \
    __m512 query2 = load_query(q2 + c), query3 = load_query(q3 + c);                          \
    EACH(STEP)
    size_t c = 0;
    for (; c + KERN_LANES <= dim; c += KERN_LANES) {
        STEPS(_mm512_loadu_ps, _mm512_loadu_ps)
    }
    if (c < dim) {
        __mmask16 mask = (__mmask16)((1u << (dim - c)) - 1);
        __m512 minus = _mm512_set1_ps(-0.0f);
        STEPS(LAST_ROW, LAST_QUERY)
    }
#undef STEPS
#undef STEP
    __m512 first[8] = {s00, s01, s02, s03, s10, s11, s12, s13}, second[8] = {s20, s21, s22, s23, s30, s31, s32, s33};
    *low = fold_eight(first);
    *high = fold_eight(second);
}

/* Index scores end in registers, four keys at a time: their dots are too short for a way through memory. */
void index_scores_avx512(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                         size_t n_heads, size_t dim, float dot_scale)
{
    size_t step = (dim * TILE + n_heads - 1) / n_heads; /* of the keys that come next, beside each four heads */
    __m128 zero = _mm_setzero_ps();
    __m256 scale = _mm256_set1_ps(dot_scale);
    for (size_t t = 0; t < n_keys; t += TILE) {
        const float *four[TILE];
        __m128 scores = zero;
        float out[TILE];
        for (size_t k = 0; k < TILE; k++) four[k] = keys[t + k < n_keys ? t + k : n_keys - 1];
        for (size_t g = 0, part = 0; g < n_heads; g += TILE, part += step) {
            size_t n = n_heads - g;
            __m256 low, high;
            fetch_rows(keys, n_keys, t + 2 * TILE, TILE, part, part + step < dim ? part + step : dim);
            dots_4x4(&low, &high, q + g * dim, n, four, dim);
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
        _mm_storeu_ps(out, scores);
        memcpy(y + t, out, (n_keys - t < TILE ? n_keys - t : TILE) * sizeof *y);
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
        if (h == 0) fetch_rows(rows, end, t + FETCH_DISTANCE, 1, column, column + STRIP);
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
