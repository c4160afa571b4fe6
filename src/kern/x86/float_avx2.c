#include "kern/list_int.h"
#include "kern/x86/avx2_int.h"

#include <math.h>

/* Vector operations. What is left over after whole registers goes through the scalar steps of the reference, which this
 * file's flags turn into single instructions. */

/* The sixteen lanes of a sum in double. */
struct wide_lanes {
    __m256d d0, d1, d2, d3;
};

INLINE struct wide_lanes wide_zero(void)
{
    __m256d zero = _mm256_setzero_pd();
    return (struct wide_lanes){zero, zero, zero, zero};
}

INLINE struct wide_lanes wide_load(const float *x)
{
    return (struct wide_lanes){_mm256_cvtps_pd(_mm_loadu_ps(x)), _mm256_cvtps_pd(_mm_loadu_ps(x + 4)),
                               _mm256_cvtps_pd(_mm_loadu_ps(x + 8)), _mm256_cvtps_pd(_mm_loadu_ps(x + 12))};
}

INLINE struct wide_lanes wide_square(struct wide_lanes a, struct wide_lanes sum)
{
    return (struct wide_lanes){_mm256_fmadd_pd(a.d0, a.d0, sum.d0), _mm256_fmadd_pd(a.d1, a.d1, sum.d1),
                               _mm256_fmadd_pd(a.d2, a.d2, sum.d2), _mm256_fmadd_pd(a.d3, a.d3, sum.d3)};
}

INLINE struct wide_lanes wide_add(struct wide_lanes a, struct wide_lanes b)
{
    return (struct wide_lanes){_mm256_add_pd(a.d0, b.d0), _mm256_add_pd(a.d1, b.d1), _mm256_add_pd(a.d2, b.d2),
                               _mm256_add_pd(a.d3, b.d3)};
}

INLINE struct wide_lanes wide_minus(struct wide_lanes a, __m256d b)
{
    return (struct wide_lanes){_mm256_sub_pd(a.d0, b), _mm256_sub_pd(a.d1, b), _mm256_sub_pd(a.d2, b),
                               _mm256_sub_pd(a.d3, b)};
}

INLINE void wide_store(double lanes[KERN_LANES], struct wide_lanes a)
{
    _mm256_storeu_pd(lanes, a.d0);
    _mm256_storeu_pd(lanes + 4, a.d1);
    _mm256_storeu_pd(lanes + 8, a.d2);
    _mm256_storeu_pd(lanes + 12, a.d3);
}

void rmsnorm_avx2(float *y, const float *x, const float *w, size_t n, float eps)
{
    struct wide_lanes sum = wide_zero();
    double lanes[KERN_LANES];
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) sum = wide_square(wide_load(x + i), sum);
    wide_store(lanes, sum);
    for (; i < n; i++) lanes[i % KERN_LANES] = fma(x[i], x[i], lanes[i % KERN_LANES]);
    float factor = (float)(1 / sqrt(fold_lanes_double(lanes) / (double)n + eps));
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(factor));
        _mm256_storeu_ps(y + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(w + i)));
    }
    for (; i < n; i++) y[i] = x[i] * factor * w[i];
}

void layernorm_avx2(float *y, const float *x, const float *w, const float *b, size_t n, float eps)
{
    struct wide_lanes sum = wide_zero(), squares = wide_zero();
    double lanes[KERN_LANES];
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) sum = wide_add(sum, wide_load(x + i));
    wide_store(lanes, sum);
    for (; i < n; i++) lanes[i % KERN_LANES] += x[i];
    double mean = fold_lanes_double(lanes) / (double)n;
    __m256d means = _mm256_set1_pd(mean);
    for (i = 0; i + KERN_LANES <= n; i += KERN_LANES)
        squares = wide_square(wide_minus(wide_load(x + i), means), squares);
    wide_store(lanes, squares);
    for (; i < n; i++) lanes[i % KERN_LANES] = fma(x[i] - mean, x[i] - mean, lanes[i % KERN_LANES]);
    float factor = (float)(1 / sqrt(fold_lanes_double(lanes) / (double)n + eps));
    for (i = 0; i + 4 <= n; i += 4) {
        __m128 off = _mm256_cvtpd_ps(_mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(x + i)), means));
        __m128 scaled = _mm_mul_ps(off, _mm_set1_ps(factor));
        _mm_storeu_ps(y + i, _mm_fmadd_ps(scaled, _mm_loadu_ps(w + i), _mm_loadu_ps(b + i)));
    }
    for (; i < n; i++) y[i] = fmaf((float)(x[i] - mean) * factor, w[i], b[i]);
}

