#ifndef RESID_SANE_H
#define RESID_SANE_H
/* What damage looks like in floats that were just read. */
#include <stdbool.h>
#include <stdint.h>

/* All finite, and with `above_zero` all above it. The place of the first that is not goes to *bad. */
bool floats_are_sane(const float *values, uint64_t n, bool above_zero, uint64_t *bad);

#endif
