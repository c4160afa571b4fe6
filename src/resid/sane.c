#include "resid/sane.h"

#include <string.h>

enum { BLOCK = 64 }; /* a fixed length lets the compiler use vectors: an expert's scales are checked on its way in */

/* A float is sane when (bits & mask) - low <= span, without a sign: as integers, positive floats stand in their order.
 */
struct range {
    uint32_t mask, low, span;
};

static bool is_insane(const struct range *r, const float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    return (bits & r->mask) - r->low > r->span;
}

static uint32_t n_insane(const struct range *r, const float *values)
{
    uint32_t bits[BLOCK], n = 0;
    memcpy(bits, values, sizeof bits);
    for (int i = 0; i < BLOCK; i++) n += (bits[i] & r->mask) - r->low > r->span;
    return n;
}

bool floats_are_sane(const float *values, uint64_t n, bool above_zero, uint64_t *bad)
{
    const uint32_t largest = 0x7f7fffff; /* the bits of FLT_MAX */
    struct range range = {UINT32_MAX >> 1, 0, largest};
    uint64_t i = 0;
    if (above_zero) range = (struct range){UINT32_MAX, 1, largest - 1};
    while (n - i >= BLOCK && n_insane(&range, values + i) == 0) i += BLOCK;
    for (; i < n; i++) {
        if (!is_insane(&range, values + i)) continue;
        *bad = i;
        return false;
    }
    return true;
}
