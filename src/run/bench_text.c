#include "run/bench_text.h"

#include <math.h>

#define SHIFT 2.7
enum { SPECIAL_IDS = 64 };

/* P(rank) ~ 1 / (rank + SHIFT) */
uint32_t bench_text_id(double draw, uint32_t n_vocab)
{
    uint32_t n = n_vocab > SPECIAL_IDS ? n_vocab - SPECIAL_IDS : n_vocab;
    double rank = SHIFT * pow((n + SHIFT) / SHIFT, draw) - SHIFT;
    return rank < n ? (uint32_t)rank : n - 1;
}
