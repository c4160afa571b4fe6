#ifndef FMT_CONFIG_H
#define FMT_CONFIG_H
/* config.json of a glm_moe_dsa checkpoint, checked and reduced to what the forward pass needs.
 *
 * Values only: no pointers, copied freely. Every key that the mathematics depends on is either in the file or has a
 * default that is right for this architecture; a key that asks for something else is refused by name. */
#include "base/alloc.h"
#include "plat/file.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    CONFIG_LAYERS_MAX = 128, /* main layers; the MTP layer comes behind them */
    CONFIG_EOS_MAX = 16,
    CONFIG_BYTES_MAX = 16 << 20, /* a tree takes many times its text, and real files have some kilobytes */
};

enum mtp_chain { MTP_CHAIN_NORMED, MTP_CHAIN_BLOCK_OUTPUT };

struct config {
    uint32_t vocab;        /* rows of the embedding and of the head */
    uint32_t hidden;       /* width of the residual stream */
    uint32_t n_layers;     /* without the MTP layer, whose index is n_layers */
    uint32_t dense_inner;  /* intermediate_size */
    uint32_t expert_inner; /* moe_intermediate_size */
    uint32_t n_experts;    /* routed */
    uint32_t n_experts_per_token;
    uint32_t n_shared_experts;                      /* the shared expert is n_shared_experts * expert_inner wide */
    uint32_t n_expert_groups, n_expert_groups_kept; /* 1 and 1: no group limit */
    bool normalise_router;                          /* norm_topk_prob */
    float router_scale;                             /* routed_scaling_factor */

    uint32_t n_heads;
    uint32_t q_rank, kv_rank; /* latent widths */
    uint32_t nope_dim, rope_dim, value_dim;
    bool attention_bias; /* biases on q_a, kv_a and o */
    float rope_theta;

    uint32_t index_topk, index_n_heads, index_head_dim;
    bool index_share_for_mtp; /* index_share_for_mtp_iteration */

    float rms_eps, latent_eps;
    bool declares_mtp; /* num_nextn_predict_layers == 1 */
    enum mtp_chain mtp_chain;

    bool is_sparse[CONFIG_LAYERS_MAX + 1]; /* has a router and experts (else a dense MLP); the MTP layer is sparse */
    bool is_full[CONFIG_LAYERS_MAX + 1];   /* has its own indexer (else takes the nearest full layer's selection) */

    uint32_t eos[CONFIG_EOS_MAX]; /* union of config.json and generation_config.json, ascending */
    uint32_t n_eos;
};

/* Reads DIR/config.json and, when present, DIR/generation_config.json. */
bool config_read(struct config *config, struct alloc *alloc, struct file_system fs, const char *dir,
                 struct err *err) MUST_CHECK;

/* The same from text; `name` is for messages. */
bool config_parse(struct config *config, const char *name, const char *json, size_t bytes, struct err *err) MUST_CHECK;

#endif
