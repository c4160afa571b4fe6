#ifndef KERN_PEAK_INT_H
#define KERN_PEAK_INT_H
/* Multiply-adds in registers, in as many chains as the latency asks for and sixteen registers hold. */
#include "kern/list_int.h"
#include "kern/unroll_int.h"
#include "kern/vector/isa_int.h"

enum { CHAINS = 12 };

/* The compiler must believe that the register is changed here, and may neither move nor merge what made it. */
#if defined(__aarch64__)
#define KEEP(x) __asm__ volatile("" : "+w"(x))
typedef int32x4_t bytes;
enum { REGISTER_BYTES = 16 };
#define SAME_BYTES(value) vdupq_n_s32(0x01010101 * (value))
#elif defined(__AVX512F__)
#define KEEP(x) __asm__ volatile("" : "+v"(x))
typedef __m512i bytes;
enum { REGISTER_BYTES = 64 };
#define SAME_BYTES(value) _mm512_set1_epi32(0x01010101 * (value))
#else
#define KEEP(x) __asm__ volatile("" : "+x"(x))
typedef __m256i bytes;
enum { REGISTER_BYTES = 32 };
#define SAME_BYTES(value) _mm256_set1_epi32(0x01010101 * (value))
#endif

INLINE uint64_t peak_f32(uint64_t n)
{
    wide sums[CHAINS], a = wide_set1(0.5f), b = wide_set1(0.25f);
    uint64_t done = 0;
    UNROLL
    for (size_t i = 0; i < CHAINS; i++) sums[i] = wide_zero();
    for (; done < n; done += CHAINS * WIDE) {
        UNROLL
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = wide_fma(a, b, sums[i]);
            KEEP(sums[i]);
        }
    }
    return done;
}

/* The instructions with which the products of limbs add up bytes: where there is none that goes to 32 bits, those that
 * go to 16. */
#if defined(__AVX512VNNI__)
#define ADD_BYTES(sum, a, b) _mm512_dpbusd_epi32(sum, a, b)
#elif defined(__AVXVNNI__)
#define ADD_BYTES(sum, a, b) _mm256_dpbusd_avx_epi32(sum, a, b)
#elif defined(__AVX2__) && !defined(__AVX512F__)
#define ADD_BYTES(sum, a, b) _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b))
#elif defined(__ARM_FEATURE_DOTPROD)
#define ADD_BYTES(sum, a, b) vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
#elif defined(__aarch64__)
#define ADD_BYTES(sum, a, b)                                                                                       \
    vreinterpretq_s32_s16(vmlal_high_s8(vmlal_s8(vreinterpretq_s16_s32(sum), vget_low_s8(vreinterpretq_s8_s32(a)), \
                                                 vget_low_s8(vreinterpretq_s8_s32(b))),                            \
                                        vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)))
#endif

#if defined(ADD_BYTES)
INLINE uint64_t peak_int8(uint64_t n)
{
    bytes sums[CHAINS], a = SAME_BYTES(3), b = SAME_BYTES(5);
    uint64_t done = 0;
    UNROLL
    for (size_t i = 0; i < CHAINS; i++) sums[i] = SAME_BYTES(0);
    for (; done < n; done += CHAINS * REGISTER_BYTES) {
        UNROLL
        for (size_t i = 0; i < CHAINS; i++) {
            KEEP(a); /* or the products, which are always the same, would be made once */
            sums[i] = ADD_BYTES(sums[i], a, b);
            KEEP(sums[i]);
        }
    }
    return done;
}
#endif

#define DEFINE_PEAK(name, isa)               \
    uint64_t peak_##name##_##isa(uint64_t n) \
    {                                        \
        return peak_##name(n);               \
    }

#endif
