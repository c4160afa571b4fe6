#include "kern/list_int.h"

#include <math.h>
#include <string.h>

/* Selection by radix: three passes find the bits of the k-th largest key from the top (11 + 11 + 10), one pass writes
 * the positions. Time is O(n) for any input, and the 8 KiB of counters are the only memory. */
enum { RADIX_BITS = 11, RADIX_SIZE = 1 << RADIX_BITS, KEY_BITS = 32 };

/* An unsigned order for floats: larger score, larger key. Adding 0 turns -0 into +0 and changes nothing else. */
static uint32_t key_of(float score)
{
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static bool any_nan(const float *scores, size_t n)
{
    int found = 0;
    for (size_t i = 0; i < n; i++) found |= isnan(scores[i]) != 0;
    return found;
}

/* The key of rank k (1 is the largest), and in *ties how many positions with exactly that key belong to the first k. */
static uint32_t key_of_rank(const float *scores, size_t n, size_t k, size_t *ties)
{
    uint32_t found = 0, found_mask = 0;
    int shift = KEY_BITS;
    while (shift > 0) {
        uint32_t counts[RADIX_SIZE] = {0};
        int bits = shift < RADIX_BITS ? shift : RADIX_BITS;
        uint32_t digit_mask = (1u << bits) - 1;
        shift -= bits;
        for (size_t i = 0; i < n; i++) {
            uint32_t key = key_of(scores[i]);
            if ((key & found_mask) == found) counts[key >> shift & digit_mask]++;
        }
        uint32_t digit = digit_mask;
        while (counts[digit] < k) k -= counts[digit--];
        found |= digit << shift;
        found_mask |= digit_mask << shift;
    }
    *ties = k;
    return found;
}

bool select_top_ref(uint32_t *out, const float *scores, size_t n, size_t k)
{
    if (any_nan(scores, n)) return false;
    if (k == 0) return true;
    size_t ties;
    uint32_t last = key_of_rank(scores, n, k, &ties);
    size_t taken = 0;
    for (size_t i = 0; taken < k; i++) {
        uint32_t key = key_of(scores[i]);
        if (key < last) continue;
        if (key == last && ties == 0) continue;
        if (key == last) ties--;
        out[taken++] = (uint32_t)i;
    }
    return true;
}
