#ifndef KERN_AVX512_INT_H
#define KERN_AVX512_INT_H
/* What the AVX-512 kernels share, in the words of vector/isa_int.h: the sixteen canonical lanes in one register. Only
 * files built with AVX-512 F, BW, DQ and VL may include this.
 *
 * Register order. Lanes of int4 weights lie in a register as 0 8 1 9 2 10 ... 7 15: that is how eight bytes, repeated
 * along the register, come apart with one shift per element. Inputs are brought into that order once and serve eight
 * weight rows; sums go back before they are folded. Other layouts lie in plain order. */
#include "kern/lanes_int.h"
#include "kern/layout_int.h"
#include <immintrin.h>
#include <math.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m512 wide;
enum { WIDE = 16 };

INLINE wide wide_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE wide wide_set1(float x)
{
    return _mm512_set1_ps(x);
}

INLINE wide wide_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

INLINE void wide_store(float *x, wide a)
{
    _mm512_storeu_ps(x, a);
}

INLINE wide wide_fma(wide a, wide b, wide sum)
{
    return _mm512_fmadd_ps(a, b, sum);
}

struct lanes {
    __m512 all;
};

INLINE struct lanes lanes_zero(void)
{
    return (struct lanes){_mm512_setzero_ps()};
}

INLINE struct lanes lanes_set1(float x)
{
    return (struct lanes){_mm512_set1_ps(x)};
}

INLINE struct lanes lanes_load(const float *x)
{
    return (struct lanes){_mm512_loadu_ps(x)};
}

INLINE void lanes_store(float *x, struct lanes a)
{
    _mm512_storeu_ps(x, a.all);
}

INLINE struct lanes lanes_mul(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm512_mul_ps(a.all, b.all)};
}

INLINE struct lanes lanes_fma1(struct lanes a, wide b, struct lanes sum)
{
    return (struct lanes){_mm512_fmadd_ps(a.all, b, sum.all)};
}

INLINE __m512 to_register_order(enum layout layout, __m512 plain)
{
    if (layout != LAYOUT_INT4) return plain;
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), plain);
}

INLINE __m512 to_plain_order(enum layout layout, __m512 ordered)
{
    if (layout != LAYOUT_INT4) return ordered;
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), ordered);
}

INLINE struct lanes lanes_ordered(enum layout layout, struct lanes plain)
{
    return (struct lanes){to_register_order(layout, plain.all)};
}

INLINE struct lanes lanes_plain(enum layout layout, struct lanes ordered)
{
    return (struct lanes){to_plain_order(layout, ordered.all)};
}

/* A permutation looks at the low four bits of each index only, so the nibble needs no mask, and what it fetches is the
 * value it stands for. */
INLINE __m512 weights_of_int4(const unsigned char *bytes)
{
    const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    long long eight;
    memcpy(&eight, bytes, sizeof eight);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(eight), shifts), values);
}

INLINE __m512i two_bits(const unsigned char *bytes)
{
    const __m512i shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    int four;
    memcpy(&four, bytes, sizeof four);
    return _mm512_srlv_epi32(_mm512_set1_epi32(four), shifts);
}

INLINE __m512 weights_of_int2(const unsigned char *bytes)
{
    const __m512 values = _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);
    return _mm512_permutexvar_ps(two_bits(bytes), values);
}

INLINE __m512 weights_of_int3(const unsigned char *row, size_t column)
{
    const __m512 low = _mm512_setr_ps(-4, -3, -2, -1, -4, -3, -2, -1, -4, -3, -2, -1, -4, -3, -2, -1);
    const __m512 high = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    const unsigned char *block = row + column / INT3_GROUP * INT3_BLOCK_BYTES;
    __m512i index = two_bits(block + column % INT3_GROUP / 4);
    uint16_t third;
    memcpy(&third, block + INT3_LOW_BYTES + column % INT3_GROUP / 8, sizeof third);
    return _mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(index, low), third, index, high);
}

INLINE __m512 weights_of_int8(const unsigned char *bytes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes)));
}

/* Columns c .. c + count - 1 of a row in register order. A count below 16 means the last ones: lanes beyond them get 0
 * from the weights and -0 from the inputs, and their product -0 changes no sum, not even one that is -0 itself. */
INLINE __m512 weights_at(enum layout layout, const unsigned char *row, size_t c, size_t count)
{
    if (count < KERN_LANES) {
        float last[KERN_LANES] = {0};
        for (size_t i = 0; i < count; i++) last[i] = layout_value(layout, row, c + i);
        return to_register_order(layout, _mm512_loadu_ps(last));
    }
    switch (layout) {
    case LAYOUT_F32: return _mm512_loadu_ps(row + 4 * c);
    case LAYOUT_INT8: return weights_of_int8(row + c);
    case LAYOUT_INT4: return weights_of_int4(row + c / 2);
    case LAYOUT_INT3: return weights_of_int3(row, c);
    case LAYOUT_INT2: return weights_of_int2(row + c / 4);
    }
    return _mm512_setzero_ps();
}

INLINE struct lanes lanes_of_weights(enum layout layout, const unsigned char *row, size_t column)
{
    return (struct lanes){weights_at(layout, row, column, KERN_LANES)};
}

