#include "model/kv.h"

#include "base/assert.h"
#include <inttypes.h>

void kv_layout_init(struct kv_layout *layout, const struct config *config, bool keeps_index_keys, bool keeps_mtp,
                    bool mtp_keeps_index_keys)
{
    *layout = (struct kv_layout){
        .n_layers = config->n_layers + (keeps_mtp ? 1 : 0),
        .latent_width = config->kv_rank + config->rope_dim,
        .key_width = config->index_head_dim,
    };
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < layout->n_layers; layer++) {
        bool is_mtp = layer == config->n_layers;
        bool has_keys = is_mtp ? mtp_keeps_index_keys : keeps_index_keys && config->is_full[layer];
        layout->latent_at[layer] = at;
        at += (uint64_t)layout->latent_width * KV_BLOCK_ROWS;
        layout->key_at[layer] = has_keys ? at : KV_NO_KEYS;
        if (has_keys) at += (uint64_t)layout->key_width * KV_BLOCK_ROWS;
    }
    layout->block_floats = at;
}

void kv_init(struct kv *kv, const struct kv_layout *layout, struct alloc *alloc)
{
    *kv = (struct kv){.layout = layout, .alloc = alloc};
}

void kv_fini(struct kv *kv)
{
    for (uint32_t i = 0; i < kv->n_blocks; i++) alloc_put(kv->alloc, kv->blocks[i]);
    if (kv->blocks) alloc_put(kv->alloc, kv->blocks);
    kv->blocks = NULL;
    kv->n_blocks = kv->n_rows = kv->n_mtp_rows = 0;
}

bool kv_reserve(struct kv *kv, uint32_t n_rows, struct err *err)
{
    uint32_t want = n_rows / KV_BLOCK_ROWS + (n_rows % KV_BLOCK_ROWS != 0);
    if (want <= kv->n_blocks) return true;
    float **blocks = alloc_resize(kv->alloc, kv->blocks, want * sizeof *blocks, err);
    if (!blocks) return err_context(err, "state of %" PRIu32 " tokens", n_rows);
    kv->blocks = blocks;
    while (kv->n_blocks < want) {
        float *block = alloc_get_array(kv->alloc, kv->layout->block_floats, sizeof(float), err);
        if (!block) return err_context(err, "state of %" PRIu32 " tokens", n_rows);
        kv->blocks[kv->n_blocks++] = block;
    }
    return true;
}

void kv_truncate(struct kv *kv, uint32_t n_rows)
{
    if (kv->n_rows > n_rows) kv->n_rows = n_rows;
    if (kv->n_mtp_rows > n_rows) kv->n_mtp_rows = n_rows;
}

float *kv_latent(const struct kv *kv, uint32_t layer, uint32_t position)
{
    const struct kv_layout *layout = kv->layout;
    ASSERT(position / KV_BLOCK_ROWS < kv->n_blocks);
    ASSERT(layer < layout->n_layers);
    return kv->blocks[position / KV_BLOCK_ROWS] + layout->latent_at[layer] +
           (uint64_t)(position % KV_BLOCK_ROWS) * layout->latent_width;
}

float *kv_key(const struct kv *kv, uint32_t layer, uint32_t position)
{
    const struct kv_layout *layout = kv->layout;
    ASSERT(position / KV_BLOCK_ROWS < kv->n_blocks);
    ASSERT(layer < layout->n_layers);
    ASSERT(layout->key_at[layer] != KV_NO_KEYS);
    return kv->blocks[position / KV_BLOCK_ROWS] + layout->key_at[layer] +
           (uint64_t)(position % KV_BLOCK_ROWS) * layout->key_width;
}
