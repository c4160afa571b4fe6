#include "kern/list_int.h"
#include "kern/select_int.h"

#include <arm_neon.h>

/* The passes of the reference, eight scores at a time, as in x86/select_avx2.c: only the first must count every score,
 * the later ones and the one that writes touch the few that a compare lets through. */
enum { EIGHT = 8, TABLES = 4 };

struct keys {
    uint32x4_t low, high;
};

static inline uint32x4_t keys_of_four(float32x4_t scores)
{
    uint32x4_t bits = vreinterpretq_u32_f32(vaddq_f32(scores, vdupq_n_f32(0)));
    uint32x4_t sign = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(bits), 31));
    return veorq_u32(bits, vorrq_u32(sign, vdupq_n_u32(0x80000000u)));
}

static inline struct keys keys_at(const float *scores)
{
    return (struct keys){keys_of_four(vld1q_f32(scores)), keys_of_four(vld1q_f32(scores + 4))};
}

/* Bit i for element i of a comparison. */
static inline unsigned mask_of(uint32x4_t low, uint32x4_t high)
{
    static const uint8_t bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint8x8_t bytes = vmovn_u16(vcombine_u16(vmovn_u32(low), vmovn_u32(high)));
    return vaddv_u8(vand_u8(bytes, vld1_u8(bits)));
}

static inline unsigned mask_of_equal(struct keys keys, uint32_t key)
{
    return mask_of(vceqq_u32(keys.low, vdupq_n_u32(key)), vceqq_u32(keys.high, vdupq_n_u32(key)));
}

static inline unsigned mask_of_above(struct keys keys, uint32_t key)
{
    return mask_of(vcgtq_u32(keys.low, vdupq_n_u32(key)), vcgtq_u32(keys.high, vdupq_n_u32(key)));
}

/* Counts the top digits; false when there is a NaN. Scores have few different top digits, and an increment waits for
 * the one before it of the same counter: so neighbours count in tables of their own. */
static bool count_first(uint32_t counts[RADIX_SIZE], const float *scores, size_t n)
{
    uint32_t tables[TABLES][RADIX_SIZE];
    uint32x4_t ordered = vdupq_n_u32(UINT32_MAX);
    size_t i = 0;
    memset(tables, 0, sizeof tables);
    for (; i + EIGHT <= n; i += EIGHT) {
        float32x4_t low = vld1q_f32(scores + i), high = vld1q_f32(scores + i + 4);
        uint32_t digits[EIGHT];
        ordered = vandq_u32(ordered, vandq_u32(vceqq_f32(low, low), vceqq_f32(high, high)));
        vst1q_u32(digits, vshrq_n_u32(keys_of_four(low), KEY_BITS - RADIX_BITS));
        vst1q_u32(digits + 4, vshrq_n_u32(keys_of_four(high), KEY_BITS - RADIX_BITS));
        tables[0][digits[0]]++, tables[1][digits[1]]++, tables[2][digits[2]]++, tables[3][digits[3]]++;
        tables[0][digits[4]]++, tables[1][digits[5]]++, tables[2][digits[6]]++, tables[3][digits[7]]++;
    }
    for (; i < n; i++) {
        if (scores[i] != scores[i]) return false;
        tables[0][select_key(scores[i]) >> (KEY_BITS - RADIX_BITS)]++;
    }
    for (size_t d = 0; d < RADIX_SIZE; d++) counts[d] = tables[0][d] + tables[1][d] + tables[2][d] + tables[3][d];
    return vminvq_u32(ordered) == UINT32_MAX;
}

/* Counts the next digits of those that agree with the bits found so far. */
static void count_next(uint32_t counts[RADIX_SIZE], const struct select_rank *found, const float *scores, size_t n)
{
    int bits = select_digit_bits(found->shift), shift = found->shift - bits;
    uint32_t known = UINT32_MAX << found->shift, digit_mask = (1u << bits) - 1;
    size_t i = 0;
    memset(counts, 0, RADIX_SIZE * sizeof *counts);
    for (; i + EIGHT <= n; i += EIGHT) {
        struct keys keys = keys_at(scores + i);
        keys.low = vandq_u32(keys.low, vdupq_n_u32(known));
        keys.high = vandq_u32(keys.high, vdupq_n_u32(known));
        for (unsigned mask = mask_of_equal(keys, found->key); mask; mask &= mask - 1)
            counts[select_key(scores[i + (unsigned)__builtin_ctz(mask)]) >> shift & digit_mask]++;
    }
    for (; i < n; i++) {
        uint32_t key = select_key(scores[i]);
        if ((key & known) == found->key) counts[key >> shift & digit_mask]++;
    }
}

static void write_positions(uint32_t *out, const float *scores, size_t n, size_t k, const struct select_rank *last)
{
    size_t ties = last->rank, taken = 0, i = 0;
    for (; i + EIGHT <= n && taken < k; i += EIGHT) {
        struct keys keys = keys_at(scores + i);
        unsigned equal = ties ? mask_of_equal(keys, last->key) : 0;
        for (unsigned mask = mask_of_above(keys, last->key) | equal; mask; mask &= mask - 1) {
            unsigned bit = mask & -mask;
            if (bit & equal && ties == 0) continue;
            if (bit & equal) ties--;
            out[taken++] = (uint32_t)(i + (unsigned)__builtin_ctz(mask));
        }
    }
    for (; i < n && taken < k; i++) {
        uint32_t key = select_key(scores[i]);
        if (key < last->key || (key == last->key && ties == 0)) continue;
        if (key == last->key) ties--;
        out[taken++] = (uint32_t)i;
    }
}

bool select_top_neon(uint32_t *out, const float *scores, size_t n, size_t k)
{
    uint32_t counts[RADIX_SIZE];
    struct select_rank last = {.shift = KEY_BITS, .rank = k};
    if (!count_first(counts, scores, n)) return false;
    if (k == 0) return true;
    select_next_digit(&last, counts);
    while (last.shift > 0) {
        count_next(counts, &last, scores, n);
        select_next_digit(&last, counts);
    }
    write_positions(out, scores, n, k, &last);
    return true;
}
