#include "model/kv.h"

#include "base/assert.h"
#include <inttypes.h>
#include <string.h>

/* Rows of f32 are whole cache lines, and vector loads that cross one cost twice. */
enum { CACHE_LINE = 64 };

void kv_layout_init(struct kv_layout *layout, const struct config *config, enum kv_storage storage,
                    bool keeps_index_keys, bool keeps_mtp, bool mtp_keeps_index_keys)
{
    const struct kv_codec *codec = kv_codec_of(storage);
    *layout = (struct kv_layout){
        .storage = storage,
        .n_layers = config->n_layers + (keeps_mtp ? 1 : 0),
        .latent_width = config->kv_rank + config->rope_dim,
        .key_width = config->index_head_dim,
    };
    layout->latent_bytes = codec->row_bytes(layout->latent_width);
    layout->key_bytes = codec->row_bytes(layout->key_width);
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < layout->n_layers; layer++) {
        bool is_mtp = layer == config->n_layers;
        bool has_keys = is_mtp ? mtp_keeps_index_keys : keeps_index_keys && config->is_full[layer];
        layout->latent_at[layer] = at;
        at += layout->latent_bytes * KV_BLOCK_ROWS;
        layout->key_at[layer] = has_keys ? at : KV_NO_KEYS;
        if (has_keys) at += layout->key_bytes * KV_BLOCK_ROWS;
    }
    layout->block_bytes = at;
}

void kv_pool_init(struct kv_pool *pool, struct alloc *alloc, const struct kv_layout *layout, uint32_t n_blocks_max)
{
    *pool = (struct kv_pool){.alloc = alloc, .layout = *layout, .n_blocks_max = n_blocks_max};
}

void kv_pool_trim(struct kv_pool *pool)
{
    while (pool->free) {
        struct kv_block *block = pool->free;
        pool->free = block->next_free;
        alloc_put(pool->alloc, block);
    }
}

void kv_pool_fini(struct kv_pool *pool)
{
    ASSERT(pool->n_blocks == 0); /* a sequence outlived its pool */
    kv_pool_trim(pool);
}

static struct kv_block *take_block(struct kv_pool *pool, struct err *err)
{
    struct kv_block *block = pool->free;
    if (pool->n_blocks >= pool->n_blocks_max) {
        err_set(err, ERR_BUSY, "the memory for sequence state is used up: %" PRIu32 " blocks of %d tokens",
                pool->n_blocks_max, KV_BLOCK_ROWS);
        return NULL;
    }
    if (block)
        pool->free = block->next_free;
    else
        block = alloc_get(pool->alloc, sizeof *block + CACHE_LINE + pool->layout.block_bytes, err);
    if (!block) return NULL;
    block->data = (char *)(block + 1);
    block->data += -(uintptr_t)block->data % CACHE_LINE;
    block->n_holders = 1;
    block->next_free = NULL;
    pool->n_blocks++;
    return block;
}

static void let_go(struct kv_pool *pool, struct kv_block *block)
{
    ASSERT(block->n_holders > 0);
    if (--block->n_holders > 0) return;
    block->next_free = pool->free;
    pool->free = block;
    pool->n_blocks--;
}

void kv_init(struct kv *kv, struct kv_pool *pool)
{
    *kv = (struct kv){.pool = pool};
}

void kv_fini(struct kv *kv)
{
    if (!kv->pool) return;
    kv_truncate(kv, 0);
    if (kv->blocks) alloc_put(kv->pool->alloc, kv->blocks);
    *kv = (struct kv){0};
}

static bool make_room(struct kv *kv, uint32_t n_blocks, struct err *err)
{
    if (n_blocks <= kv->n_room) return true;
    uint32_t room = kv->n_room * 2 > n_blocks ? kv->n_room * 2 : n_blocks;
    struct kv_block **blocks = alloc_resize(kv->pool->alloc, kv->blocks, room * sizeof(struct kv_block *), err);
    if (!blocks) return false;
    kv->blocks = blocks;
    kv->n_room = room;
    return true;
}

/* Exchanges a shared block for a copy that is this sequence's own (invariant 1). */
static bool make_own(struct kv *kv, uint32_t at, struct err *err)
{
    struct kv_block *shared = kv->blocks[at];
    if (shared->n_holders == 1) return true;
    struct kv_block *own = take_block(kv->pool, err);
    if (!own) return false;
    memcpy(own->data, shared->data, kv->pool->layout.block_bytes);
    kv->blocks[at] = own;
    let_go(kv->pool, shared);
    return true;
}

