#include "run/verify_values.h"

#include <math.h>
#include <string.h>

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static bool is_scale(const char *name)
{
    return ends_with(name, ".qs") || ends_with(name, ".weight_scale_inv");
}

void verify_values_begin(struct verify_values *v, const struct tensor *tensor)
{
    *v = (struct verify_values){.tensor = tensor, .is_scale = is_scale(tensor->name)};
    switch (tensor->dtype) {
    case DTYPE_F32: v->value_bytes = 4; break;
    case DTYPE_F16:
    case DTYPE_BF16: v->value_bytes = 2; break;
    case DTYPE_F8_E4M3: v->value_bytes = 1; break;
    default: break;
    }
}

/* Whatever is not finite comes out not finite; the rest only needs its sign. */
static double value_of(enum dtype dtype, const unsigned char *bytes)
{
    uint32_t bits = 0;
    float value;
    if (dtype == DTYPE_F32) {
        memcpy(&bits, bytes, 4);
    } else if (dtype == DTYPE_BF16) {
        bits = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24;
    } else if (dtype == DTYPE_F16) {
        uint32_t half = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
        uint32_t sign = (half & 0x8000) << 16, mantissa = half & 0x3FF;
        if ((half & 0x7C00) == 0x7C00)
            bits = sign | 0x7F800000 | mantissa << 13;
        else if ((half & 0x7FFF) != 0)
            bits = sign | 0x3F800000;
    } else {
        bits = (bytes[0] & 0x7F) == 0x7F ? 0x7FC00000
               : bytes[0] & 0x7F         ? (uint32_t)(bytes[0] & 0x80) << 24 | 0x3F800000
                                         : 0;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void take(struct verify_values *v, const unsigned char *bytes)
{
    double value = value_of(v->tensor->dtype, bytes);
    if (!isfinite(value) || (v->is_scale && !(value > 0))) {
        if (v->n_bad++ == 0) {
            v->first_bad = v->n_seen;
            v->first_value = value;
        }
    }
    v->n_seen++;
}

/* Most blocks have nothing wrong in them, and this tells so at the speed of memory. */
static bool all_good_floats(const unsigned char *bytes, uint64_t n, bool is_scale)
{
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, bytes + 4 * i, sizeof bits);
        bad |= (bits & 0x7F800000) == 0x7F800000;
        bad |= is_scale && bits - 1 >= 0x7F800000 - 1; /* zero, or its sign bit is set */
    }
    return !bad;
}

void verify_values_add(struct verify_values *v, const unsigned char *bytes, uint64_t n)
{
    if (v->value_bytes == 0) return;
    for (; v->n_held > 0 && n > 0; n--) {
        v->held[v->n_held++] = *bytes++;
        if (v->n_held < v->value_bytes) continue;
        v->n_held = 0;
        take(v, v->held);
    }
    uint64_t whole = n / v->value_bytes;
    if (v->tensor->dtype == DTYPE_F32 && all_good_floats(bytes, whole, v->is_scale))
        v->n_seen += whole;
    else
        for (uint64_t i = 0; i < whole; i++) take(v, bytes + i * v->value_bytes);
    uint64_t used = whole * v->value_bytes;
    if (n > used) memcpy(v->held, bytes + used, n - used);
    if (n > used) v->n_held = (unsigned)(n - used);
}
