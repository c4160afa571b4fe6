#include "base/philox.h"

/* The multipliers and key increments of the paper. */
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define INCREMENT_0 0x9E3779B9u
#define INCREMENT_1 0xBB67AE85u
enum { ROUNDS = 10 };

struct philox_block philox(uint64_t key, struct philox_block counter)
{
    uint32_t key_0 = (uint32_t)key, key_1 = (uint32_t)(key >> 32);
    uint32_t *x = counter.word;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product_0 = (uint64_t)MULTIPLIER_0 * x[0];
        uint64_t product_1 = (uint64_t)MULTIPLIER_1 * x[2];
        x[0] = (uint32_t)(product_1 >> 32) ^ x[1] ^ key_0;
        x[2] = (uint32_t)(product_0 >> 32) ^ x[3] ^ key_1;
        x[1] = (uint32_t)product_1;
        x[3] = (uint32_t)product_0;
        key_0 += INCREMENT_0;
        key_1 += INCREMENT_1;
    }
    return counter;
}

double philox_unit(uint64_t key, uint64_t counter)
{
    struct philox_block in = {.word = {(uint32_t)counter, (uint32_t)(counter >> 32)}};
    struct philox_block out = philox(key, in);
    uint64_t bits = (uint64_t)out.word[1] << 32 | out.word[0];
    return (double)(bits >> 11) * 0x1p-53;
}
