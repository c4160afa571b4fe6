#include "kern/limb_int.h"
#include "kern/list_int.h"
#include "kern/x86/avx2_int.h"
#include "kern/unroll_int.h"

/* Two lanes at a time, called a pair: a register of eight floats is what one register of a limb has of them. What there
 * is one of per lane lies in each half register four times. */

/* The values of bytes 64 part + 8 pair .. + 7 of a block. */
INLINE __m256 values_at(struct limbs l, const float *x, size_t pair, size_t part)
{
    if (l.layout == LAYOUT_INT8) return _mm256_loadu_ps(x + LIMB_REGISTER * part + 8 * pair);
    const float *from = x + LIMB_STRETCH * (pair / 2) + 32 * (part / 2) + 16 * (pair % 2);
    __m256 first = _mm256_loadu_ps(from), second = _mm256_loadu_ps(from + 8);
    __m256 columns = part % 2 ? _mm256_shuffle_ps(first, second, 0xdd) : _mm256_shuffle_ps(first, second, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(columns), 0xd8));
}

INLINE __m256i max_of_half(__m256i a)
{
    a = _mm256_max_epu32(a, _mm256_shuffle_epi32(a, 0x4e));
    return _mm256_max_epu32(a, _mm256_shuffle_epi32(a, 0xb1));
}

INLINE __m256i sum_of_half(__m256i a)
{
    a = _mm256_add_epi32(a, _mm256_shuffle_epi32(a, 0x4e));
    return _mm256_add_epi32(a, _mm256_shuffle_epi32(a, 0xb1));
}

INLINE void scales3(__m256i largest, __m256 *scale, __m256 *inverse)
{
    __m256i exponent = _mm256_srli_epi32(_mm256_add_epi32(largest, _mm256_set1_epi32(0x10101)), 23);
    exponent = _mm256_max_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(22)), _mm256_set1_epi32(1));
    *scale = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    *inverse = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254), exponent), 23));
}

INLINE void scales1(__m256i largest, __m256 *scale, __m256 *inverse)
{
    __m256 value = _mm256_castsi256_ps(largest), most = _mm256_set1_ps(127);
    __m256 counts = _mm256_cmp_ps(value, _mm256_set1_ps(0x1p-100f), _CMP_NLT_UQ);
    *scale = _mm256_and_ps(_mm256_div_ps(value, most), counts);
    *inverse = _mm256_and_ps(_mm256_div_ps(most, value), counts);
}

/* Eight values to the bytes of the limbs at `at`. */
INLINE void store_limbs(struct limbs l, unsigned char *at, __m256i v)
{
    if (l.n == 3) v = _mm256_xor_si256(_mm256_add_epi32(v, _mm256_set1_epi32(0x8080)), _mm256_set1_epi32(0x8080));
    const __m256i by_digit = _mm256_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1, /* */
                                              2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1);
    __m256i bytes = _mm256_shuffle_epi8(v, by_digit);
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m128i upper = _mm256_castsi256_si128(bytes), lowest = _mm256_extracti128_si256(bytes, 1);
    if (l.n == 3) {
        _mm_storel_epi64((__m128i *)(void *)at, upper);
        _mm_storel_epi64((__m128i *)(void *)(at + KERN_SPLIT_COLUMNS), _mm_unpackhi_epi64(upper, upper));
    }
    _mm_storel_epi64((__m128i *)(void *)(at + (l.n - 1) * KERN_SPLIT_COLUMNS), lowest);
}

/* One number per half register to two neighbouring lanes. */
INLINE void store_pair(unsigned char *at, __m256i a)
{
    __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((__m128i *)(void *)at, both);
}

/* Lanes 2 pair and 2 pair + 1. */
INLINE void split_pair(struct limbs l, unsigned char *block, const float *x, size_t pair)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256(), sum = largest;
    __m256 scale, inverse;
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++) {
        __m256i bits = _mm256_castps_si256(values_at(l, x, pair, part));
        largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
    }
    largest = max_of_half(largest);
    __m256i is_finite = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)LIMB_NOT_FINITE), largest);
    if (l.n == 3)
        scales3(largest, &scale, &inverse);
    else
        scales1(largest, &scale, &inverse);
    scale = _mm256_blendv_ps(_mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), scale, _mm256_castsi256_ps(is_finite));
    UNROLL
    for (size_t part = 0; part < LIMB_REGISTERS; part++) {
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(values_at(l, x, pair, part), inverse));
        v = _mm256_and_si256(v, is_finite);
        store_limbs(l, block + LIMB_REGISTER * part + 8 * pair, v);
        sum = _mm256_add_epi32(sum, v);
    }
    sum = _mm256_sub_epi32(_mm256_setzero_si256(), sum_of_half(sum));
    store_pair(block + limbs_scales_at(l) + 8 * pair, _mm256_castps_si256(scale));
    store_pair(block + limbs_offsets_at(l) + 8 * pair, _mm256_slli_epi32(sum, l.layout == LAYOUT_INT8 ? 7 : 3));
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
            for (size_t pair = 0; pair < KERN_LANES / 2; pair++) split_pair(l, block, from, pair);
        }
    }
}

#define DEFINE(name, layout, n_limbs)                                                                         \
    void split_limb##n_limbs##_##name##_avx2(void *out, size_t split_stride, const float *x, size_t x_stride, \
                                             size_t n_rows, size_t n_in)                                      \
    {                                                                                                         \
        split((struct limbs){layout, n_limbs}, out, split_stride, x, x_stride, n_rows, n_in);                 \
    }

DEFINE(int4, LAYOUT_INT4, 3)
DEFINE(int4, LAYOUT_INT4, 1)
DEFINE(int8, LAYOUT_INT8, 1)
