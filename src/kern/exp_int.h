#ifndef KERN_EXP_INT_H
#define KERN_EXP_INT_H
/* One exponential for every instruction set, so that softmax and the gates have the same bits everywhere.
 *
 *   n = round(x / ln 2), r = x - n ln 2 in two steps, exp(r) = 1 + (r + r^2 q(r)), times 2^n in two exact halves so
 * that results below the normal range are rounded once.
 *
 * Below 1 ulp from the true value over the whole range. -inf gives 0, above 88.73 gives inf, NaN gives NaN. Every step
 * below is one rounded operation; a vector version performs the same ones in the same order. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Beyond these the result is 0 and inf, so that clamping to them changes nothing and keeps n within 8 bits. */
#define EXP_LOWEST (-104.0f)
#define EXP_HIGHEST 89.0f
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_LN2_HIGH 0x1.62e43p-1f
#define EXP_LN2_LOW (-0x1.05c61p-29f)
/* Adding this to a small float leaves the nearest integer in the low bits; taking it away gives it as a float. */
#define EXP_ROUNDER 0x1.8p+23f
/* q: interpolation of (exp(r) - 1 - r) / r^2 at the Chebyshev nodes of |r| <= 0.348; error of exp(r) below 2^-30. */
#define EXP_Q0 0x1p-1f
#define EXP_Q1 0x1.555556p-3f
#define EXP_Q2 0x1.5554e8p-5f
#define EXP_Q3 0x1.1110ep-7f
#define EXP_Q4 0x1.6d459p-10f
#define EXP_Q5 0x1.a12718p-13f

static inline float exp_power_of_two(int32_t n)
{
    uint32_t bits = ((uint32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

static inline float exp_canonical(float x)
{
    const float rounder = EXP_ROUNDER;
    uint32_t shifted_bits, rounder_bits;
    x = EXP_LOWEST > x ? EXP_LOWEST : x; /* written so that NaN stays NaN */
    x = EXP_HIGHEST < x ? EXP_HIGHEST : x;
    float shifted = fmaf(x, EXP_LOG2E, rounder);
    float n = shifted - rounder;
    float r = fmaf(n, -EXP_LN2_HIGH, x);
    r = fmaf(n, -EXP_LN2_LOW, r);
    float q = fmaf(EXP_Q5, r, EXP_Q4);
    q = fmaf(q, r, EXP_Q3);
    q = fmaf(q, r, EXP_Q2);
    q = fmaf(q, r, EXP_Q1);
    q = fmaf(q, r, EXP_Q0);
    float result = 1.0f + fmaf(q, r * r, r);
    /* The integer comes from the bits, not from a conversion, which is undefined for NaN. */
    memcpy(&shifted_bits, &shifted, sizeof shifted_bits);
    memcpy(&rounder_bits, &rounder, sizeof rounder_bits);
    int32_t power = (int32_t)(shifted_bits - rounder_bits);
    int32_t half = power >> 1;
    return result * exp_power_of_two(half) * exp_power_of_two(power - half);
}

#endif
