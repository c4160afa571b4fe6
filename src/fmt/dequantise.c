#include "fmt/dequantise.h"

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
