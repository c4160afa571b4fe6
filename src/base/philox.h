#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H
/* Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, 2011): a random function of key and counter, with no state at all.
 *
 * Equal key and counter give equal bits on every machine and in any order of calls. Not for secrets. */
#include <stdint.h>

struct philox_block {
    uint32_t word[4];
};

struct philox_block philox(uint64_t key, struct philox_block counter);

/* 53 random bits as a number in [0, 1). */
double philox_unit(uint64_t key, uint64_t counter);

#endif
