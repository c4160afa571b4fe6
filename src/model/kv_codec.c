#include "model/kv_codec.h"

#include "base/assert.h"
#include "fmt/dequantise.h"
#include <math.h>
#include <string.h>

static size_t f32_bytes(size_t n)
{
    return n * sizeof(float);
}
static void f32_pack(void *out, const float *in, size_t n)
{
    memcpy(out, in, n * sizeof *in);
}
static void f32_unpack(float *out, const void *in, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

/* Nearest half, ties to even. Values beyond the range become infinite, as IEEE 754 says. */
static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to 65536 or more */
    if (magnitude < 0x38800000) { /* below the smallest normal half: an integer multiple of 2^-24 */
        float scaled = fabsf(value) * 0x1p24f;
        return (uint16_t)(sign | (uint32_t)lrintf(scaled));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded - 0x38000000) >> 13));
}

static size_t f16_bytes(size_t n)
{
    return n * sizeof(uint16_t);
}

static void f16_pack(void *out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t half = half_of(in[i]);
        memcpy((char *)out + i * sizeof half, &half, sizeof half);
    }
}

static void f16_unpack(float *out, const void *in, size_t n)
{
    float_from_f16(out, in, n);
}

/* Group by group: one f32 scale, then the bytes. */
static size_t q8_bytes(size_t n)
{
    return n + (n + KV_Q8_GROUP - 1) / KV_Q8_GROUP * sizeof(float);
}

static void q8_pack(void *out, const float *in, size_t n)
{
    char *to = out;
    for (size_t first = 0; first < n; first += KV_Q8_GROUP) {
        size_t width = n - first < KV_Q8_GROUP ? n - first : KV_Q8_GROUP;
        float largest = 0;
        for (size_t i = 0; i < width; i++) largest = fmaxf(largest, fabsf(in[first + i]));
        float scale = largest / 127.0f;
        memcpy(to, &scale, sizeof scale);
        to += sizeof scale;
        for (size_t i = 0; i < width; i++) to[i] = (char)(scale > 0 ? lrintf(in[first + i] / scale) : 0);
        to += width;
    }
}

static void q8_unpack(float *out, const void *in, size_t n)
{
    const char *from = in;
    for (size_t first = 0; first < n; first += KV_Q8_GROUP) {
        size_t width = n - first < KV_Q8_GROUP ? n - first : KV_Q8_GROUP;
        float scale;
        memcpy(&scale, from, sizeof scale);
        from += sizeof scale;
        for (size_t i = 0; i < width; i++) out[first + i] = (float)(int8_t)from[i] * scale;
        from += width;
    }
}

const struct kv_codec *kv_codec_of(enum kv_storage storage)
{
    static const struct kv_codec codecs[KV_STORAGES] = {
        [KV_STORAGE_F32] = {"f32", f32_bytes, f32_pack, f32_unpack},
        [KV_STORAGE_F16] = {"f16", f16_bytes, f16_pack, f16_unpack},
        [KV_STORAGE_Q8] = {"q8", q8_bytes, q8_pack, q8_unpack},
    };
    ASSERT((unsigned)storage < KV_STORAGES);
    return &codecs[storage];
}
