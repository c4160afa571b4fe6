#include "kern/list_int.h"
#include "kern/select_int.h"

#include <immintrin.h>
#include <math.h>

/* The passes of the reference, eight scores at a time: only the first must count every score, the later ones and the
 * one that writes touch the few that a compare lets through. Keys are compared as signed integers, with the top bit
 * the other way round. */
enum { EIGHT = 8, TABLES = 4 };

static inline __m256i signed_keys(__m256 scores)
{
    __m256i bits = _mm256_castps_si256(_mm256_add_ps(scores, _mm256_setzero_ps()));
    return _mm256_xor_si256(bits, _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1));
}

static inline __m256i signed_key(uint32_t key)
{
    return _mm256_set1_epi32((int)(key ^ 0x80000000u));
}

static inline unsigned mask_of(__m256i compared)
{
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(compared));
}

/* Counts the top digits; false when there is a NaN. Scores have few different top digits, and an increment waits for
 * the one before it of the same counter: so neighbours count in tables of their own. */
static bool count_first(uint32_t counts[RADIX_SIZE], const float *scores, size_t n)
{
    uint32_t tables[TABLES][RADIX_SIZE];
    __m256 unordered = _mm256_setzero_ps();
    size_t i = 0;
    memset(tables, 0, sizeof tables);
    for (; i + EIGHT <= n; i += EIGHT) {
        uint32_t digits[EIGHT];
        __m256 eight = _mm256_loadu_ps(scores + i);
        unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(eight, eight, _CMP_UNORD_Q));
        __m256i keys = _mm256_xor_si256(signed_keys(eight), _mm256_set1_epi32(INT32_MIN));
        _mm256_storeu_si256((__m256i *)(void *)digits, _mm256_srli_epi32(keys, KEY_BITS - RADIX_BITS));
        tables[0][digits[0]]++, tables[1][digits[1]]++, tables[2][digits[2]]++, tables[3][digits[3]]++;
        tables[0][digits[4]]++, tables[1][digits[5]]++, tables[2][digits[6]]++, tables[3][digits[7]]++;
    }
    for (; i < n; i++) {
        if (isnan(scores[i])) return false;
        tables[0][select_key(scores[i]) >> (KEY_BITS - RADIX_BITS)]++;
    }
    for (size_t d = 0; d < RADIX_SIZE; d++) counts[d] = tables[0][d] + tables[1][d] + tables[2][d] + tables[3][d];
    return _mm256_movemask_ps(unordered) == 0;
}

/* Counts the next digits of those that agree with the bits found so far. */
static void count_next(uint32_t counts[RADIX_SIZE], const struct select_rank *found, const float *scores, size_t n)
{
    int bits = select_digit_bits(found->shift), shift = found->shift - bits;
    uint32_t known = UINT32_MAX << found->shift, digit_mask = (1u << bits) - 1;
    __m256i prefix = signed_key(found->key);
    size_t i = 0;
    memset(counts, 0, RADIX_SIZE * sizeof *counts);
    for (; i + EIGHT <= n; i += EIGHT) {
        __m256i keys = _mm256_and_si256(signed_keys(_mm256_loadu_ps(scores + i)), _mm256_set1_epi32((int)known));
        for (unsigned mask = mask_of(_mm256_cmpeq_epi32(keys, prefix)); mask; mask &= mask - 1)
            counts[select_key(scores[i + (unsigned)__builtin_ctz(mask)]) >> shift & digit_mask]++;
    }
    for (; i < n; i++) {
        uint32_t key = select_key(scores[i]);
        if ((key & known) == found->key) counts[key >> shift & digit_mask]++;
    }
}

static void write_positions(uint32_t *out, const float *scores, size_t n, size_t k, const struct select_rank *last)
{
    __m256i border = signed_key(last->key);
    size_t ties = last->rank, taken = 0, i = 0;
    for (; i + EIGHT <= n && taken < k; i += EIGHT) {
        __m256i keys = signed_keys(_mm256_loadu_ps(scores + i));
        unsigned above = mask_of(_mm256_cmpgt_epi32(keys, border));
        unsigned equal = ties ? mask_of(_mm256_cmpeq_epi32(keys, border)) : 0;
        for (unsigned mask = above | equal; mask; mask &= mask - 1) {
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

bool select_top_avx2(uint32_t *out, const float *scores, size_t n, size_t k)
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
