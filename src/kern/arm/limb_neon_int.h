#ifndef KERN_LIMB_NEON_INT_H
#define KERN_LIMB_NEON_INT_H
/* Products of split inputs with registers of 16 bytes, which hold four of the sixteen lanes, called a quarter: one
 * stretch of a block of int4 weights. A quarter of the weights of four outputs is unpacked into sixteen registers and
 * meets all rows of the tile. Weights and limbs are both signed here, so the offsets of a split stay unused. One body
 * for two instruction sets, which differ in how bytes are multiplied and added in fours.
 *
 * The matrix instructions (i8mm) are not used: they add eight bytes where a lane has four, and bringing both sides into
 * that order, and the sums back, takes 20 instructions of the 24 that they save per limb triple and 2 by 2 results. */
#include "kern/unroll_int.h"
#include "kern/vector/limb_operands_int.h"

enum { QUAD = 4, QUARTERS = 4, QUARTER_BYTES = 16 };

INLINE int8x16_t load(const unsigned char *at)
{
    return vld1q_s8((const int8_t *)at);
}

/* A quarter of the weights of a block, as registers that meet those of the limbs. */
INLINE void unpack_weights(struct limbs l, int8x16_t w[LIMB_REGISTERS], const unsigned char *block, size_t quarter)
{
    if (l.layout == LAYOUT_INT8) {
        UNROLL
        for (size_t part = 0; part < LIMB_REGISTERS; part++)
            w[part] = load(block + LIMB_REGISTER * part + QUARTER_BYTES * quarter);
        return;
    }
    const uint8x16_t nibble = vdupq_n_u8(15);
    const int8x16_t eight = vdupq_n_s8(8);
    uint8x16_t first = vld1q_u8(block + 32 * quarter), second = vld1q_u8(block + 32 * quarter + 16);
    w[0] = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(first, nibble)), eight);
    w[1] = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(first, 4)), eight);
    w[2] = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(second, nibble)), eight);
    w[3] = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(second, 4)), eight);
}

#if defined(__ARM_FEATURE_DOTPROD)

/* The products of one limb with the weights of four outputs, on top of what is in sums. */
INLINE void add_limb(struct limbs l, int32x4_t sums[QUAD], int8x16_t w[QUAD][LIMB_REGISTERS], const unsigned char *limb)
{
    (void)l;
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++) {
        int8x16_t inputs = load(limb + LIMB_REGISTER * part);
        UNROLL
        for (size_t k = 0; k < QUAD; k++) sums[k] = vdotq_s32(sums[k], w[k][part], inputs);
    }
}

#else

/* Sums of two products. Of int4 weights and any limb they are at most 2048, so that four fit 16 bits; of int8 weights
 * and a limb that is never -128 at most 32512. */
INLINE int16x8_t add_twos(int8x16_t w, int8x16_t inputs)
{
    return vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(inputs)), vmull_high_s8(w, inputs));
}

/* The products of one limb with the weights of four outputs, on top of what is in sums. */
INLINE void add_limb(struct limbs l, int32x4_t sums[QUAD], int8x16_t w[QUAD][LIMB_REGISTERS], const unsigned char *limb)
{
    int16x8_t twos[QUAD];
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++) {
        int8x16_t inputs = load(limb + LIMB_REGISTER * part);
        UNROLL
        for (size_t k = 0; k < QUAD; k++) {
            if (l.layout == LAYOUT_INT8)
                sums[k] = vpadalq_s16(sums[k], add_twos(w[k][part], inputs));
            else
                twos[k] = part == 0 ? add_twos(w[k][part], inputs) : vaddq_s16(twos[k], add_twos(w[k][part], inputs));
        }
    }
    if (l.layout == LAYOUT_INT8) return;
    UNROLL
    for (size_t k = 0; k < QUAD; k++) sums[k] = vpadalq_s16(sums[k], twos[k]);
}

#endif

/* The exact sums of a quarter of a block for four outputs. */
INLINE void sums_of_quarter(struct limbs l, int32x4_t sums[QUAD], int8x16_t w[QUAD][LIMB_REGISTERS],
                            const unsigned char *limb)
{
    UNROLL
    for (size_t k = 0; k < QUAD; k++) sums[k] = vdupq_n_s32(0);
    UNROLL
    for (size_t i = 0; i < l.n; i++) {
        UNROLL
        for (size_t k = 0; k < QUAD; k++) sums[k] = i ? vshlq_n_s32(sums[k], 8) : sums[k];
        add_limb(l, sums, w, limb + i * KERN_SPLIT_COLUMNS);
    }
}

INLINE float32x4_t *lanes_quarter(struct lanes *l, size_t quarter)
{
    return quarter == 0 ? &l->a : quarter == 1 ? &l->b : quarter == 2 ? &l->c : &l->d;
}

/* Adds a quarter of a block to the sums of n_x rows and four outputs from k on; scale_at says where the quarter's scale
 * of grouped weights is. */
INLINE void add_quarter(struct limbs l, const struct limb_operands *m, struct tile *t, size_t k,
                        const unsigned char *block, size_t n_x, size_t quarter, size_t scale_at)
{
    int8x16_t weights[QUAD][LIMB_REGISTERS];
    int32x4_t sums[QUAD];
    float of_weights[QUAD];
    UNROLL
    for (size_t i = 0; i < QUAD; i++) {
        unpack_weights(l, weights[i], t->w[k + i] + t->at, quarter);
        of_weights[i] = m->is_grouped ? t->scales[k + i][scale_at] : 1;
    }
    for (size_t r = 0; r < n_x; r++, block += m->split_stride) {
        sums_of_quarter(l, sums, weights, block + QUARTER_BYTES * quarter);
        float32x4_t of_inputs =
            vld1q_f32((const float *)(const void *)(block + limbs_scales_at(l) + QUARTER_BYTES * quarter));
        UNROLL
        for (size_t i = 0; i < QUAD; i++) {
            float32x4_t *sum = lanes_quarter(&t->sums[r][k + i], quarter);
            float32x4_t factor = m->is_grouped ? vmulq_n_f32(of_inputs, of_weights[i]) : of_inputs;
            *sum = vfmaq_f32(*sum, vcvtq_f32_s32(sums[i]), factor);
        }
    }
}

/* Adds a block of inputs from column `first` on to the sums of n_x rows. */
INLINE void add_block(struct limbs l, const struct limb_operands *m, struct tile *t, const unsigned char *block,
                      size_t n_x, size_t first)
{
    for (size_t k = 0; k < OUTS; k += QUAD) {
        for (size_t i = 0; i < QUAD; i++) prefetch_block(l.layout, t->w[k + i] + t->at, t->distance);
        UNROLL
        for (size_t quarter = 0; quarter < QUARTERS; quarter++) {
            size_t at = 0;
            if (m->is_grouped) at = limbs_scale_of(first + quarter * LIMB_STRETCH, m->group, m->row_scales);
            add_quarter(l, m, t, k, block, n_x, quarter, at);
        }
    }
}

#endif
