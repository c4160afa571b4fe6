#ifndef MODEL_KV_H
#define MODEL_KV_H
/* The state of sequences: for every position and layer the latent with its rotated key, for every full layer the index
 * key, and the MTP layer's own rows.
 *
 * Memory comes in blocks of KV_BLOCK_ROWS positions that hold all layers. Blocks are counted references: sequences that
 * begin alike share the blocks of their common prefix, and whoever is about to write into a shared block gets a copy of
 * it first. Within a block a layer's rows are adjacent; a row is in the storage of the pool (kv_codec.h).
 *
 * Invariants
 *   1. A block that more than one sequence holds is never written.
 *   2. Rows 0 .. n_rows-1 of every main layer are valid; rows mtp_first .. n_mtp_rows-1 of the MTP layer are, and
 *      n_mtp_rows <= n_rows except while drafting. What is in front of mtp_first was never made: the layer does not
 *      attend it.
 *   3. pool->n_blocks counts the blocks in existence, each once however many sequences hold it; it never passes
 *      n_blocks_max.
 *
 * Pool and sequences belong to the engine thread; the threads of a pass only read rows. */
#include "base/alloc.h"
#include "fmt/config.h"
#include "model/kv_codec.h"

enum { KV_BLOCK_ROWS = 64 };

/* Where each layer's rows are inside a block, in bytes. Made once per model. */
struct kv_layout {
    enum kv_storage storage;
    uint32_t n_layers;              /* MTP layer included when it is kept */
    uint32_t latent_width;          /* kv_rank + rope_dim floats: latent first, rotated key behind it */
    uint32_t key_width;             /* index_head_dim floats */
    size_t latent_bytes, key_bytes; /* of one stored row */
    uint64_t latent_at[CONFIG_LAYERS_MAX + 1];
    uint64_t key_at[CONFIG_LAYERS_MAX + 1]; /* KV_NO_KEYS where the layer keeps no index keys */
    uint64_t block_bytes;
};

#define KV_NO_KEYS UINT64_MAX

struct kv_block {
    uint32_t n_holders;
    struct kv_block *next_free;
    char *data; /* [block_bytes] behind this struct, from the next cache line on */
};

struct kv_pool {
    struct alloc *alloc;
    struct kv_layout layout;
    struct kv_block *free; /* given back, kept for the next */
    uint32_t n_blocks;     /* in use */
    uint32_t n_blocks_max; /* ceiling; UINT32_MAX: none */
};

struct kv {
    struct kv_pool *pool;
    struct kv_block **blocks; /* [n_blocks], room for n_room */
    uint32_t n_blocks, n_room;
    uint32_t n_rows;     /* positions whose main-layer rows are valid */
    uint32_t n_mtp_rows; /* end of the positions whose MTP rows are valid */
    uint32_t mtp_first;  /* the first of them */
};

void kv_layout_init(struct kv_layout *layout, const struct config *config, enum kv_storage storage,
                    bool keeps_index_keys, bool keeps_mtp, bool mtp_keeps_index_keys);

void kv_pool_init(struct kv_pool *pool, struct alloc *alloc, const struct kv_layout *layout, uint32_t n_blocks_max);
void kv_pool_fini(struct kv_pool *pool); /* no sequence may hold a block */

/* Gives unused blocks back to the allocator. */
void kv_pool_trim(struct kv_pool *pool);

void kv_init(struct kv *kv, struct kv_pool *pool);
void kv_fini(struct kv *kv); /* safe twice and on a zeroed struct */

/* Makes sure that the row at `position` can be written: its block exists and is this sequence's alone. ERR_BUSY when
 * the pool's ceiling is reached. On failure no row has changed. */
bool kv_make_writable(struct kv *kv, uint32_t position, struct err *err) MUST_CHECK;

/* An empty `to` takes over the first n_rows rows of `from` by sharing blocks. */
bool kv_fork(struct kv *to, const struct kv *from, uint32_t n_rows, struct err *err) MUST_CHECK;

/* Forgets every row from n_rows on (main and MTP) and lets go of the blocks behind. */
void kv_truncate(struct kv *kv, uint32_t n_rows);

/* The MTP layer begins anew behind the rows that are there: those it has are forgotten. */
void kv_restart_mtp(struct kv *kv);

/* Writes a row; kv_make_writable came before. */
void kv_put_latent(struct kv *kv, uint32_t layer, uint32_t position, const float *row); /* [latent_width] */
void kv_put_key(struct kv *kv, uint32_t layer, uint32_t position, const float *row);    /* [key_width] */

/* A row as floats: in place when it is stored so, else unpacked into `scratch`. */
const float *kv_latent(const struct kv *kv, uint32_t layer, uint32_t position, float *scratch);
const float *kv_key(const struct kv *kv, uint32_t layer, uint32_t position, float *scratch);

/* Blocks that n_rows rows need. */
uint32_t kv_blocks_for(uint32_t n_rows);

#endif
