#include "support/full_headers.h"
#include "support/check.h"

#include <stdlib.h>

enum { LAYERS = 78, TENSORS_MAX = 120000, SHARD_HEADER = 200000 };

struct maker {
    struct full_headers *h;
    uint32_t shard;
    uint64_t floats_at, bytes_at; /* next offset in either region of the shard */
};

static const struct tensor *add(struct maker *m, enum dtype dtype, uint64_t bytes)
{
    struct catalogue *c = &m->h->catalogue;
    uint64_t *at = dtype == DTYPE_F32 ? &m->floats_at : &m->bytes_at;
    assert_true(c->n_tensors < TENSORS_MAX);
    struct tensor *t = &c->tensors[c->n_tensors++];
    *t = (struct tensor){.name = "a tensor", .dtype = dtype, .shard = m->shard, .offset = *at, .bytes = bytes};
    *at += bytes;
    return t;
}

static void fill(struct maker *m, struct weight_source *source, uint64_t rows, uint64_t columns,
                 enum weight_format format)
{
    *source =
        (struct weight_source){.format = format, .rows = (uint32_t)rows, .columns = columns ? (uint32_t)columns : 1};
    if (format == FORMAT_F32) {
        source->payload = add(m, DTYPE_F32, rows * source->columns * 4);
        return;
    }
    source->payload = add(m, DTYPE_U8, rows * (format == FORMAT_INT8_ROW ? columns : columns / 2));
    source->scales = add(m, DTYPE_F32, rows * 4);
}

static bool is_present(const struct config *c, uint32_t layer, enum role_presence presence)
{
    switch (presence) {
    case PRESENT_ALWAYS: return true;
    case PRESENT_BIAS: return false;
    case PRESENT_FULL: return layer < LAYERS && c->is_full[layer];
    case PRESENT_DENSE: return layer < LAYERS && !c->is_sparse[layer];
    case PRESENT_SPARSE: return c->is_sparse[layer];
    case PRESENT_MTP: return layer == LAYERS;
    }
    return false;
}

static void add_layer(struct maker *m, uint32_t layer)
{
    const struct config *c = &m->h->config;
    struct layer_sources *sources = &m->h->inventory.layers[layer];
    enum weight_format quantised = layer == LAYERS ? FORMAT_INT8_ROW : FORMAT_INT4_ROW;
    m->shard = layer;
    m->floats_at = SHARD_HEADER;
    m->bytes_at = SHARD_HEADER + 64 * 1024 * 1024 + 8; /* behind all floats of a layer; never page aligned */
#define X(role_name, name, rows, columns, presence)                                                     \
    if (is_present(c, layer, presence)) {                                                               \
        bool is_float = (columns) == 0 || ROLE_##role_name == ROLE_ROUTER;                              \
        bool is_index = ROLE_##role_name >= ROLE_INDEX_Q && ROLE_##role_name <= ROLE_INDEX_K_NORM_BIAS; \
        fill(m, &sources->role[ROLE_##role_name], rows, columns,                                        \
             is_float   ? FORMAT_F32                                                                    \
             : is_index ? FORMAT_INT8_ROW                                                               \
                        : quantised);                                                                   \
    }
    ROLE_LIST(X)
#undef X
    if (!c->is_sparse[layer]) return;
    sources->experts = calloc(c->n_experts, sizeof *sources->experts);
    assert_non_null(sources->experts);
    for (uint32_t e = 0; e < c->n_experts; e++) {
        fill(m, &sources->experts[e][EXPERT_DOWN], c->hidden, c->expert_inner, quantised);
        fill(m, &sources->experts[e][EXPERT_GATE], c->expert_inner, c->hidden, quantised);
        fill(m, &sources->experts[e][EXPERT_UP], c->expert_inner, c->hidden, quantised);
    }
}

static struct config full_config(void)
{
    struct config c = {.vocab = 154880,
                       .hidden = 6144,
                       .n_layers = LAYERS,
                       .dense_inner = 12288,
                       .expert_inner = 2048,
                       .n_experts = 256,
                       .n_experts_per_token = 8,
                       .n_shared_experts = 1,
                       .n_expert_groups = 1,
                       .n_expert_groups_kept = 1,
                       .n_heads = 64,
                       .q_rank = 2048,
                       .kv_rank = 512,
                       .nope_dim = 192,
                       .rope_dim = 64,
                       .value_dim = 256,
                       .index_topk = 2048,
                       .index_n_heads = 32,
                       .index_head_dim = 128,
                       .declares_mtp = true};
    for (uint32_t l = 0; l <= LAYERS; l++) {
        c.is_sparse[l] = l >= 3;
        c.is_full[l] = l < 3 || (l < LAYERS && l % 4 == 2);
    }
    return c;
}

void full_headers_make(struct full_headers *h)
{
    *h = (struct full_headers){.config = full_config()};
    h->catalogue.tensors = calloc(TENSORS_MAX, sizeof *h->catalogue.tensors);
    h->catalogue.shards = calloc(LAYERS + 2, sizeof *h->catalogue.shards);
    h->catalogue.n_shards = LAYERS + 2;
    h->inventory = (struct inventory){.config = &h->config,
                                      .catalogue = &h->catalogue,
                                      .layers = calloc(LAYERS + 1, sizeof *h->inventory.layers),
                                      .dsa = CAPABILITY_PRESENT,
                                      .mtp = CAPABILITY_PRESENT};
    assert_non_null(h->catalogue.tensors);
    assert_non_null(h->catalogue.shards);
    assert_non_null(h->inventory.layers);
    struct maker m = {.h = h};
    for (uint32_t layer = 0; layer <= LAYERS; layer++) add_layer(&m, layer);
    m.shard = LAYERS + 1;
    m.floats_at = SHARD_HEADER;
    m.bytes_at = SHARD_HEADER + 4 * 1024 * 1024;
    fill(&m, &h->inventory.model[MODEL_EMBED], h->config.vocab, h->config.hidden, FORMAT_INT8_ROW);
    fill(&m, &h->inventory.model[MODEL_HEAD], h->config.vocab, h->config.hidden, FORMAT_INT8_ROW);
    fill(&m, &h->inventory.model[MODEL_FINAL_NORM], h->config.hidden, 0, FORMAT_F32);
}

void full_headers_free(struct full_headers *h)
{
    for (uint32_t layer = 0; layer <= LAYERS; layer++) free(h->inventory.layers[layer].experts);
    free(h->inventory.layers);
    free(h->catalogue.shards);
    free(h->catalogue.tensors);
}
