#ifndef MODEL_KV_CODEC_H
#define MODEL_KV_CODEC_H
/* How a row of sequence state is stored: as it is, or in fewer bytes.
 *
 * f32 is exact. f16 rounds each value to the nearest half (ties to even). q8 stores groups of KV_Q8_GROUP values as
 * signed bytes times one f32 scale, max|x| / 127. A row is packed once, when it is made, and unpacked by every reader,
 * the pass that made it included: so what a token attends to never depends on when it was computed. Pure functions. */
#include <stddef.h>
#include <stdint.h>

enum kv_storage { KV_STORAGE_F32, KV_STORAGE_F16, KV_STORAGE_Q8, KV_STORAGES };
enum { KV_Q8_GROUP = 64 };

struct kv_codec {
    const char *name; /* "f16" */
    size_t (*row_bytes)(size_t n);
    void (*pack)(void *out, const float *in, size_t n);
    void (*unpack)(float *out, const void *in, size_t n);
};

const struct kv_codec *kv_codec_of(enum kv_storage storage);

#endif
