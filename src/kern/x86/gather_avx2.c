#include "kern/list_int.h"
#include "kern/x86/avx2_int.h"

/* Rows by pointer. Four dot products at a time; value mixes in strips of columns that stay in registers. */

/* Four rows beginning at t; where fewer are left the last is repeated, and its result not stored. */
INLINE void rows_at(const float *const *rows, size_t t, size_t n_rows, const unsigned char *four[4])
{
    for (size_t k = 0; k < 4; k++)
        four[k] = (const unsigned char *)(const void *)rows[t + k < n_rows ? t + k : n_rows - 1];
}

INLINE __m128 dot4(const unsigned char *const four[4], const float *q, size_t dim)
{
    struct lanes sums[4] = {lanes_zero(), lanes_zero(), lanes_zero(), lanes_zero()};
    const float *const inputs[2] = {q, q};
    lanes_dot4(LAYOUT_F32, sums, four, inputs, 1, 0, dim);
    return lanes_fold4(sums);
}

INLINE void store_four(float *y, __m128 values, size_t count)
{
    float four[4];
    _mm_storeu_ps(four, values);
    memcpy(y, four, (count < 4 ? count : 4) * sizeof *y);
}

void gather_dot_avx2(float *y, const float *q, const float *const *rows, size_t n_rows, size_t dim, float scale)
{
    for (size_t t = 0; t < n_rows; t += 4) {
        const unsigned char *four[4];
        rows_at(rows, t, n_rows, four);
        store_four(y + t, _mm_mul_ps(dot4(four, q, dim), _mm_set1_ps(scale)), n_rows - t);
    }
}

void index_scores_avx2(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys,
                       size_t n_heads, size_t dim, float dot_scale)
{
    for (size_t t = 0; t < n_keys; t += 4) {
        const unsigned char *four[4];
        __m128 scores = _mm_setzero_ps();
        rows_at(keys, t, n_keys, four);
        for (size_t g = 0; g < n_heads; g++) {
            __m128 match = _mm_mul_ps(dot4(four, q + g * dim, dim), _mm_set1_ps(dot_scale));
            match = _mm_max_ps(_mm_setzero_ps(), match); /* of 0 and NaN this gives NaN: the second */
            scores = _mm_fmadd_ps(_mm_set1_ps(w[g]), match, scores);
        }
        store_four(y + t, scores, n_keys - t);
    }
}

INLINE void mix_64(float *y, const float *p, const float *const *rows, size_t n_rows, size_t column)
{
    struct lanes s0 = lanes_zero(), s1 = s0, s2 = s0, s3 = s0;
    for (size_t t = 0; t < n_rows; t++) {
        const float *row = rows[t] + column;
        __m256 weight = _mm256_set1_ps(p[t]);
        s0 = lanes_fma1(lanes_load(row), weight, s0);
        s1 = lanes_fma1(lanes_load(row + 16), weight, s1);
        s2 = lanes_fma1(lanes_load(row + 32), weight, s2);
        s3 = lanes_fma1(lanes_load(row + 48), weight, s3);
    }
    lanes_store(y + column, s0);
    lanes_store(y + column + 16, s1);
    lanes_store(y + column + 32, s2);
    lanes_store(y + column + 48, s3);
}

INLINE void mix_8(float *y, const float *p, const float *const *rows, size_t n_rows, size_t column)
{
    __m256 sum = _mm256_setzero_ps();
    for (size_t t = 0; t < n_rows; t++)
        sum = _mm256_fmadd_ps(_mm256_set1_ps(p[t]), _mm256_loadu_ps(rows[t] + column), sum);
    _mm256_storeu_ps(y + column, sum);
}

void gather_mix_avx2(float *y, const float *p, const float *const *rows, size_t n_rows, size_t dim)
{
    size_t i = 0;
    for (; i + 64 <= dim; i += 64) mix_64(y, p, rows, n_rows, i);
    for (; i + 8 <= dim; i += 8) mix_8(y, p, rows, n_rows, i);
    for (; i < dim; i++) {
        float sum = 0;
        for (size_t t = 0; t < n_rows; t++) sum = fmaf(p[t], rows[t][i], sum);
        y[i] = sum;
    }
}
