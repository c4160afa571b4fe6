#include "kern/list_int.h"
#include "kern/x86/avx512_int.h"

/* Rows by pointer. Eight dot products at a time; value mixes in strips of columns that stay in registers. */

/* Eight rows beginning at t; where fewer are left the last is repeated, and its result not stored. */
INLINE void rows_at(const float *const *rows, size_t t, size_t n_rows, const unsigned char *eight[8])
{
    for (size_t k = 0; k < 8; k++)
        eight[k] = (const unsigned char *)(const void *)rows[t + k < n_rows ? t + k : n_rows - 1];
}

INLINE __m256 dots(const unsigned char *const eight[8], const float *q, size_t dim)
{
    __m512 sums[8] = EIGHT_ZEROS;
    const float *const inputs[2] = {q, q};
    dot_eight(LAYOUT_F32, sums, eight, inputs, 1, 0, dim);
    return fold_eight(sums);
}

INLINE void store_eight(float *y, __m256 values, size_t count)
{
    _mm256_mask_storeu_ps(y, (__mmask8)(count < 8 ? (1u << count) - 1 : 0xff), values);
}

void gather_dot_avx512(float *y, const float *q, const float *const *rows, size_t n_rows, size_t dim, float scale)
{
    for (size_t t = 0; t < n_rows; t += 8) {
        const unsigned char *eight[8];
        rows_at(rows, t, n_rows, eight);
        store_eight(y + t, _mm256_mul_ps(dots(eight, q, dim), _mm256_set1_ps(scale)), n_rows - t);
    }
}

void index_scores_avx512(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                         size_t n_heads, size_t dim, float dot_scale)
{
    for (size_t t = 0; t < n_keys; t += 8) {
        const unsigned char *eight[8];
        __m256 scores = _mm256_setzero_ps();
        rows_at(keys, t, n_keys, eight);
        for (size_t g = 0; g < n_heads; g++) {
            __m256 match = _mm256_mul_ps(dots(eight, q + g * dim, dim), _mm256_set1_ps(dot_scale));
            match = _mm256_max_ps(_mm256_setzero_ps(), match); /* of 0 and NaN this gives NaN: the second */
            scores = _mm256_fmadd_ps(_mm256_set1_ps(w[g]), match, scores);
        }
        store_eight(y + t, scores, n_keys - t);
    }
}

INLINE void mix_128(float *y, const float *p, const float *const *rows, size_t n_rows, size_t column)
{
    __m512 zero = _mm512_setzero_ps();
    __m512 s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero;
    for (size_t t = 0; t < n_rows; t++) {
        const float *row = rows[t] + column;
        __m512 weight = _mm512_set1_ps(p[t]);
        s0 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row), s0);
        s1 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + 16), s1);
        s2 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + 32), s2);
        s3 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + 48), s3);
        s4 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + 64), s4);
        s5 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + 80), s5);
        s6 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + 96), s6);
        s7 = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + 112), s7);
    }
    _mm512_storeu_ps(y + column, s0);
    _mm512_storeu_ps(y + column + 16, s1);
    _mm512_storeu_ps(y + column + 32, s2);
    _mm512_storeu_ps(y + column + 48, s3);
    _mm512_storeu_ps(y + column + 64, s4);
    _mm512_storeu_ps(y + column + 80, s5);
    _mm512_storeu_ps(y + column + 96, s6);
    _mm512_storeu_ps(y + column + 112, s7);
}

INLINE void mix_16(float *y, const float *p, const float *const *rows, size_t n_rows, size_t column, size_t count)
{
    __mmask16 mask = (__mmask16)(count < 16 ? (1u << count) - 1 : 0xffff);
    __m512 sum = _mm512_setzero_ps();
    for (size_t t = 0; t < n_rows; t++)
        sum = _mm512_fmadd_ps(_mm512_set1_ps(p[t]), _mm512_maskz_loadu_ps(mask, rows[t] + column), sum);
    _mm512_mask_storeu_ps(y + column, mask, sum);
}

void gather_mix_avx512(float *y, const float *p, const float *const *rows, size_t n_rows, size_t dim)
{
    size_t i = 0;
    for (; i + 128 <= dim; i += 128) mix_128(y, p, rows, n_rows, i);
    for (; i < dim; i += 16) mix_16(y, p, rows, n_rows, i, dim - i);
}
