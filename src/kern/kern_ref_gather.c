#include "kern/lanes_int.h"
#include "kern/list_int.h"

#include <math.h>

/* The definition of the operations on rows by pointer: plain loops in the canonical order of kern.h. */

static float dot(const float *a, const float *b, size_t n)
{
    float lanes[KERN_LANES] = {0};
    for (size_t i = 0; i < n; i++) lanes[i % KERN_LANES] = fmaf(a[i], b[i], lanes[i % KERN_LANES]);
    return fold_lanes(lanes);
}

void gather_dots_ref(float *y, size_t y_stride, const float *q, size_t q_stride, size_t n_q, const float *const *rows,
                     size_t n_rows, size_t dim, float scale)
{
    for (size_t h = 0; h < n_q; h++)
        for (size_t t = 0; t < n_rows; t++) y[h * y_stride + t] = dot(q + h * q_stride, rows[t], dim) * scale;
}

void gather_mixes_ref(float *y, size_t y_stride, const float *p, size_t p_stride, size_t n_y, const float *const *rows,
                      size_t n_rows, size_t dim)
{
    for (size_t h = 0; h < n_y; h++)
        for (size_t i = 0; i < dim; i++) {
            float sum = y[h * y_stride + i];
            for (size_t t = 0; t < n_rows; t++) sum = fmaf(p[h * p_stride + t], rows[t][i], sum);
            y[h * y_stride + i] = sum;
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
