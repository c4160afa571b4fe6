#ifndef KERN_NEON_INT_H
#define KERN_NEON_INT_H
/* What the NEON kernels share, in the words of vector/isa_int.h: the sixteen canonical lanes as four registers, weights
 * unpacked into them, dot products, and the exponential. */
#include "kern/exp_int.h"
#include "kern/lanes_int.h"
#include "kern/layout_int.h"
#include "kern/unroll_int.h"
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

typedef float32x4_t wide;
enum { WIDE = 4 };

INLINE wide wide_zero(void)
{
    return vdupq_n_f32(0);
}

INLINE wide wide_set1(float x)
{
    return vdupq_n_f32(x);
}

INLINE wide wide_load(const float *x)
{
    return vld1q_f32(x);
}

INLINE void wide_store(float *x, wide a)
{
    vst1q_f32(x, a);
}

INLINE wide wide_fma(wide a, wide b, wide sum)
{
    return vfmaq_f32(sum, a, b);
}

struct lanes {
    float32x4_t a, b, c, d; /* lanes 0..3, 4..7, 8..11, 12..15 */
};

INLINE struct lanes lanes_set1(float x)
{
    float32x4_t all = vdupq_n_f32(x);
    return (struct lanes){all, all, all, all};
}

INLINE struct lanes lanes_zero(void)
{
    return lanes_set1(0);
}

INLINE struct lanes lanes_load(const float *x)
{
    return (struct lanes){vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8), vld1q_f32(x + 12)};
}

INLINE void lanes_store(float *x, struct lanes l)
{
    vst1q_f32(x, l.a);
    vst1q_f32(x + 4, l.b);
    vst1q_f32(x + 8, l.c);
    vst1q_f32(x + 12, l.d);
}

/* Even elements of thirty-two, and odd ones. */
INLINE void lanes_load_pairs(struct lanes *even, struct lanes *odd, const float *x)
{
    float32x4x2_t p0 = vld2q_f32(x), p1 = vld2q_f32(x + 8), p2 = vld2q_f32(x + 16), p3 = vld2q_f32(x + 24);
    *even = (struct lanes){p0.val[0], p1.val[0], p2.val[0], p3.val[0]};
    *odd = (struct lanes){p0.val[1], p1.val[1], p2.val[1], p3.val[1]};
}

INLINE struct lanes lanes_fma(struct lanes x, struct lanes y, struct lanes sum)
{
    return (struct lanes){vfmaq_f32(sum.a, x.a, y.a), vfmaq_f32(sum.b, x.b, y.b), vfmaq_f32(sum.c, x.c, y.c),
                          vfmaq_f32(sum.d, x.d, y.d)};
}

INLINE struct lanes lanes_fma1(struct lanes x, wide y, struct lanes sum)
{
    return (struct lanes){vfmaq_f32(sum.a, x.a, y), vfmaq_f32(sum.b, x.b, y), vfmaq_f32(sum.c, x.c, y),
                          vfmaq_f32(sum.d, x.d, y)};
}

INLINE struct lanes lanes_add(struct lanes x, struct lanes y)
{
    return (struct lanes){vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}

INLINE struct lanes lanes_sub(struct lanes x, struct lanes y)
{
    return (struct lanes){vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}

INLINE struct lanes lanes_mul(struct lanes x, struct lanes y)
{
    return (struct lanes){vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}

INLINE struct lanes lanes_div(struct lanes x, struct lanes y)
{
    return (struct lanes){vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}

INLINE struct lanes lanes_max(struct lanes x, struct lanes y)
{
    return (struct lanes){vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b), vmaxq_f32(x.c, y.c), vmaxq_f32(x.d, y.d)};
}

INLINE struct lanes lanes_negative(struct lanes x)
{
    return (struct lanes){vnegq_f32(x.a), vnegq_f32(x.b), vnegq_f32(x.c), vnegq_f32(x.d)};
}

INLINE float32x4_t lanes_fold_to_four(struct lanes l)
{
    return vaddq_f32(vaddq_f32(l.a, l.c), vaddq_f32(l.b, l.d));
}

/* Four dot products at a time. */
enum { DOTS = 4 };
typedef float32x4_t dots;

INLINE dots dots_set1(float x)
{
    return vdupq_n_f32(x);
}

INLINE dots dots_mul(dots a, dots b)
{
    return vmulq_f32(a, b);
}

INLINE dots dots_fma(dots a, dots b, dots sum)
{
    return vfmaq_f32(sum, a, b);
}

/* 0 for what is below 0: neither -0 nor a NaN is. */
INLINE dots dots_not_below_zero(dots a)
{
    return vbslq_f32(vcltzq_f32(a), vdupq_n_f32(0), a);
}

INLINE void dots_store(float *x, dots a)
{
    vst1q_f32(x, a);
}

/* The folds of four. */
INLINE dots lanes_fold_dots(const struct lanes l[DOTS])
{
    float32x4_t s0 = lanes_fold_to_four(l[0]), s1 = lanes_fold_to_four(l[1]);
    float32x4_t s2 = lanes_fold_to_four(l[2]), s3 = lanes_fold_to_four(l[3]);
    /* lane j takes j + 2: two sums to a register, then j + 1 */
    float64x2_t w0 = vreinterpretq_f64_f32(s0), w1 = vreinterpretq_f64_f32(s1);
    float64x2_t w2 = vreinterpretq_f64_f32(s2), w3 = vreinterpretq_f64_f32(s3);
    float32x4_t s01 = vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(w0, w1)), vreinterpretq_f32_f64(vzip2q_f64(w0, w1)));
    float32x4_t s23 = vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(w2, w3)), vreinterpretq_f32_f64(vzip2q_f64(w2, w3)));
    return vaddq_f32(vuzp1q_f32(s01, s23), vuzp2q_f32(s01, s23));
}

