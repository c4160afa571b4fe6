#include "kern/list_int.h"
#include "kern/select_int.h"

#include <math.h>

/* Selection by radix: three passes find the bits of the k-th largest key from the top (11 + 11 + 10), one pass writes
 * the positions. Time is O(n) for any input, and the 8 KiB of counters are the only memory. */

static bool any_nan(const float *scores, size_t n)
{
    int found = 0;
    for (size_t i = 0; i < n; i++) found |= isnan(scores[i]) != 0;
    return found;
}

static void count_digits(uint32_t counts[RADIX_SIZE], const struct select_rank *found, const float *scores, size_t n)
{
    int bits = select_digit_bits(found->shift), shift = found->shift - bits;
    uint32_t known = found->shift < KEY_BITS ? UINT32_MAX << found->shift : 0;
    memset(counts, 0, RADIX_SIZE * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        uint32_t key = select_key(scores[i]);
        if ((key & known) == found->key) counts[key >> shift & ((1u << bits) - 1)]++;
    }
}

bool select_top_ref(uint32_t *out, const float *scores, size_t n, size_t k)
{
    if (any_nan(scores, n)) return false;
    if (k == 0) return true;
    struct select_rank last = {.shift = KEY_BITS, .rank = k};
    while (last.shift > 0) {
        uint32_t counts[RADIX_SIZE];
        count_digits(counts, &last, scores, n);
        select_next_digit(&last, counts);
    }
    size_t ties = last.rank; /* how many positions with exactly that key belong to the first k */
    size_t taken = 0;
    for (size_t i = 0; taken < k; i++) {
        uint32_t key = select_key(scores[i]);
        if (key < last.key) continue;
        if (key == last.key && ties == 0) continue;
        if (key == last.key) ties--;
        out[taken++] = (uint32_t)i;
    }
    return true;
}
