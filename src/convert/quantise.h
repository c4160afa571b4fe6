#ifndef CONVERT_QUANTISE_H
#define CONVERT_QUANTISE_H
/* f32 rows to the container's integers, bit for bit as its other writers do it.
 *
 * All arithmetic is f32 under round-to-nearest-even: scale = max(max|w| / qmax, 1e-8) with qmax 127 (int8) or 7 (int4),
 * value = rint(w / scale) clamped to -qmax-1 .. qmax. A true division: a product with 1 / scale rounds differently.
 * Rows and groups are independent, so any blocking of a matrix gives the same bytes. Weights must be finite (see
 * quantise_find_bad). Pure functions, any thread. */
#include <stddef.h>
#include <stdint.h>

/* What quantising cost, summed over all rows given to it, in their order: sqrt(error / energy) is the relative error.
 */
struct quantise_loss {
    double error, energy; /* sums of (w - value * scale)^2 and of w^2 */
};

/* The first NaN or infinity, or n. */
size_t quantise_find_bad(const float *weights, size_t n);

/* payload [columns], two's complement; one scale. */
void quantise_row_int8(uint8_t *payload, float *scale, const float *weights, uint32_t columns,
                       struct quantise_loss *loss);

/* payload [ceil(columns / 2)], even column in the low nibble, stored value + 8, a pad nibble is 0;
 * scales [ceil(columns / group)], or one when group is 0. A group is an even number. */
void quantise_row_int4(uint8_t *payload, float *scales, const float *weights, uint32_t columns, uint32_t group,
                       struct quantise_loss *loss);

#endif