INLINE struct lanes lanes_of_bytes(int8x16_t bytes)
{
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return (struct lanes){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                          vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
}

INLINE struct lanes lanes_of_int4(const unsigned char *bytes)
{
    uint8x8_t eight = vld1_u8(bytes), low = vand_u8(eight, vdup_n_u8(15)), high = vshr_n_u8(eight, 4);
    int8x16_t columns = vreinterpretq_s8_u8(vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)));
    return lanes_of_bytes(vsubq_s8(columns, vdupq_n_s8(8)));
}

/* Sixteen columns of two bits, as they are stored. */
INLINE uint8x16_t two_bits(const unsigned char *bytes)
{
    static const uint8_t from[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    static const int8_t shifts[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    uint32_t four;
    memcpy(&four, bytes, sizeof four);
    uint8x16_t spread = vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(four)), vld1q_u8(from));
    return vandq_u8(vshlq_u8(spread, vld1q_s8(shifts)), vdupq_n_u8(3));
}

INLINE struct lanes lanes_of_int2(const unsigned char *bytes)
{
    return lanes_of_bytes(vsubq_s8(vreinterpretq_s8_u8(two_bits(bytes)), vdupq_n_s8(2)));
}

INLINE struct lanes lanes_of_int3(const unsigned char *row, size_t column)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const unsigned char *block = row + column / INT3_GROUP * INT3_BLOCK_BYTES;
    const unsigned char *third = block + INT3_LOW_BYTES + column % INT3_GROUP / 8;
    uint8x16_t high = vtstq_u8(vcombine_u8(vdup_n_u8(third[0]), vdup_n_u8(third[1])), vld1q_u8(bits));
    uint8x16_t all = vorrq_u8(two_bits(block + column % INT3_GROUP / 4), vandq_u8(high, vdupq_n_u8(4)));
    return lanes_of_bytes(vsubq_s8(vreinterpretq_s8_u8(all), vdupq_n_s8(4)));
}

/* Columns column .. column + 15 of a row, column a multiple of 16, all of them inside the row. */
INLINE struct lanes lanes_of_weights(enum layout layout, const unsigned char *row, size_t column)
{
    switch (layout) {
    case LAYOUT_F32: return lanes_load((const float *)(const void *)(row + 4 * column));
    case LAYOUT_INT8: return lanes_of_bytes(vld1q_s8((const int8_t *)row + column));
    case LAYOUT_INT4: return lanes_of_int4(row + column / 2);
    case LAYOUT_INT3: return lanes_of_int3(row, column);
    case LAYOUT_INT2: return lanes_of_int2(row + column / 4);
    }
    return lanes_zero();
}

/* Lanes lie in plain order. */
INLINE struct lanes lanes_ordered(enum layout layout, struct lanes plain)
{
    (void)layout;
    return plain;
}

INLINE struct lanes lanes_plain(enum layout layout, struct lanes ordered)
{
    (void)layout;
    return ordered;
}

/* The last columns of a row. Lanes beyond them get 0 from the weights and -0 from the other side: their product -0
 * changes no sum, not even one that is -0 itself. */
INLINE struct lanes lanes_of_columns(enum layout layout, const unsigned char *row, size_t column, size_t count)
{
    if (count >= KERN_LANES) return lanes_of_weights(layout, row, column);
    float values[KERN_LANES] = {0};
    for (size_t i = 0; i < count; i++) values[i] = layout_value(layout, row, column + i);
    return lanes_load(values);
}

