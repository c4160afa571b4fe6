#include "resid/sane.h"

#include <float.h>

bool floats_are_sane(const float *values, uint64_t n, bool above_zero, uint64_t *bad)
{
    float low = above_zero ? FLT_TRUE_MIN : -FLT_MAX;
    int is_bad = 0;
    for (uint64_t i = 0; i < n; i++) is_bad |= !(values[i] >= low) | !(values[i] <= FLT_MAX);
    if (!is_bad) return true;
    for (*bad = 0; values[*bad] >= low && values[*bad] <= FLT_MAX; ++*bad) continue;
    return false;
}
