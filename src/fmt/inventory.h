#ifndef FMT_INVENTORY_H
#define FMT_INVENTORY_H
/* Which stored tensor plays which part in the model: the catalogue seen through the config.
 *
 * One table of roles (ROLE_LIST) gives names, shapes and presence. inventory_build checks every tensor that a present
 * capability needs and says what the folder holds: core, DSA, MTP; a partial set is refused, never half enabled.
 * Points into the catalogue and is read-only once built. */
#include "base/arena.h"
#include "fmt/catalogue.h"
#include "fmt/config.h"
#include "fmt/format.h"

/* When a layer has a role. */
enum role_presence { PRESENT_ALWAYS, PRESENT_BIAS, PRESENT_FULL, PRESENT_DENSE, PRESENT_SPARSE, PRESENT_MTP };

/* X(role, name behind "model.layers.N.", rows, columns (0: a vector), presence); c is the const struct config *. */
#define ROLE_LIST(X)                                                                                            \
    X(INPUT_NORM, "input_layernorm.weight", c->hidden, 0, PRESENT_ALWAYS)                                       \
    X(POST_NORM, "post_attention_layernorm.weight", c->hidden, 0, PRESENT_ALWAYS)                               \
    X(Q_A, "self_attn.q_a_proj.weight", c->q_rank, c->hidden, PRESENT_ALWAYS)                                   \
    X(Q_A_BIAS, "self_attn.q_a_proj.bias", c->q_rank, 0, PRESENT_BIAS)                                          \
    X(Q_A_NORM, "self_attn.q_a_layernorm.weight", c->q_rank, 0, PRESENT_ALWAYS)                                 \
    X(Q_B, "self_attn.q_b_proj.weight", c->n_heads *(c->nope_dim + c->rope_dim), c->q_rank, PRESENT_ALWAYS)     \
    X(KV_A, "self_attn.kv_a_proj_with_mqa.weight", c->kv_rank + c->rope_dim, c->hidden, PRESENT_ALWAYS)         \
    X(KV_A_BIAS, "self_attn.kv_a_proj_with_mqa.bias", c->kv_rank + c->rope_dim, 0, PRESENT_BIAS)                \
    X(KV_A_NORM, "self_attn.kv_a_layernorm.weight", c->kv_rank, 0, PRESENT_ALWAYS)                              \
    X(KV_B, "self_attn.kv_b_proj.weight", c->n_heads *(c->nope_dim + c->value_dim), c->kv_rank, PRESENT_ALWAYS) \
    X(O, "self_attn.o_proj.weight", c->hidden, c->n_heads * c->value_dim, PRESENT_ALWAYS)                       \
    X(O_BIAS, "self_attn.o_proj.bias", c->hidden, 0, PRESENT_BIAS)                                              \
    X(INDEX_Q, "self_attn.indexer.wq_b.weight", c->index_n_heads * c->index_head_dim, c->q_rank, PRESENT_FULL)  \
    X(INDEX_K, "self_attn.indexer.wk.weight", c->index_head_dim, c->hidden, PRESENT_FULL)                       \
    X(INDEX_HEAD_WEIGHTS, "self_attn.indexer.weights_proj.weight", c->index_n_heads, c->hidden, PRESENT_FULL)   \
    X(INDEX_K_NORM, "self_attn.indexer.k_norm.weight", c->index_head_dim, 0, PRESENT_FULL)                      \
    X(INDEX_K_NORM_BIAS, "self_attn.indexer.k_norm.bias", c->index_head_dim, 0, PRESENT_FULL)                   \
    X(GATE, "mlp.gate_proj.weight", c->dense_inner, c->hidden, PRESENT_DENSE)                                   \
    X(UP, "mlp.up_proj.weight", c->dense_inner, c->hidden, PRESENT_DENSE)                                       \
    X(DOWN, "mlp.down_proj.weight", c->hidden, c->dense_inner, PRESENT_DENSE)                                   \
    X(ROUTER, "mlp.gate.weight", c->n_experts, c->hidden, PRESENT_SPARSE)                                       \
    X(ROUTER_BIAS, "mlp.gate.e_score_correction_bias", c->n_experts, 0, PRESENT_SPARSE)                         \
    X(SHARED_GATE, "mlp.shared_experts.gate_proj.weight", c->n_shared_experts * c->expert_inner, c->hidden,     \
      PRESENT_SPARSE)                                                                                           \
    X(SHARED_UP, "mlp.shared_experts.up_proj.weight", c->n_shared_experts * c->expert_inner, c->hidden,         \
      PRESENT_SPARSE)                                                                                           \
    X(SHARED_DOWN, "mlp.shared_experts.down_proj.weight", c->hidden, c->n_shared_experts * c->expert_inner,     \
      PRESENT_SPARSE)                                                                                           \
    X(EH_PROJ, "eh_proj.weight", c->hidden, 2 * c->hidden, PRESENT_MTP)                                         \
    X(E_NORM, "enorm.weight", c->hidden, 0, PRESENT_MTP)                                                        \
    X(H_NORM, "hnorm.weight", c->hidden, 0, PRESENT_MTP)                                                        \
    X(SHARED_HEAD_NORM, "shared_head.norm.weight", c->hidden, 0, PRESENT_MTP)

