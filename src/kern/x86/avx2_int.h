#ifndef KERN_AVX2_INT_H
#define KERN_AVX2_INT_H
/* What the AVX2 kernels share, in the words of vector/isa_int.h: the sixteen canonical lanes as two registers, weights
 * unpacked into them, dot products, and the exponential. Only files built with AVX2, FMA and F16C may include this. */
#include "kern/exp_int.h"
#include "kern/lanes_int.h"
#include "kern/layout_int.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

typedef __m256 wide;
enum { WIDE = 8 };

INLINE wide wide_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE wide wide_set1(float x)
{
    return _mm256_set1_ps(x);
}

INLINE wide wide_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

INLINE void wide_store(float *x, wide a)
{
    _mm256_storeu_ps(x, a);
}

INLINE wide wide_fma(wide a, wide b, wide sum)
{
    return _mm256_fmadd_ps(a, b, sum);
}

struct lanes {
    __m256 low, high; /* lanes 0..7 and 8..15 */
};

INLINE struct lanes lanes_set1(float x)
{
    return (struct lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

INLINE struct lanes lanes_zero(void)
{
    return lanes_set1(0);
}

INLINE struct lanes lanes_load(const float *x)
{
    return (struct lanes){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
}

INLINE void lanes_store(float *x, struct lanes a)
{
    _mm256_storeu_ps(x, a.low);
    _mm256_storeu_ps(x + 8, a.high);
}

INLINE struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes sum)
{
    return (struct lanes){_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}

INLINE struct lanes lanes_fma1(struct lanes a, __m256 b, struct lanes sum)
{
    return (struct lanes){_mm256_fmadd_ps(a.low, b, sum.low), _mm256_fmadd_ps(a.high, b, sum.high)};
}

INLINE struct lanes lanes_add(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

INLINE struct lanes lanes_sub(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

INLINE struct lanes lanes_mul(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

INLINE struct lanes lanes_div(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

INLINE struct lanes lanes_max(struct lanes a, struct lanes b)
{
    return (struct lanes){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

INLINE struct lanes lanes_negative(struct lanes a)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (struct lanes){_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}

/* Eight even elements, then eight odd ones, of sixteen in two registers. */
INLINE __m256 in_order(__m256 halves)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(halves), 0xd8));
}

/* Even elements of thirty-two, and odd ones. */
INLINE void lanes_load_pairs(struct lanes *even, struct lanes *odd, const float *x)
{
    __m256 p0 = _mm256_loadu_ps(x), p1 = _mm256_loadu_ps(x + 8);
    __m256 p2 = _mm256_loadu_ps(x + 16), p3 = _mm256_loadu_ps(x + 24);
    *even = (struct lanes){in_order(_mm256_shuffle_ps(p0, p1, 0x88)), in_order(_mm256_shuffle_ps(p2, p3, 0x88))};
    *odd = (struct lanes){in_order(_mm256_shuffle_ps(p0, p1, 0xdd)), in_order(_mm256_shuffle_ps(p2, p3, 0xdd))};
}

/* Four dot products at a time. */
enum { DOTS = 4 };
typedef __m128 dots;

INLINE dots dots_set1(float x)
{
    return _mm_set1_ps(x);
}

INLINE dots dots_mul(dots a, dots b)
{
    return _mm_mul_ps(a, b);
}

INLINE dots dots_fma(dots a, dots b, dots sum)
{
    return _mm_fmadd_ps(a, b, sum);
}

/* 0 for what is below 0: neither -0 nor a NaN is, and of 0 and them this gives the second. */
INLINE dots dots_not_below_zero(dots a)
{
    return _mm_max_ps(_mm_setzero_ps(), a);
}

INLINE void dots_store(float *x, dots a)
{
    _mm_storeu_ps(x, a);
}

/* The folds of four. */
INLINE dots lanes_fold_dots(const struct lanes a[DOTS])
{
    __m256 a0 = _mm256_add_ps(a[0].low, a[0].high), a1 = _mm256_add_ps(a[1].low, a[1].high);
    __m256 a2 = _mm256_add_ps(a[2].low, a[2].high), a3 = _mm256_add_ps(a[3].low, a[3].high);
    __m256 a01 = _mm256_add_ps(_mm256_permute2f128_ps(a0, a1, 0x20), _mm256_permute2f128_ps(a0, a1, 0x31));
    __m256 a23 = _mm256_add_ps(_mm256_permute2f128_ps(a2, a3, 0x20), _mm256_permute2f128_ps(a2, a3, 0x31));
    /* Per half register: lanes j and j + 2 of one sum beside those of another. */
    __m256 pairs = _mm256_add_ps(_mm256_shuffle_ps(a01, a23, 0x44), _mm256_shuffle_ps(a01, a23, 0xee));
    __m256 sums = _mm256_add_ps(pairs, _mm256_movehdup_ps(pairs)); /* 0 . 2 . | 1 . 3 . */
    __m128 even = _mm256_castps256_ps128(sums), odd = _mm256_extractf128_ps(sums, 1);
    return _mm_blend_ps(even, _mm_moveldup_ps(odd), 0xa);
}

INLINE struct lanes lanes_of_ints(__m256i low, __m256i high)
{
    return (struct lanes){_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
}

/* Both nibbles of a byte become floats without a conversion. Each byte goes, with the top byte of a large power of two,
 * into a 32-bit element; under 2^23 the low nibble counts ones, under 2^19 the high nibble does. Subtracting the power
 * and the 8 of the stored offset is exact. */
INLINE struct lanes lanes_of_int4(const unsigned char *bytes)
{
    const __m256i powers = _mm256_set1_epi64x(0x494b); /* bytes 8 and 9 of each half, after the blend */
    const __m256i first = _mm256_setr_epi8(0, -1, -1, 8, 0, -1, -1, 9, 1, -1, -1, 8, 1, -1, -1, 9, /* */
                                           2, -1, -1, 8, 2, -1, -1, 9, 3, -1, -1, 8, 3, -1, -1, 9);
    const __m256i second = _mm256_setr_epi8(4, -1, -1, 8, 4, -1, -1, 9, 5, -1, -1, 8, 5, -1, -1, 9, /* */
                                            6, -1, -1, 8, 6, -1, -1, 9, 7, -1, -1, 8, 7, -1, -1, 9);
    const __m256i nibbles = _mm256_set1_epi64x((long long)0xff0000f0ff00000fu);
    const __m256 base = _mm256_blend_ps(_mm256_set1_ps(0x1p23f + 8), _mm256_set1_ps(0x1p19f + 8), 0xaa);
    long long eight;
    memcpy(&eight, bytes, sizeof eight);
    __m256i source = _mm256_blend_epi32(_mm256_set1_epi64x(eight), powers, 0xcc);
    __m256i low = _mm256_and_si256(_mm256_shuffle_epi8(source, first), nibbles);
    __m256i high = _mm256_and_si256(_mm256_shuffle_epi8(source, second), nibbles);
    return (struct lanes){_mm256_sub_ps(_mm256_castsi256_ps(low), base),
                          _mm256_sub_ps(_mm256_castsi256_ps(high), base)};
}

INLINE struct lanes lanes_of_int8(const unsigned char *bytes)
{
    __m128i low = _mm_loadl_epi64((const __m128i *)(const void *)bytes);
    __m128i high = _mm_loadl_epi64((const __m128i *)(const void *)(bytes + 8));
    return lanes_of_ints(_mm256_cvtepi8_epi32(low), _mm256_cvtepi8_epi32(high));
}

/* Columns 0..7 and 8..15 of sixteen 2-bit values, as they are stored. */
INLINE void two_bits(const unsigned char *bytes, __m256i *low, __m256i *high)
{
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), mask = _mm256_set1_epi32(3);
    int four;
    memcpy(&four, bytes, sizeof four);
    __m256i all = _mm256_srlv_epi32(_mm256_set1_epi32(four), shifts);
    *low = _mm256_and_si256(all, mask);
    *high = _mm256_and_si256(_mm256_srli_epi32(all, 16), mask);
}

INLINE struct lanes lanes_of_int2(const unsigned char *bytes)
{
    __m256i low, high;
    two_bits(bytes, &low, &high);
    return lanes_of_ints(_mm256_sub_epi32(low, _mm256_set1_epi32(2)), _mm256_sub_epi32(high, _mm256_set1_epi32(2)));
}

INLINE struct lanes lanes_of_int3(const unsigned char *row, size_t column)
{
    const __m256i shifts = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), four = _mm256_set1_epi32(4);
    const unsigned char *block = row + column / INT3_GROUP * INT3_BLOCK_BYTES;
    const unsigned char *third = block + INT3_LOW_BYTES + column % INT3_GROUP / 8;
    __m256i low, high;
    two_bits(block + column % INT3_GROUP / 4, &low, &high);
    __m256i bit_low = _mm256_srlv_epi32(_mm256_set1_epi32(third[0] << 2), shifts);
    __m256i bit_high = _mm256_srlv_epi32(_mm256_set1_epi32(third[1] << 2), shifts);
    low = _mm256_or_si256(low, _mm256_and_si256(bit_low, four));
    high = _mm256_or_si256(high, _mm256_and_si256(bit_high, four));
    return lanes_of_ints(_mm256_sub_epi32(low, four), _mm256_sub_epi32(high, four));
}

/* Columns column .. column + 15 of a row, column a multiple of 16, all of them inside the row. */
INLINE struct lanes lanes_of_weights(enum layout layout, const unsigned char *row, size_t column)
{
    switch (layout) {
    case LAYOUT_F32: return lanes_load((const float *)(const void *)(row + 4 * column));
    case LAYOUT_INT8: return lanes_of_int8(row + column);
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
INLINE struct lanes lanes_of_last_weights(enum layout layout, const unsigned char *row, size_t column, size_t count)
{
    float values[KERN_LANES] = {0};
    for (size_t i = 0; i < count; i++) values[i] = layout_value(layout, row, column + i);
    return lanes_load(values);
}

INLINE struct lanes lanes_of_last(const float *x, size_t count)
{
    float values[KERN_LANES];
    for (size_t i = 0; i < KERN_LANES; i++) values[i] = i < count ? x[i] : -0.0f;
    return lanes_load(values);
}

/* Columns column .. column + count - 1, where a count below 16 means the last ones. */
INLINE struct lanes lanes_of_columns(enum layout layout, const unsigned char *row, size_t column, size_t count)
{
    if (count < KERN_LANES) return lanes_of_last_weights(layout, row, column, count);
    return lanes_of_weights(layout, row, column);
}

INLINE struct lanes lanes_of_inputs(const float *x, size_t count)
{
    return count < KERN_LANES ? lanes_of_last(x, count) : lanes_load(x);
}

/* The steps of exp_canonical, in its order. */
INLINE __m256 exp_avx2(__m256 x)
{
    const __m256 rounder = _mm256_set1_ps(EXP_ROUNDER);
    x = _mm256_max_ps(_mm256_set1_ps(EXP_LOWEST), x); /* of a NaN and a number these two give the second operand */
    x = _mm256_min_ps(_mm256_set1_ps(EXP_HIGHEST), x);
    __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), rounder);
    __m256 n = _mm256_sub_ps(shifted, rounder);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HIGH), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LOW), r);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(EXP_Q5), r, _mm256_set1_ps(EXP_Q4));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q2));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q1));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(EXP_Q0));
    __m256 result = _mm256_add_ps(_mm256_set1_ps(1), _mm256_fmadd_ps(q, _mm256_mul_ps(r, r), r));
    __m256i power = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(rounder));
    __m256i half = _mm256_srai_epi32(power, 1), bias = _mm256_set1_epi32(127);
    __m256i one = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i other = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(power, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(result, _mm256_castsi256_ps(one)), _mm256_castsi256_ps(other));
}