bool kv_make_writable(struct kv *kv, uint32_t position, struct err *err)
{
    uint32_t at = position / KV_BLOCK_ROWS;
    if (at < kv->n_blocks) return make_own(kv, at, err);
    if (!make_room(kv, at + 1, err)) return false;
    while (kv->n_blocks <= at) {
        struct kv_block *block = take_block(kv->pool, err);
        if (!block) return false;
        kv->blocks[kv->n_blocks++] = block;
    }
    return true;
}

uint32_t kv_blocks_for(uint32_t n_rows)
{
    return n_rows / KV_BLOCK_ROWS + (n_rows % KV_BLOCK_ROWS != 0);
}

bool kv_fork(struct kv *to, const struct kv *from, uint32_t n_rows, struct err *err)
{
    uint32_t n_blocks = kv_blocks_for(n_rows);
    ASSERT(to->n_blocks == 0);
    ASSERT(to->pool == from->pool);
    ASSERT(n_rows <= from->n_rows);
    if (!make_room(to, n_blocks, err)) return false;
    for (uint32_t i = 0; i < n_blocks; i++) {
        to->blocks[i] = from->blocks[i];
        to->blocks[i]->n_holders++;
    }
    to->n_blocks = n_blocks;
    to->n_rows = n_rows;
    to->n_mtp_rows = from->n_mtp_rows < n_rows ? from->n_mtp_rows : n_rows;
    to->mtp_first = from->mtp_first < to->n_mtp_rows ? from->mtp_first : to->n_mtp_rows;
    return true;
}

void kv_truncate(struct kv *kv, uint32_t n_rows)
{
    uint32_t n_blocks = kv_blocks_for(n_rows);
    while (kv->n_blocks > n_blocks) let_go(kv->pool, kv->blocks[--kv->n_blocks]);
    if (kv->n_rows > n_rows) kv->n_rows = n_rows;
    if (kv->n_mtp_rows > n_rows) kv->n_mtp_rows = n_rows;
    if (kv->mtp_first > kv->n_mtp_rows) kv->mtp_first = kv->n_mtp_rows;
}

static char *row_at(const struct kv *kv, uint32_t position, uint64_t layer_at, size_t row_bytes)
{
    ASSERT(position / KV_BLOCK_ROWS < kv->n_blocks);
    return kv->blocks[position / KV_BLOCK_ROWS]->data + layer_at + (position % KV_BLOCK_ROWS) * row_bytes;
}

static char *latent_at(const struct kv *kv, uint32_t layer, uint32_t position)
{
    const struct kv_layout *layout = &kv->pool->layout;
    ASSERT(layer < layout->n_layers);
    return row_at(kv, position, layout->latent_at[layer], layout->latent_bytes);
}

static char *key_at(const struct kv *kv, uint32_t layer, uint32_t position)
{
    const struct kv_layout *layout = &kv->pool->layout;
    ASSERT(layer < layout->n_layers);
    ASSERT(layout->key_at[layer] != KV_NO_KEYS);
    return row_at(kv, position, layout->key_at[layer], layout->key_bytes);
}

void kv_restart_mtp(struct kv *kv)
{
    kv->mtp_first = kv->n_mtp_rows = kv->n_rows;
}

void kv_put_latent(struct kv *kv, uint32_t layer, uint32_t position, const float *row)
{
    ASSERT(kv->blocks[position / KV_BLOCK_ROWS]->n_holders == 1); /* invariant 1 */
    kv_codec_of(kv->pool->layout.storage)->pack(latent_at(kv, layer, position), row, kv->pool->layout.latent_width);
}

void kv_put_key(struct kv *kv, uint32_t layer, uint32_t position, const float *row)
{
    ASSERT(kv->blocks[position / KV_BLOCK_ROWS]->n_holders == 1); /* invariant 1 */
    kv_codec_of(kv->pool->layout.storage)->pack(key_at(kv, layer, position), row, kv->pool->layout.key_width);
}

static const float *as_floats(enum kv_storage storage, const char *row, size_t width, float *scratch)
{
    if (storage == KV_STORAGE_F32) return (const float *)(const void *)row;
    kv_codec_of(storage)->unpack(scratch, row, width);
    return scratch;
}

const float *kv_latent(const struct kv *kv, uint32_t layer, uint32_t position, float *scratch)
{
    const struct kv_layout *layout = &kv->pool->layout;
    return as_floats(layout->storage, latent_at(kv, layer, position), layout->latent_width, scratch);
}

const float *kv_key(const struct kv *kv, uint32_t layer, uint32_t position, float *scratch)
{
    const struct kv_layout *layout = &kv->pool->layout;
    return as_floats(layout->storage, key_at(kv, layer, position), layout->key_width, scratch);
}
