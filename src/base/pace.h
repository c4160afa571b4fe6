#ifndef BASE_PACE_H
#define BASE_PACE_H
/* How fast something goes, over the last seconds rather than since its beginning. Values only; a zeroed one is ready.
 */
#include <stdint.h>

enum { PACE_SAMPLES = 32 };

struct pace {
    int64_t at_ns[PACE_SAMPLES];
    uint64_t bytes[PACE_SAMPLES];
    unsigned n, newest;
};

/* At most one sample is kept for each quarter of a second. */
void pace_add(struct pace *pace, int64_t now_ns, uint64_t bytes_done);

double pace_per_second(const struct pace *pace);                           /* negative while unknown */
double pace_seconds_left(const struct pace *pace, uint64_t bytes_missing); /* negative while unknown */

#endif
