#ifndef MODEL_KV_H
#define MODEL_KV_H
/* The state of one sequence: for every position and layer the latent with its rotated key, for every full layer the
 * index key, and the MTP layer's own rows.
 *
 * Memory comes in blocks of KV_BLOCK_ROWS positions that hold all layers, so that a later owner can share a prefix by
 * counting references to blocks. Within a block, a layer's rows are adjacent: [KV_BLOCK_ROWS][width] floats.
 * Owned by one sequence; not shared between threads while a pass writes it. */
#include "base/alloc.h"
#include "fmt/config.h"

enum { KV_BLOCK_ROWS = 64 };

/* Where each layer's rows are inside a block, in floats. Made once per model. */
struct kv_layout {
    uint32_t n_layers;     /* MTP layer included when it is kept */
    uint32_t latent_width; /* kv_rank + rope_dim: latent first, rotated key behind it */
    uint32_t key_width;    /* index_head_dim */
    uint64_t latent_at[CONFIG_LAYERS_MAX + 1];
    uint64_t key_at[CONFIG_LAYERS_MAX + 1]; /* KV_NO_KEYS where the layer keeps no index keys */
    uint64_t block_floats;
};

#define KV_NO_KEYS UINT64_MAX

struct kv {
    const struct kv_layout *layout;
    struct alloc *alloc;
    float **blocks; /* [n_blocks] */
    uint32_t n_blocks;
    uint32_t n_rows;     /* positions whose main-layer rows are valid */
    uint32_t n_mtp_rows; /* positions whose MTP rows are valid */
};

void kv_layout_init(struct kv_layout *layout, const struct config *config, bool keeps_index_keys, bool keeps_mtp,
                    bool mtp_keeps_index_keys);

void kv_init(struct kv *kv, const struct kv_layout *layout, struct alloc *alloc);
void kv_fini(struct kv *kv);

/* Makes sure that rows 0 .. n_rows-1 have memory. On failure the state is as it was. */
bool kv_reserve(struct kv *kv, uint32_t n_rows, struct err *err) MUST_CHECK;

/* Forgets every row from n_rows on (main and MTP). Memory is kept. */
void kv_truncate(struct kv *kv, uint32_t n_rows);

float *kv_latent(const struct kv *kv, uint32_t layer, uint32_t position); /* [latent_width] */
float *kv_key(const struct kv *kv, uint32_t layer, uint32_t position);    /* [key_width] */

#endif
