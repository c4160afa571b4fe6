#include "kern/list_int.h"

#include <math.h>

/* One at a time. A volatile sum keeps the compiler from finding a shorter way. */

uint64_t peak_f32_ref(uint64_t n)
{
    volatile float sum = 0;
    for (uint64_t i = 0; i < n; i++) sum = fmaf(0.5f, 0.25f, sum);
    return n;
}

uint64_t peak_int8_ref(uint64_t n)
{
    volatile int32_t sum = 0;
    for (uint64_t i = 0; i < n; i++) sum = (sum + (int8_t)i * 3) & 0xffff;
    return n;
}
