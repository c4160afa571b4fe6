#ifndef KERN_LIMB_INT_H
#define KERN_LIMB_INT_H
/* How a split row of inputs lies in memory, and the scales of its lanes.
 *
 * A row is its blocks, one behind the other. A block is
 *
 *   int8_t  limb[n][KERN_SPLIT_COLUMNS]       the most significant limb first
 *   float   scale[KERN_LANES]
 *   int32_t offset[KERN_LANES]                minus bias times the sum of the lane's integers
 *
 * Limbs lie as registers of 64 bytes meet them, four neighbouring bytes to a lane: byte p belongs to lane p % 64 / 4.
 * For int8 weights byte p is column p. For int4 a register holds 16 bytes of each of the block's four stretches of 64
 * columns, so that a lane has one scale of the weights, and weights are unpacked without a shuffle inside of 16 bytes:
 * the first two registers are the even and the odd columns of the first half of every stretch, the other two those of
 * the second half.
 *
 * The instructions multiply unsigned bytes by signed ones: kernels may read a weight w as w + bias, with 8 for int4, as
 * it is stored, and 128 for int8, and add the offset, which takes the bias out again, exactly. */
#include "kern/lanes_int.h"
#include "kern/layout_int.h"

enum {
    LIMB_VALUE_MAX = 127 * 65793,
    LIMB_REGISTER = 64,
    LIMB_REGISTERS = KERN_SPLIT_COLUMNS / LIMB_REGISTER,
    LIMB_STRETCH = 64,
};

/* What a split is made for. */
struct limbs {
    enum layout layout; /* of the weights: int4 or int8 */
    size_t n;           /* 3 or 1 */
};

/* Where in a block the numbers of the lanes are. */
static inline size_t limbs_scales_at(struct limbs l)
{
    return l.n * KERN_SPLIT_COLUMNS;
}

static inline size_t limbs_offsets_at(struct limbs l)
{
    return limbs_scales_at(l) + KERN_LANES * sizeof(float);
}

static inline size_t limbs_block_bytes(struct limbs l)
{
    return kern_split_bytes(l.n, KERN_SPLIT_COLUMNS);
}

/* The column within the block that byte p of a limb stands for. */
static inline size_t limbs_column(struct limbs l, size_t p)
{
    size_t part = p / LIMB_REGISTER, byte = p % LIMB_REGISTER;
    if (l.layout == LAYOUT_INT8) return p;
    return byte / 16 * LIMB_STRETCH + part / 2 * 32 + byte % 16 * 2 + part % 2;
}

static inline int32_t limbs_bias(struct limbs l)
{
    return l.layout == LAYOUT_INT8 ? 128 : 8;
}

/* Which of a row's scales a stretch of grouped weights has; one beyond the row takes the last, and adds nothing. */
static inline size_t limbs_scale_of(size_t column, size_t group, size_t row_scales)
{
    size_t scale = group == LIMB_STRETCH ? column / LIMB_STRETCH : column / group;
    return scale < row_scales ? scale : row_scales - 1;
}

/* Bits of |x|, which compare like the numbers do: an infinity or a NaN is LIMB_NOT_FINITE or more. */
#define LIMB_NOT_FINITE 0x7f800000u

static inline uint32_t limb_magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

static inline float limb_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The scale for the largest magnitude of a lane, and what its values are multiplied with before they are rounded. With
 * three limbs the largest becomes 2^22 .. 2^23 when its exponent is taken out, which is more than LIMB_VALUE_MAX if its
 * fraction is 2^23 - 0x10101 or more: then this sum carries into the exponent. */
static inline void limb_scale3(uint32_t largest, float *scale, float *inverse)
{
    uint32_t exponent = (largest + 0x10101) >> 23;
    exponent = exponent > 23 ? exponent - 22 : 1;
    *scale = limb_float(exponent << 23);
    *inverse = limb_float((254 - exponent) << 23);
}

static inline void limb_scale1(uint32_t largest, float *scale, float *inverse)
{
    float value = limb_float(largest);
    *scale = value < 0x1p-100f ? 0 : value / 127;
    *inverse = value < 0x1p-100f ? 0 : 127 / value;
}

#endif