/* Even elements of sixteen, then odd ones, in order. */
INLINE __m256 in_order(__m256 halves)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(halves), 0xd8));
}

void rope_avx2(float *x, float *scratch, const float *cosine, const float *sine, size_t n_pairs)
{
    size_t j = 0;
    for (; j + 8 <= n_pairs; j += 8) {
        __m256 low = _mm256_loadu_ps(x + 2 * j), high = _mm256_loadu_ps(x + 2 * j + 8);
        __m256 a = in_order(_mm256_shuffle_ps(low, high, 0x88)), b = in_order(_mm256_shuffle_ps(low, high, 0xdd));
        __m256 c = _mm256_loadu_ps(cosine + j), s = _mm256_loadu_ps(sine + j);
        _mm256_storeu_ps(scratch + j, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(scratch + n_pairs + j, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
    for (; j < n_pairs; j++) {
        float a = x[2 * j], b = x[2 * j + 1];
        scratch[j] = fmaf(a, cosine[j], -(b * sine[j]));
        scratch[n_pairs + j] = fmaf(b, cosine[j], a * sine[j]);
    }
    memcpy(x, scratch, 2 * n_pairs * sizeof *x);
}

/* 1 + exp(-z) */
INLINE __m256 gate_divisor(__m256 z)
{
    return _mm256_add_ps(_mm256_set1_ps(1), exp_avx2(_mm256_xor_ps(z, _mm256_set1_ps(-0.0f))));
}

void swiglu_avx2(float *y, const float *gate, const float *up, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 z = _mm256_loadu_ps(gate + i);
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_div_ps(z, gate_divisor(z)), _mm256_loadu_ps(up + i)));
    }
    for (; i < n; i++) y[i] = gate[i] / (1.0f + exp_canonical(-gate[i])) * up[i];
}

void sigmoid_avx2(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_div_ps(_mm256_set1_ps(1), gate_divisor(_mm256_loadu_ps(x + i))));
    for (; i < n; i++) y[i] = 1.0f / (1.0f + exp_canonical(-x[i]));
}

void add_avx2(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

void axpy_avx2(float *y, float a, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(_mm256_set1_ps(a), _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

static float largest(const float *x, size_t n)
{
    float max = x[0];
    size_t i = 0;
    if (n >= 8) {
        __m256 most = _mm256_loadu_ps(x);
        float values[8];
        for (i = 8; i + 8 <= n; i += 8) most = _mm256_max_ps(most, _mm256_loadu_ps(x + i));
        _mm256_storeu_ps(values, most);
        for (int j = 0; j < 8; j++) max = values[j] > max ? values[j] : max;
    }
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

void softmax_avx2(float *x, size_t n)
{
    float max = largest(x, n), values[KERN_LANES];
    struct lanes sum = lanes_zero();
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) {
        struct lanes part = lanes_load(x + i);
        part.low = exp_avx2(_mm256_sub_ps(part.low, _mm256_set1_ps(max)));
        part.high = exp_avx2(_mm256_sub_ps(part.high, _mm256_set1_ps(max)));
        sum.low = _mm256_add_ps(sum.low, part.low);
        sum.high = _mm256_add_ps(sum.high, part.high);
        lanes_store(x + i, part);
    }
    lanes_store(values, sum);
    for (; i < n; i++) {
        x[i] = exp_canonical(x[i] - max);
        values[i % KERN_LANES] += x[i];
    }
    float total = fold_lanes(values);
    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_div_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(total)));
    for (; i < n; i++) x[i] /= total;
}
