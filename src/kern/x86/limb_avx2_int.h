#ifndef KERN_LIMB_AVX2_INT_H
#define KERN_LIMB_AVX2_INT_H
/* Products of split inputs with registers of 32 bytes, which hold eight of the sixteen lanes, called a half: two of the
 * four stretches of a block of int4 weights. Half the weights of an output are unpacked and meet all rows of the tile,
 * whose limbs come from the first cache level. One body for two instruction sets, which differ in how bytes are
 * multiplied and added in fours. */
#include "kern/unroll_int.h"
#include "kern/vector/limb_operands_int.h"

INLINE __m256i load(const unsigned char *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

/* Sixteen bytes from each of two places. */
INLINE __m256i load_two(const unsigned char *first, const unsigned char *second)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)first)),
                                   _mm_loadu_si128((const __m128i *)(const void *)second), 1);
}

/* Half of the weights of a block, plus their bias, as registers that meet those of the limbs. */
INLINE void unpack_weights(struct limbs l, __m256i w[LIMB_REGISTERS], const unsigned char *block, size_t half)
{
    if (l.layout == LAYOUT_INT8) {
        const __m256i bias = _mm256_set1_epi8((char)0x80);
        UNROLL
        for (size_t part = 0; part < LIMB_REGISTERS; part++)
            w[part] = _mm256_xor_si256(load(block + 64 * part + 32 * half), bias);
        return;
    }
    const __m256i nibble = _mm256_set1_epi8(15);
    const unsigned char *at = block + 64 * half;
    __m256i first = load_two(at, at + 32), second = load_two(at + 16, at + 48);
    w[0] = _mm256_and_si256(first, nibble);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(first, 4), nibble);
    w[2] = _mm256_and_si256(second, nibble);
    w[3] = _mm256_and_si256(_mm256_srli_epi16(second, 4), nibble);
}

#if defined(__AVXVNNI__)

/* Adds the products of one limb to the lanes. */
INLINE __m256i add_limb(__m256i sum, const __m256i w[LIMB_REGISTERS], const unsigned char *limb)
{
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++)
        sum = _mm256_dpbusd_avx_epi32(sum, w[part], load(limb + LIMB_REGISTER * part));
    return sum;
}

/* The same from int8 weights as they are stored. */
INLINE __m256i add_limb_by_int8(__m256i sum, const unsigned char *bytes, const unsigned char *limb)
{
    __m256i w[LIMB_REGISTERS];
    unpack_weights((struct limbs){LAYOUT_INT8, 1}, w, bytes, 0);
    return add_limb(sum, w, limb);
}

enum { INT8_HAS_BIAS = 1 };

#else

/* Adds the products of one limb to the lanes. A product of nibble and limb is at most 15 * 128, and sums of eight fit
 * 16 bits. */
INLINE __m256i add_limb(__m256i sum, const __m256i w[LIMB_REGISTERS], const unsigned char *limb)
{
    __m256i twos = _mm256_maddubs_epi16(w[0], load(limb));
    UNROLL
    for (size_t part = 1; part < LIMB_REGISTERS; part++)
        twos = _mm256_add_epi16(twos, _mm256_maddubs_epi16(w[part], load(limb + LIMB_REGISTER * part)));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(twos, _mm256_set1_epi16(1)));
}

/* The same from int8 weights as they are stored. With their bias, sums of two would not fit 16 bits; so the sign goes
 * from the weight to the limb, which is never -128, and two products of at most 128 * 127 do fit. */
INLINE __m256i add_limb_by_int8(__m256i sum, const unsigned char *bytes, const unsigned char *limb)
{
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++) {
        __m256i w = load(bytes + 64 * part), signed_limb = _mm256_sign_epi8(load(limb + LIMB_REGISTER * part), w);
        __m256i twos = _mm256_maddubs_epi16(_mm256_abs_epi8(w), signed_limb);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(twos, _mm256_set1_epi16(1)));
    }
    return sum;
}

enum { INT8_HAS_BIAS = 0 };

#endif

/* The exact sums of half a block of int4 weights, as floats. */
INLINE __m256 sums_of_half(struct limbs l, const __m256i w[LIMB_REGISTERS], const unsigned char *block, size_t half)
{
    const unsigned char *limb = block + 32 * half;
    __m256i low = add_limb(load(limb + limbs_offsets_at(l)), w, limb + (l.n - 1) * KERN_SPLIT_COLUMNS);
    if (l.n == 1) return _mm256_cvtepi32_ps(low);
    __m256i high = add_limb(_mm256_setzero_si256(), w, limb);
    __m256i middle = add_limb(_mm256_slli_epi32(high, 8), w, limb + KERN_SPLIT_COLUMNS);
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_slli_epi32(middle, 8), low));
}

INLINE __m256 sums_by_int8(struct limbs l, const unsigned char *w, const unsigned char *block, size_t half)
{
    const unsigned char *limb = block + 32 * half;
    __m256i start = INT8_HAS_BIAS ? load(limb + limbs_offsets_at(l)) : _mm256_setzero_si256();
    return _mm256_cvtepi32_ps(add_limb_by_int8(start, w + 32 * half, limb));
}

/* The scales of the two stretches of a half, each for four lanes; `at` says where they are. */
INLINE __m256 weight_scales(const float *scales, const size_t at[2])
{
    return _mm256_blend_ps(_mm256_broadcast_ss(scales + at[0]), _mm256_broadcast_ss(scales + at[1]), 0xf0);
}

INLINE void add_half(struct limbs l, const struct limb_operands *m, struct tile *t, size_t k, const unsigned char *w,
                     const unsigned char *block, size_t n_x, size_t half, const size_t scales_at[2])
{
    __m256i weights[LIMB_REGISTERS];
    __m256 of_weights = _mm256_setzero_ps();
    if (l.layout == LAYOUT_INT4) unpack_weights(l, weights, w, half);
    if (m->is_grouped) of_weights = weight_scales(t->scales[k], scales_at);
    for (size_t r = 0; r < n_x; r++, block += m->split_stride) {
        __m256 *sum = half ? &t->sums[r][k].high : &t->sums[r][k].low;
        __m256 factor = _mm256_loadu_ps((const float *)(const void *)(block + limbs_scales_at(l) + 32 * half));
        if (m->is_grouped) factor = _mm256_mul_ps(factor, of_weights);
        __m256 products =
            l.layout == LAYOUT_INT4 ? sums_of_half(l, weights, block, half) : sums_by_int8(l, w, block, half);
        *sum = _mm256_fmadd_ps(products, factor, *sum);
    }
}

/* Adds a block of inputs from column `first` on to the sums of n_x rows. */
INLINE void add_block(struct limbs l, const struct limb_operands *m, struct tile *t, const unsigned char *block,
                      size_t n_x, size_t first)
{
    size_t at[4] = {0};
    for (size_t i = 0; m->is_grouped && i < 4; i++)
        at[i] = limbs_scale_of(first + i * LIMB_STRETCH, m->group, m->row_scales);
    for (size_t k = 0; k < OUTS; k++) {
        const unsigned char *w = t->w[k] + t->at;
        prefetch_block(l.layout, w, t->distance);
        add_half(l, m, t, k, w, block, n_x, 0, at);
        add_half(l, m, t, k, w, block, n_x, 1, at + 2);
    }
}

#endif
