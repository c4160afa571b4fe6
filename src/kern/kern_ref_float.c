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

static float dot(const float *a, const float *b, size_t n)
{
    float lanes[KERN_LANES] = {0};
    for (size_t i = 0; i < n; i++) lanes[i % KERN_LANES] = fmaf(a[i], b[i], lanes[i % KERN_LANES]);
    return fold_lanes(lanes);
}

void gather_dot_ref(float *y, const float *q, const float *const *rows, size_t n_rows, size_t dim, float scale)
{
    for (size_t t = 0; t < n_rows; t++) y[t] = dot(q, rows[t], dim) * scale;
}

void gather_mix_ref(float *y, const float *p, const float *const *rows, size_t n_rows, size_t dim)
{
    for (size_t i = 0; i < dim; i++) {
        float sum = 0;
        for (size_t t = 0; t < n_rows; t++) sum = fmaf(p[t], rows[t][i], sum);
        y[i] = sum;
    }
}

void index_scores_ref(float *y, const float *q, const float *w, const float *const *keys, size_t n_keys, size_t n_heads,
                      size_t dim, float dot_scale)
{
    for (size_t t = 0; t < n_keys; t++) {
        float score = 0;
        for (size_t g = 0; g < n_heads; g++) {
            float match = dot(q + g * dim, keys[t], dim) * dot_scale;
            score = fmaf(w[g], match < 0 ? 0 : match, score); /* NaN is not below 0, so it reaches the selector */
        }
        y[t] = score;
    }
}
