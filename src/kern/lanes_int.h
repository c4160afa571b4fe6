#ifndef KERN_LANES_INT_H
#define KERN_LANES_INT_H
/* The fold at the end of the canonical reduction of kern.h: in halves, lane j takes lane j + half. */
#include "kern/kern.h"

static inline float fold_lanes(float lanes[KERN_LANES])
{
    for (int half = KERN_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
    return lanes[0];
}

static inline double fold_lanes_double(double lanes[KERN_LANES])
{
    for (int half = KERN_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
    return lanes[0];
}

#endif
