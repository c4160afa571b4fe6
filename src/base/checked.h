#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H
/* Arithmetic on sizes that come from files: 64 bits, and an overflow is told, not wrapped. */
#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(uint64_t *sum, uint64_t a, uint64_t b)
{
    return !__builtin_add_overflow(a, b, sum);
}
static inline bool checked_mul(uint64_t *product, uint64_t a, uint64_t b)
{
    return !__builtin_mul_overflow(a, b, product);
}
static inline uint64_t div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}
static inline uint64_t round_up(uint64_t a, uint64_t multiple)
{
    return div_up(a, multiple) * multiple;
}
static inline uint64_t round_down(uint64_t a, uint64_t multiple)
{
    return a / multiple * multiple;
}

#endif