INLINE __m512 inputs_at(enum layout layout, const float *x, size_t count)
{
    if (count == KERN_LANES) return to_register_order(layout, _mm512_loadu_ps(x));
    float last[KERN_LANES];
    for (size_t i = 0; i < KERN_LANES; i++) last[i] = i < count ? x[i] : -0.0f;
    return to_register_order(layout, _mm512_loadu_ps(last));
}

/* Eight sums in plain order, folded: result k from s[k]. */
INLINE __m256 fold_eight(const __m512 s[8])
{
    /* lane j takes j + 8: two sums to a register */
    __m512 s01 = _mm512_add_ps(_mm512_shuffle_f32x4(s[0], s[1], 0x44), _mm512_shuffle_f32x4(s[0], s[1], 0xee));
    __m512 s23 = _mm512_add_ps(_mm512_shuffle_f32x4(s[2], s[3], 0x44), _mm512_shuffle_f32x4(s[2], s[3], 0xee));
    __m512 s45 = _mm512_add_ps(_mm512_shuffle_f32x4(s[4], s[5], 0x44), _mm512_shuffle_f32x4(s[4], s[5], 0xee));
    __m512 s67 = _mm512_add_ps(_mm512_shuffle_f32x4(s[6], s[7], 0x44), _mm512_shuffle_f32x4(s[6], s[7], 0xee));
    /* j + 4: four sums to a register */
    __m512 low = _mm512_add_ps(_mm512_shuffle_f32x4(s01, s23, 0x88), _mm512_shuffle_f32x4(s01, s23, 0xdd));
    __m512 high = _mm512_add_ps(_mm512_shuffle_f32x4(s45, s67, 0x88), _mm512_shuffle_f32x4(s45, s67, 0xdd));
    /* j + 2, then j + 1: quarter k holds sum k at 0 and sum k + 4 at 2 */
    __m512 all = _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xee));
    all = _mm512_add_ps(all, _mm512_movehdup_ps(all));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, all));
}

/* Eight dot products that share operands: 8 weight rows by 1 input row, or 4 by 2. Product k is of weight row k / n_x
 * and input row k % n_x. */
INLINE void step_eight(enum layout layout, __m512 s[8], const unsigned char *const w[8], const float *const x[2],
                       size_t n_x, size_t c, size_t count)
{
    __m512 first = inputs_at(layout, x[0] + c, count), second = first;
    if (n_x == 2) second = inputs_at(layout, x[1] + c, count);
    __m512 weights = weights_at(layout, w[0], c, count);
    s[0] = _mm512_fmadd_ps(weights, first, s[0]);
    if (n_x == 1) weights = weights_at(layout, w[1], c, count);
    s[1] = _mm512_fmadd_ps(weights, second, s[1]);
    weights = weights_at(layout, w[n_x == 1 ? 2 : 1], c, count);
    s[2] = _mm512_fmadd_ps(weights, first, s[2]);
    if (n_x == 1) weights = weights_at(layout, w[3], c, count);
    s[3] = _mm512_fmadd_ps(weights, second, s[3]);
    weights = weights_at(layout, w[n_x == 1 ? 4 : 2], c, count);
    s[4] = _mm512_fmadd_ps(weights, first, s[4]);
    if (n_x == 1) weights = weights_at(layout, w[5], c, count);
    s[5] = _mm512_fmadd_ps(weights, second, s[5]);
    weights = weights_at(layout, w[n_x == 1 ? 6 : 3], c, count);
    s[6] = _mm512_fmadd_ps(weights, first, s[6]);
    if (n_x == 1) weights = weights_at(layout, w[7], c, count);
    s[7] = _mm512_fmadd_ps(weights, second, s[7]);
}

/* Eight dot products at a time. */
enum { DOTS = 8 };
typedef __m256 dots;

INLINE void dots_store(float *x, dots a)
{
    _mm256_storeu_ps(x, a);
}

/* Adds columns begin .. end-1 to the eight, which are in register order. begin is a multiple of 16, n_x a constant. */
INLINE void lanes_dots(enum layout layout, struct lanes sums[DOTS], const unsigned char *const w[DOTS],
                       const float *const x[2], size_t n_x, size_t begin, size_t end)
{
    __m512 s[DOTS] = {sums[0].all, sums[1].all, sums[2].all, sums[3].all,
                      sums[4].all, sums[5].all, sums[6].all, sums[7].all};
    size_t c = begin;
    for (; c + KERN_LANES <= end; c += KERN_LANES) step_eight(layout, s, w, x, n_x, c, KERN_LANES);
    if (c < end) step_eight(layout, s, w, x, n_x, c, end - c);
    sums[0].all = s[0], sums[1].all = s[1], sums[2].all = s[2], sums[3].all = s[3];
    sums[4].all = s[4], sums[5].all = s[5], sums[6].all = s[6], sums[7].all = s[7];
}

/* The folds of eight, in plain order. */
INLINE dots lanes_fold_dots(const struct lanes a[DOTS])
{
    const __m512 s[DOTS] = {a[0].all, a[1].all, a[2].all, a[3].all, a[4].all, a[5].all, a[6].all, a[7].all};
    return fold_eight(s);
}

#endif
