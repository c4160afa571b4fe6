#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H
/* Rotary position embedding: angles of one position. omega_j = 1 / theta^(2j / rope_dim), the angle is
 * float32(position) * omega_j, all in float32 as in the reference. GLM-5.2 pairs lanes (2j, 2j+1) everywhere. */
#include "base/arena.h"

struct rope {
    float *omega; /* [n_pairs] */
    uint32_t n_pairs;
};

bool rope_init(struct rope *rope, struct arena *arena, uint32_t rope_dim, float theta, struct err *err) MUST_CHECK;

/* cosine and sine: [n_pairs] each. */
void rope_angles(const struct rope *rope, uint32_t position, float *cosine, float *sine);

#endif
