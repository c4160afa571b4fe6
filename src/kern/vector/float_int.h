#ifndef KERN_FLOAT_INT_H
#define KERN_FLOAT_INT_H
/* Vector operations, sixteen floats at a time. What is left over goes through the scalar steps of the reference, which
 * the flags of the including file turn into single instructions. */
#include "kern/list_int.h"
#include "kern/vector/isa_int.h"
#include <math.h>

INLINE void rmsnorm(float *y, const float *x, const float *w, size_t n, float eps)
{
    struct wide_lanes sum = wide_lanes_zero();
    double lanes[KERN_LANES];
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) sum = wide_lanes_square(wide_lanes_of(lanes_load(x + i)), sum);
    wide_lanes_store(lanes, sum);
    for (; i < n; i++) lanes[i % KERN_LANES] = fma(x[i], x[i], lanes[i % KERN_LANES]);
    float factor = (float)(1 / sqrt(fold_lanes_double(lanes) / (double)n + eps));
    for (i = 0; i + KERN_LANES <= n; i += KERN_LANES)
        lanes_store(y + i, lanes_mul(lanes_mul(lanes_load(x + i), lanes_set1(factor)), lanes_load(w + i)));
    for (; i < n; i++) y[i] = x[i] * factor * w[i];
}

INLINE void layernorm(float *y, const float *x, const float *w, const float *b, size_t n, float eps)
{
    struct wide_lanes sum = wide_lanes_zero(), squares = wide_lanes_zero();
    double lanes[KERN_LANES];
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) sum = wide_lanes_add(sum, wide_lanes_of(lanes_load(x + i)));
    wide_lanes_store(lanes, sum);
    for (; i < n; i++) lanes[i % KERN_LANES] += x[i];
    double mean = fold_lanes_double(lanes) / (double)n;
    for (i = 0; i + KERN_LANES <= n; i += KERN_LANES)
        squares = wide_lanes_square(wide_lanes_minus(wide_lanes_of(lanes_load(x + i)), mean), squares);
    wide_lanes_store(lanes, squares);
    for (; i < n; i++) lanes[i % KERN_LANES] = fma(x[i] - mean, x[i] - mean, lanes[i % KERN_LANES]);
    float factor = (float)(1 / sqrt(fold_lanes_double(lanes) / (double)n + eps));
    for (i = 0; i + KERN_LANES <= n; i += KERN_LANES) {
        struct lanes off = wide_lanes_narrow(wide_lanes_minus(wide_lanes_of(lanes_load(x + i)), mean));
        off = lanes_mul(off, lanes_set1(factor));
        lanes_store(y + i, lanes_fma(off, lanes_load(w + i), lanes_load(b + i)));
    }
    for (; i < n; i++) y[i] = fmaf((float)(x[i] - mean) * factor, w[i], b[i]);
}

INLINE void rope(float *x, float *scratch, const float *cosine, const float *sine, size_t n_pairs)
{
    size_t j = 0;
    for (; j + KERN_LANES <= n_pairs; j += KERN_LANES) {
        struct lanes a, b, c = lanes_load(cosine + j), s = lanes_load(sine + j);
        lanes_load_pairs(&a, &b, x + 2 * j);
        lanes_store(scratch + j, lanes_fma(a, c, lanes_negative(lanes_mul(b, s))));
        lanes_store(scratch + n_pairs + j, lanes_fma(b, c, lanes_mul(a, s)));
    }
    for (; j < n_pairs; j++) {
        float a = x[2 * j], b = x[2 * j + 1];
        scratch[j] = fmaf(a, cosine[j], -(b * sine[j]));
        scratch[n_pairs + j] = fmaf(b, cosine[j], a * sine[j]);
    }
    memcpy(x, scratch, 2 * n_pairs * sizeof *x);
}

/* 1 + exp(-z) */
INLINE struct lanes gate_divisor(struct lanes z)
{
    return lanes_add(lanes_set1(1), lanes_exp(lanes_negative(z)));
}

