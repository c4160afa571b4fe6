#ifndef KERN_LANES_DOTS_INT_H
#define KERN_LANES_DOTS_INT_H
/* lanes_dots where a register holds fewer floats than there are lanes. Comes with isa_int.h. */
#include "kern/vector/isa_int.h"

/* Four dot products that share operands: 4 weight rows by 1 input row, or 2 by 2. Product k is of weight row k / n_x
 * and input row k % n_x. A weight is unpacked where its first product needs it, which keeps it in a register. */
INLINE void lanes_step(enum layout layout, struct lanes sums[DOTS], const unsigned char *const w[DOTS],
                       const float *const x[2], size_t n_x, size_t c, size_t count)
{
    struct lanes first = lanes_of_inputs(x[0] + c, count), second = first;
    if (n_x == 2) second = lanes_of_inputs(x[1] + c, count);
    struct lanes weights = lanes_of_columns(layout, w[0], c, count);
    sums[0] = lanes_fma(weights, first, sums[0]);
    if (n_x == 1) weights = lanes_of_columns(layout, w[1], c, count);
    sums[1] = lanes_fma(weights, second, sums[1]);
    weights = lanes_of_columns(layout, w[n_x == 1 ? 2 : 1], c, count);
    sums[2] = lanes_fma(weights, first, sums[2]);
    if (n_x == 1) weights = lanes_of_columns(layout, w[3], c, count);
    sums[3] = lanes_fma(weights, second, sums[3]);
}

/* Adds columns begin .. end-1 to the lanes of the four. begin is a multiple of 16; n_x a constant. */
INLINE void lanes_dots(enum layout layout, struct lanes sums[DOTS], const unsigned char *const w[DOTS],
                       const float *const x[2], size_t n_x, size_t begin, size_t end)
{
    struct lanes s[DOTS] = {sums[0], sums[1], sums[2], sums[3]};
    size_t c = begin;
    for (; c + KERN_LANES <= end; c += KERN_LANES) lanes_step(layout, s, w, x, n_x, c, KERN_LANES);
    if (c < end) lanes_step(layout, s, w, x, n_x, c, end - c);
    sums[0] = s[0];
    sums[1] = s[1];
    sums[2] = s[2];
    sums[3] = s[3];
}

#endif
