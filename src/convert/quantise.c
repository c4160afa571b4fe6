#include "convert/quantise.h"

#include "base/assert.h"
#include <math.h>
#include <string.h>

#define SCALE_MIN 1e-8f /* an all-zero row still has a scale that divides */

static uint32_t magnitude_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffffu;
}

size_t quantise_find_bad(const float *weights, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (magnitude_bits(weights[i]) >= 0x7f800000u) return i;
    return n;
}

static float scale_of(const float *weights, uint32_t n, float value_max)
{
    float largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        float magnitude = fabsf(weights[i]);
        if (magnitude > largest) largest = magnitude;
    }
    float scale = largest / value_max;
    return scale > SCALE_MIN ? scale : SCALE_MIN;
}

static int value_of(float weight, float scale, int value_max)
{
    long value = lrintf(weight / scale);
    if (value > value_max) value = value_max;
    if (value < -value_max - 1) value = -value_max - 1;
    return (int)value;
}

static void count_loss(struct quantise_loss *loss, float weight, int value, float scale)
{
    double missed = (double)weight - (double)value * (double)scale;
    loss->error += missed * missed;
    loss->energy += (double)weight * (double)weight;
}

void quantise_row_int8(uint8_t *payload, float *scale, const float *weights, uint32_t columns,
                       struct quantise_loss *loss)
{
    float s = scale_of(weights, columns, 127);
    for (uint32_t i = 0; i < columns; i++) {
        int value = value_of(weights[i], s, 127);
        payload[i] = (uint8_t)(int8_t)value;
        count_loss(loss, weights[i], value, s);
    }
    *scale = s;
}

void quantise_row_int4(uint8_t *payload, float *scales, const float *weights, uint32_t columns, uint32_t group,
                       struct quantise_loss *loss)
{
    ASSERT(group % 2 == 0); /* a group starts at a byte */
    if (group == 0) group = columns + columns % 2;
    for (uint32_t begin = 0, g = 0; begin < columns; begin += group, g++) {
        uint32_t n = columns - begin < group ? columns - begin : group;
        float s = scale_of(weights + begin, n, 7);
        for (uint32_t i = begin; i < begin + n; i++) {
            int value = value_of(weights[i], s, 7);
            uint8_t nibble = (uint8_t)(value + 8);
            if (i % 2 == 0)
                payload[i / 2] = nibble; /* and 0 above, which is the pad of an odd width */
            else
                payload[i / 2] = (uint8_t)(payload[i / 2] | nibble << 4);
            count_loss(loss, weights[i], value, s);
        }
        scales[g] = s;
    }
}
