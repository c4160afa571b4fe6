#include "kern/exp_int.h"
#include "kern/lanes_int.h"
#include "kern/list_int.h"

#include <math.h>

/* The definition of every operation on f32 vectors: plain loops, one rounded operation after the other. */

void rmsnorm_ref(float *y, const float *x, const float *w, size_t n, float eps)
{
    double lanes[KERN_LANES] = {0};
    for (size_t i = 0; i < n; i++) lanes[i % KERN_LANES] = fma(x[i], x[i], lanes[i % KERN_LANES]);
    float factor = (float)(1 / sqrt(fold_lanes_double(lanes) / (double)n + eps));
    for (size_t i = 0; i < n; i++) y[i] = x[i] * factor * w[i];
}

void layernorm_ref(float *y, const float *x, const float *w, const float *b, size_t n, float eps)
{
    double lanes[KERN_LANES] = {0}, squares[KERN_LANES] = {0};
    for (size_t i = 0; i < n; i++) lanes[i % KERN_LANES] += x[i];
    double mean = fold_lanes_double(lanes) / (double)n;
    for (size_t i = 0; i < n; i++) {
        double off = x[i] - mean;
        squares[i % KERN_LANES] = fma(off, off, squares[i % KERN_LANES]);
    }
    float factor = (float)(1 / sqrt(fold_lanes_double(squares) / (double)n + eps));
    for (size_t i = 0; i < n; i++) y[i] = fmaf((float)(x[i] - mean) * factor, w[i], b[i]);
}

void rope_ref(float *x, float *scratch, const float *cosine, const float *sine, size_t n_pairs)
{
    for (size_t j = 0; j < n_pairs; j++) {
        float a = x[2 * j], b = x[2 * j + 1];
        scratch[j] = fmaf(a, cosine[j], -(b * sine[j]));
        scratch[n_pairs + j] = fmaf(b, cosine[j], a * sine[j]);
    }
    for (size_t i = 0; i < 2 * n_pairs; i++) x[i] = scratch[i];
}

void swiglu_ref(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + exp_canonical(-gate[i])) * up[i];
}

void sigmoid_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = 1.0f / (1.0f + exp_canonical(-x[i]));
}

void add_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

void axpy_ref(float *y, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = fmaf(a, x[i], y[i]);
}

void softmax_ref(float *x, size_t n)
{
    float max = x[0];
    for (size_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    float lanes[KERN_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        x[i] = exp_canonical(x[i] - max);
        lanes[i % KERN_LANES] += x[i];
    }
    float sum = fold_lanes(lanes);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
}
