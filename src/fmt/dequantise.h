#ifndef FMT_DEQUANTISE_H
#define FMT_DEQUANTISE_H
/* Stored numbers to f32. The three narrow floats are exact: every value of the narrow type has its own f32, NaN stays
 * NaN.
 *
 * `in` is little endian and needs no alignment, because it usually lies in the middle of a file's bytes. The arrays do
 * not overlap. Pure functions, any thread. */
#include "fmt/format.h"
#include <stddef.h>

void float_from_f16(float *out, const void *in, size_t n);
void float_from_bf16(float *out, const void *in, size_t n);

/* OCP e4m3fn: bias 7, no infinities, 0x7f and 0xff are NaN, largest value 448. */
void float_from_e4m3(float *out, const void *in, size_t n);

/* Row `row` of a matrix of any format: columns floats, each the stored number times its scale, rounded once. */
void dequantise_row(float *out, const struct matrix *matrix, uint32_t row);

#endif
