#ifndef KERN_SELECT_INT_H
#define KERN_SELECT_INT_H
/* What selectors share: the order of scores as integers, and the digits in which the k-th largest is found. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RADIX_BITS = 11, RADIX_SIZE = 1 << RADIX_BITS, KEY_BITS = 32 };

/* An unsigned order for floats: larger score, larger key. Adding 0 turns -0 into +0 and changes nothing else. */
static inline uint32_t select_key(float score)
{
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The part of a key that is known so far: its bits from `shift` on. */
struct select_rank {
    uint32_t key;
    int shift;
    size_t rank; /* of the wanted score among those with these bits, from 1 */
};

static inline int select_digit_bits(int shift)
{
    return shift < RADIX_BITS ? shift : RADIX_BITS;
}

/* Takes the next digit from the counts of those that agree so far. */
static inline void select_next_digit(struct select_rank *found, const uint32_t counts[RADIX_SIZE])
{
    int bits = select_digit_bits(found->shift);
    uint32_t digit = (1u << bits) - 1;
    while (counts[digit] < found->rank) found->rank -= counts[digit--];
    found->shift -= bits;
    found->key |= digit << found->shift;
}

#endif