enum role {
#define X(role, name, rows, columns, presence) ROLE_##role,
    ROLE_LIST(X)
#undef X
        ROLE_COUNT
};

/* The three roles outside the layers. */
enum model_role { MODEL_EMBED, MODEL_FINAL_NORM, MODEL_HEAD, MODEL_ROLE_COUNT };

/* The three matrices of a routed expert. */
enum expert_part { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_PARTS };

/* Where one weight is on disk. A vector has columns 1 and format F32 (or a checkpoint's F16 or BF16). */
struct weight_source {
    const struct tensor *payload; /* NULL: absent */
    const struct tensor *scales;  /* NULL: the format has none */
    enum weight_format format;
    uint32_t rows, columns, group;
};

struct layer_sources {
    struct weight_source role[ROLE_COUNT];
    struct weight_source (*experts)[EXPERT_PARTS]; /* [n_experts]; NULL in a dense layer */
};

enum capability { CAPABILITY_ABSENT, CAPABILITY_PRESENT, CAPABILITY_REFUSED };

struct inventory {
    const struct config *config;
    const struct catalogue *catalogue;
    struct weight_source model[MODEL_ROLE_COUNT];
    struct layer_sources *layers; /* [n_layers + 1]; the last is the MTP layer, empty unless mtp is present */
    enum capability dsa, mtp;
    bool mtp_has_indexer;                  /* the MTP layer's own, which most containers leave out */
    bool mtp_is_degraded;                  /* present, but its dense matrices have fewer bits than drafting needs */
    char dsa_reason[512], mtp_reason[512]; /* why absent, refused or degraded, for people; else empty */
    uint32_t n_quantised;                  /* matrices in use that have scales */
    uint32_t n_routed_experts;             /* in use, those of the MTP layer included */
    uint32_t n_full_indexers;              /* in use, of main layers */
    uint32_t n_ignored;                    /* tensors that no role uses */
    const char *ignored_tensor;            /* one of them, or NULL */
    uint64_t bytes;                        /* of all payloads and scales in use */
    const uint8_t *is_used;                /* [catalogue->n_tensors] */
    struct arena arena;
};

/* Fails when the core is not complete and right, naming the tensor; a capability that is not is only not PRESENT. Keeps
 * config and catalogue, which must outlive it. */
bool inventory_build(struct inventory *inventory, struct alloc *alloc, const struct config *config,
                     const struct catalogue *catalogue, struct err *err) MUST_CHECK;

/* Safe twice, on a zeroed inventory and after a failed build. */
void inventory_fini(struct inventory *inventory);

/* Payload and scales of one weight, in bytes. */
uint64_t weight_source_bytes(const struct weight_source *source);

#endif