INLINE void swiglu(float *y, const float *gate, const float *up, size_t n)
{
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) {
        struct lanes z = lanes_load(gate + i);
        lanes_store(y + i, lanes_mul(lanes_div(z, gate_divisor(z)), lanes_load(up + i)));
    }
    for (; i < n; i++) y[i] = gate[i] / (1.0f + exp_canonical(-gate[i])) * up[i];
}

INLINE void sigmoid(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES)
        lanes_store(y + i, lanes_div(lanes_set1(1), gate_divisor(lanes_load(x + i))));
    for (; i < n; i++) y[i] = 1.0f / (1.0f + exp_canonical(-x[i]));
}

INLINE void add(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) lanes_store(y + i, lanes_add(lanes_load(y + i), lanes_load(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

INLINE void axpy(float *y, float a, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES)
        lanes_store(y + i, lanes_fma1(lanes_load(x + i), wide_set1(a), lanes_load(y + i)));
    for (; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

INLINE float largest(const float *x, size_t n)
{
    float max = x[0];
    size_t i = 0;
    if (n >= KERN_LANES) {
        struct lanes most = lanes_load(x);
        float values[KERN_LANES];
        for (i = KERN_LANES; i + KERN_LANES <= n; i += KERN_LANES) most = lanes_max(most, lanes_load(x + i));
        lanes_store(values, most);
        for (int j = 0; j < KERN_LANES; j++) max = values[j] > max ? values[j] : max;
    }
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

INLINE void softmax(float *x, size_t n)
{
    float max = largest(x, n), values[KERN_LANES];
    struct lanes sum = lanes_zero();
    size_t i = 0;
    for (; i + KERN_LANES <= n; i += KERN_LANES) {
        struct lanes part = lanes_exp(lanes_sub(lanes_load(x + i), lanes_set1(max)));
        sum = lanes_add(sum, part);
        lanes_store(x + i, part);
    }
    lanes_store(values, sum);
    for (; i < n; i++) {
        x[i] = exp_canonical(x[i] - max);
        values[i % KERN_LANES] += x[i];
    }
    float total = fold_lanes(values);
    for (i = 0; i + KERN_LANES <= n; i += KERN_LANES)
        lanes_store(x + i, lanes_div(lanes_load(x + i), lanes_set1(total)));
    for (; i < n; i++) x[i] /= total;
}

#define DEFINE_FLOATS(isa)                                                                              \
    void rmsnorm_##isa(float *y, const float *x, const float *w, size_t n, float eps)                   \
    {                                                                                                   \
        rmsnorm(y, x, w, n, eps);                                                                       \
    }                                                                                                   \
    void layernorm_##isa(float *y, const float *x, const float *w, const float *b, size_t n, float eps) \
    {                                                                                                   \
        layernorm(y, x, w, b, n, eps);                                                                  \
    }                                                                                                   \
    void rope_##isa(float *x, float *scratch, const float *cosine, const float *sine, size_t n_pairs)   \
    {                                                                                                   \
        rope(x, scratch, cosine, sine, n_pairs);                                                        \
    }                                                                                                   \
    void swiglu_##isa(float *y, const float *gate, const float *up, size_t n)                           \
    {                                                                                                   \
        swiglu(y, gate, up, n);                                                                         \
    }                                                                                                   \
    void sigmoid_##isa(float *y, const float *x, size_t n)                                              \
    {                                                                                                   \
        sigmoid(y, x, n);                                                                               \
    }                                                                                                   \
    void add_##isa(float *y, const float *x, size_t n)                                                  \
    {                                                                                                   \
        add(y, x, n);                                                                                   \
    }                                                                                                   \
    void axpy_##isa(float *y, float a, const float *x, size_t n)                                        \
    {                                                                                                   \
        axpy(y, a, x, n);                                                                               \
    }                                                                                                   \
    void softmax_##isa(float *x, size_t n)                                                              \
    {                                                                                                   \
        softmax(x, n);                                                                                  \
    }

#endif
