#include "fmt/dequantise.h"

#include "base/assert.h"
#include <stdint.h>
#include <string.h>

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t load16(const unsigned char *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8;
}

/* The magnitude is put where f32 keeps exponent and fraction, which is the value with a wrong exponent bias; a product
 * with a power of two puts the bias right and makes subnormals normal. Infinity and NaN need the top exponent instead.
 */
static float one_f16(uint32_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, magnitude = (half & 0x7fffu) << 13;
    if ((half & 0x7c00u) == 0x7c00u) return from_bits(sign | 0x7f800000u | magnitude);
    float value = from_bits(magnitude) * 0x1p112f;
    return sign ? -value : value;
}

void float_from_f16(float *out, const void *in, size_t n)
{
    const unsigned char *bytes = in;
    for (size_t i = 0; i < n; i++) out[i] = one_f16(load16(bytes + 2 * i));
}

void float_from_bf16(float *out, const void *in, size_t n)
{
    const unsigned char *bytes = in;
    for (size_t i = 0; i < n; i++) out[i] = from_bits(load16(bytes + 2 * i) << 16);
}

static float one_e4m3(uint32_t byte)
{
    uint32_t sign = (byte & 0x80u) << 24, magnitude = (byte & 0x7fu) << 20;
    if ((byte & 0x7fu) == 0x7fu) return from_bits(sign | 0x7fc00000u);
    float value = from_bits(magnitude) * 0x1p120f;
    return sign ? -value : value;
}

/* Subnormal products are slow on some processors, and a table of all 256 values costs less than a long row. */
static void by_table(float *out, const unsigned char *in, size_t n)
{
    float table[256];
    for (uint32_t i = 0; i < 256; i++) table[i] = one_e4m3(i);
    for (size_t i = 0; i < n; i++) out[i] = table[in[i]];
}

void float_from_e4m3(float *out, const void *in, size_t n)
{
    const unsigned char *bytes = in;
    if (n >= 512) {
        by_table(out, bytes, n);
        return;
    }
    for (size_t i = 0; i < n; i++) out[i] = one_e4m3(bytes[i]);
}

static float one_int4(const unsigned char *row, uint32_t i)
{
    uint32_t nibble = i % 2 == 0 ? row[i / 2] & 0xfu : row[i / 2] >> 4;
    return (float)((int32_t)nibble - 8);
}

static float one_int2(const unsigned char *row, uint32_t i)
{
    return (float)((int32_t)(row[i / 4] >> (i % 4 * 2) & 3u) - 2);
}

/* Of each 64 columns, 16 bytes hold the two low bits of every value and 8 bytes the third. */
static float one_int3(const unsigned char *row, uint32_t i)
{
    const unsigned char *low = row + i / 64 * 24, *high = low + 16;
    uint32_t column = i % 64;
    uint32_t value = (low[column / 4] >> (column % 4 * 2) & 3u) | (high[column / 8] >> (column % 8) & 1u) << 2;
    return (float)((int32_t)value - 4);
}

void dequantise_row(float *out, const struct matrix *matrix, uint32_t row)
{
    uint32_t n = matrix->columns;
    const unsigned char *in = (const unsigned char *)matrix->payload + row * format_row_bytes(matrix->format, n);
    const float *scales = matrix->scales;
    switch (matrix->format) {
    case FORMAT_F32: memcpy(out, in, n * sizeof *out); return;
    case FORMAT_F16: float_from_f16(out, in, n); return;
    case FORMAT_BF16: float_from_bf16(out, in, n); return;
    case FORMAT_FP8_BLOCK:
        float_from_e4m3(out, in, n);
        for (uint32_t i = 0; i < n; i++) out[i] *= scales[row / 128 * ((n + 127) / 128) + i / 128];
        return;
    case FORMAT_INT8_ROW:
        for (uint32_t i = 0; i < n; i++) out[i] = (float)(signed char)in[i] * scales[row];
        return;
    case FORMAT_INT4_ROW:
        for (uint32_t i = 0; i < n; i++) out[i] = one_int4(in, i) * scales[row];
        return;
    case FORMAT_INT4_GROUPED:
        scales += row * format_scales(matrix->format, 1, n, matrix->group);
        for (uint32_t i = 0; i < n; i++) out[i] = one_int4(in, i) * scales[i / matrix->group];
        return;
    case FORMAT_INT2_ROW:
        for (uint32_t i = 0; i < n; i++) out[i] = one_int2(in, i) * scales[row];
        return;
    case FORMAT_INT3_G64:
        scales += row * format_scales(matrix->format, 1, n, 0);
        for (uint32_t i = 0; i < n; i++) out[i] = one_int3(in, i) * scales[i / 64];
        return;
    case FORMAT_COUNT: break;
    }
    ASSERT(false);
}
