#include "model/rope.h"

#include <math.h>

bool rope_init(struct rope *rope, struct arena *arena, uint32_t rope_dim, float theta, struct err *err)
{
    rope->n_pairs = rope_dim / 2;
    rope->omega = arena_get_array(arena, rope->n_pairs, sizeof(float), err);
    if (!rope->omega) return false;
    for (uint32_t j = 0; j < rope->n_pairs; j++) rope->omega[j] = 1.0f / powf(theta, (float)(2 * j) / (float)rope_dim);
    return true;
}

void rope_angles(const struct rope *rope, uint32_t position, float *cosine, float *sine)
{
    for (uint32_t j = 0; j < rope->n_pairs; j++) {
        float angle = (float)position * rope->omega[j];
        cosine[j] = cosf(angle);
        sine[j] = sinf(angle);
    }
}
