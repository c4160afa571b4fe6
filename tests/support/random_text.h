#ifndef SUPPORT_RANDOM_TEXT_H
#define SUPPORT_RANDOM_TEXT_H
/* Random numbers and random text from a seed, the same on every machine. */
#include <stddef.h>
#include <stdint.h>

struct random {
    uint64_t state; /* begin with the seed */
};

uint64_t random_next(struct random *random);
uint32_t random_below(struct random *random, uint32_t end);

/* A code point of any plane, no surrogate; half of them from the first two planes, where letters and numbers are. */
uint32_t random_code_point(struct random *random);

/* Valid UTF-8 of up to `room` bytes (room >= 32): runs of letters, digits, marks, spaces and line ends, contractions,
 * parts of markers, and code points of every plane. Returns the bytes. */
size_t random_text(struct random *random, char *out, size_t room);

#endif
