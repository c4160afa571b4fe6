#include "kern/arm/neon_int.h"
#include "kern/limb_int.h"
#include "kern/list_int.h"

/* The values of lane `lane` of a block, those of one register of a limb together. */
INLINE void values_of_lane(struct limbs l, float32x4_t values[LIMB_REGISTERS], const float *x, size_t lane)
{
    if (l.layout == LAYOUT_INT8) {
        UNROLL
        for (size_t part = 0; part < LIMB_REGISTERS; part++)
            values[part] = vld1q_f32(x + LIMB_REGISTER * part + 4 * lane);
        return;
    }
    const float *from = x + LIMB_STRETCH * (lane / 4) + 8 * (lane % 4);
    float32x4x2_t first = vld2q_f32(from), second = vld2q_f32(from + 32);
    values[0] = first.val[0];
    values[1] = first.val[1];
    values[2] = second.val[0];
    values[3] = second.val[1];
}

INLINE uint32_t largest_magnitude(const float32x4_t values[LIMB_REGISTERS])
{
    uint32x4_t largest = vdupq_n_u32(0), magnitude = vdupq_n_u32(0x7fffffff);
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++)
        largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(values[part]), magnitude));
    return vmaxvq_u32(largest);
}

/* One byte of each of a lane's integers, in the order of `which`, to its limb. */
INLINE void store_limb(unsigned char *at, uint8x16x4_t digits, uint8x16_t which)
{
    uint32x4_t bytes = vreinterpretq_u32_u8(vqtbl4q_u8(digits, which));
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++, at += LIMB_REGISTER) {
        uint32_t four = bytes[part];
        memcpy(at, &four, sizeof four);
    }
}

INLINE void split_lane(struct limbs l, unsigned char *block, const float *x, size_t lane)
{
    static const uint8_t lowest[16] = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60};
    const int32x4_t half = vdupq_n_s32(l.n == 3 ? 0x8080 : 0);
    float32x4_t values[LIMB_REGISTERS];
    uint8x16x4_t digits;
    int32x4_t sums = vdupq_n_s32(0);
    float scale, inverse;
    values_of_lane(l, values, x, lane);
    uint32_t largest = largest_magnitude(values);
    if (l.n == 3)
        limb_scale3(largest, &scale, &inverse);
    else
        limb_scale1(largest, &scale, &inverse);
    bool is_finite = largest < LIMB_NOT_FINITE;
    if (!is_finite) scale = limb_float(0x7fc00000);
    const int32x4_t counts = vdupq_n_s32(is_finite ? -1 : 0);
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++) {
        int32x4_t v = vandq_s32(vcvtnq_s32_f32(vmulq_n_f32(values[part], inverse)), counts);
        sums = vaddq_s32(sums, v);
        digits.val[part] = vreinterpretq_u8_s32(veorq_s32(vaddq_s32(v, half), half));
    }
    UNROLL
    for (size_t i = 0; i < l.n; i++) {
        uint8x16_t which = vaddq_u8(vld1q_u8(lowest), vdupq_n_u8((uint8_t)(l.n - 1 - i)));
        store_limb(block + i * KERN_SPLIT_COLUMNS + 4 * lane, digits, which);
    }
    int32_t offset = -limbs_bias(l) * vaddvq_s32(sums);
    memcpy(block + limbs_scales_at(l) + lane * sizeof scale, &scale, sizeof scale);
    memcpy(block + limbs_offsets_at(l) + lane * sizeof offset, &offset, sizeof offset);
}

INLINE void split(struct limbs l, void *out, size_t split_stride, const float *x, size_t x_stride, size_t n_rows,
                  size_t n_in)
{
    for (size_t r = 0; r < n_rows; r++) {
        unsigned char *block = (unsigned char *)out + r * split_stride;
        for (size_t first = 0; first < n_in; first += KERN_SPLIT_COLUMNS, block += limbs_block_bytes(l)) {
            const float *from = x + r * x_stride + first;
            float last[KERN_SPLIT_COLUMNS];
            if (n_in - first < KERN_SPLIT_COLUMNS) {
                memset(last, 0, sizeof last);
                from = memcpy(last, from, (n_in - first) * sizeof *from);
            }
            for (size_t lane = 0; lane < KERN_LANES; lane++) split_lane(l, block, from, lane);
        }
    }
}

#define DEFINE(name, layout, n_limbs)                                                                         \
    void split_limb##n_limbs##_##name##_neon(void *out, size_t split_stride, const float *x, size_t x_stride, \
                                             size_t n_rows, size_t n_in)                                      \
    {                                                                                                         \
        split((struct limbs){layout, n_limbs}, out, split_stride, x, x_stride, n_rows, n_in);                 \
    }

DEFINE(int4, LAYOUT_INT4, 3)
DEFINE(int4, LAYOUT_INT4, 1)
DEFINE(int8, LAYOUT_INT8, 1)