INLINE struct lanes lanes_exp(struct lanes x)
{
    return (struct lanes){exp_avx2(x.low), exp_avx2(x.high)};
}

/* The sixteen lanes of a sum in double. */
struct wide_lanes {
    __m256d d0, d1, d2, d3;
};

INLINE struct wide_lanes wide_lanes_zero(void)
{
    __m256d zero = _mm256_setzero_pd();
    return (struct wide_lanes){zero, zero, zero, zero};
}

INLINE struct wide_lanes wide_lanes_of(struct lanes a)
{
    return (struct wide_lanes){
        _mm256_cvtps_pd(_mm256_castps256_ps128(a.low)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.low, 1)),
        _mm256_cvtps_pd(_mm256_castps256_ps128(a.high)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.high, 1))};
}

/* Rounded to f32. */
INLINE struct lanes wide_lanes_narrow(struct wide_lanes a)
{
    return (struct lanes){_mm256_set_m128(_mm256_cvtpd_ps(a.d1), _mm256_cvtpd_ps(a.d0)),
                          _mm256_set_m128(_mm256_cvtpd_ps(a.d3), _mm256_cvtpd_ps(a.d2))};
}

INLINE struct wide_lanes wide_lanes_square(struct wide_lanes a, struct wide_lanes sum)
{
    return (struct wide_lanes){_mm256_fmadd_pd(a.d0, a.d0, sum.d0), _mm256_fmadd_pd(a.d1, a.d1, sum.d1),
                               _mm256_fmadd_pd(a.d2, a.d2, sum.d2), _mm256_fmadd_pd(a.d3, a.d3, sum.d3)};
}

INLINE struct wide_lanes wide_lanes_add(struct wide_lanes a, struct wide_lanes b)
{
    return (struct wide_lanes){_mm256_add_pd(a.d0, b.d0), _mm256_add_pd(a.d1, b.d1), _mm256_add_pd(a.d2, b.d2),
                               _mm256_add_pd(a.d3, b.d3)};
}

INLINE struct wide_lanes wide_lanes_minus(struct wide_lanes a, double b)
{
    __m256d all = _mm256_set1_pd(b);
    return (struct wide_lanes){_mm256_sub_pd(a.d0, all), _mm256_sub_pd(a.d1, all), _mm256_sub_pd(a.d2, all),
                               _mm256_sub_pd(a.d3, all)};
}

INLINE void wide_lanes_store(double lanes[KERN_LANES], struct wide_lanes a)
{
    _mm256_storeu_pd(lanes, a.d0);
    _mm256_storeu_pd(lanes + 4, a.d1);
    _mm256_storeu_pd(lanes + 8, a.d2);
    _mm256_storeu_pd(lanes + 12, a.d3);
}

#endif