INLINE struct lanes lanes_of_inputs(const float *x, size_t count)
{
    if (count >= KERN_LANES) return lanes_load(x);
    float values[KERN_LANES];
    for (size_t i = 0; i < KERN_LANES; i++) values[i] = i < count ? x[i] : -0.0f;
    return lanes_load(values);
}

/* The steps of exp_canonical, in its order. */
INLINE float32x4_t exp_neon(float32x4_t x)
{
    const float32x4_t rounder = vdupq_n_f32(EXP_ROUNDER);
    x = vmaxq_f32(vdupq_n_f32(EXP_LOWEST), x); /* of a NaN and a number these two give NaN */
    x = vminq_f32(vdupq_n_f32(EXP_HIGHEST), x);
    float32x4_t shifted = vfmaq_f32(rounder, x, vdupq_n_f32(EXP_LOG2E));
    float32x4_t n = vsubq_f32(shifted, rounder);
    float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-EXP_LN2_HIGH));
    r = vfmaq_f32(r, n, vdupq_n_f32(-EXP_LN2_LOW));
    float32x4_t q = vfmaq_f32(vdupq_n_f32(EXP_Q4), vdupq_n_f32(EXP_Q5), r);
    q = vfmaq_f32(vdupq_n_f32(EXP_Q3), q, r);
    q = vfmaq_f32(vdupq_n_f32(EXP_Q2), q, r);
    q = vfmaq_f32(vdupq_n_f32(EXP_Q1), q, r);
    q = vfmaq_f32(vdupq_n_f32(EXP_Q0), q, r);
    float32x4_t result = vaddq_f32(vdupq_n_f32(1), vfmaq_f32(r, q, vmulq_f32(r, r)));
    int32x4_t power = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(rounder));
    int32x4_t half = vshrq_n_s32(power, 1), bias = vdupq_n_s32(127);
    int32x4_t one = vshlq_n_s32(vaddq_s32(half, bias), 23);
    int32x4_t other = vshlq_n_s32(vaddq_s32(vsubq_s32(power, half), bias), 23);
    return vmulq_f32(vmulq_f32(result, vreinterpretq_f32_s32(one)), vreinterpretq_f32_s32(other));
}

INLINE struct lanes lanes_exp(struct lanes x)
{
    return (struct lanes){exp_neon(x.a), exp_neon(x.b), exp_neon(x.c), exp_neon(x.d)};
}

/* The sixteen lanes of a sum in double. */
struct wide_lanes {
    float64x2_t d[8];
};

INLINE struct wide_lanes wide_lanes_zero(void)
{
    float64x2_t zero = vdupq_n_f64(0);
    return (struct wide_lanes){{zero, zero, zero, zero, zero, zero, zero, zero}};
}

INLINE struct wide_lanes wide_lanes_of(struct lanes x)
{
    return (struct wide_lanes){{vcvt_f64_f32(vget_low_f32(x.a)), vcvt_high_f64_f32(x.a),
                                vcvt_f64_f32(vget_low_f32(x.b)), vcvt_high_f64_f32(x.b),
                                vcvt_f64_f32(vget_low_f32(x.c)), vcvt_high_f64_f32(x.c),
                                vcvt_f64_f32(vget_low_f32(x.d)), vcvt_high_f64_f32(x.d)}};
}

/* Rounded to f32. */
INLINE struct lanes wide_lanes_narrow(struct wide_lanes a)
{
    return (struct lanes){
        vcvt_high_f32_f64(vcvt_f32_f64(a.d[0]), a.d[1]), vcvt_high_f32_f64(vcvt_f32_f64(a.d[2]), a.d[3]),
        vcvt_high_f32_f64(vcvt_f32_f64(a.d[4]), a.d[5]), vcvt_high_f32_f64(vcvt_f32_f64(a.d[6]), a.d[7])};
}

INLINE struct wide_lanes wide_lanes_square(struct wide_lanes a, struct wide_lanes sum)
{
    UNROLL
    for (int i = 0; i < 8; i++) sum.d[i] = vfmaq_f64(sum.d[i], a.d[i], a.d[i]);
    return sum;
}

INLINE struct wide_lanes wide_lanes_add(struct wide_lanes a, struct wide_lanes b)
{
    UNROLL
    for (int i = 0; i < 8; i++) a.d[i] = vaddq_f64(a.d[i], b.d[i]);
    return a;
}

INLINE struct wide_lanes wide_lanes_minus(struct wide_lanes a, double b)
{
    UNROLL
    for (int i = 0; i < 8; i++) a.d[i] = vsubq_f64(a.d[i], vdupq_n_f64(b));
    return a;
}

INLINE void wide_lanes_store(double lanes[KERN_LANES], struct wide_lanes a)
{
    UNROLL
    for (int i = 0; i < 8; i++) vst1q_f64(lanes + 2 * i, a.d[i]);
}

#endif
