#ifndef MODEL_FORWARD_INT_H
#define MODEL_FORWARD_INT_H
/* What the files of the forward pass share: the state of a running pass and its scratch. */
#include "base/arena.h"
#include "kern/kern.h"
#include "model/forward.h"
#include "model/linear.h"
#include "model/rope.h"

/* Outputs of routed experts that are kept apart, so that experts may be computed in any order, while a pass has at most
 * this many. A larger pass takes its experts in ascending id and adds as it goes. */
enum { PARTIAL_OUTPUTS_MAX = 128 };

/* Index keys that are scored at a time. */
enum { INDEX_TILE = 256 };

/* The positions one row attends, for the layers that follow a full layer. */
struct selection {
    uint32_t n;          /* 0: all of 0 .. position */
    uint32_t *positions; /* [index_topk], ascending */
};

/* Scratch of one thread of the team. */
struct thread_scratch {
    float *query;            /* [kv_rank + rope_dim] absorbed query of one head */
    float *mix;              /* [kv_rank] */
    float *scores;           /* [positions_max] */
    const float **rows;      /* [positions_max] what the row attends */
    float *unpacked;         /* [positions_max][latent_width] those rows as floats; NULL when they are stored so */
    const float **tile_rows; /* [INDEX_TILE] */
    float *tile;             /* [INDEX_TILE][index_head_dim] */
    float *rope;             /* [rope_dim] */
    size_t rows_are_for;     /* the row that `rows` was made for, or SIZE_MAX */
    size_t n_rows;
};

/* One expert's work in the current layer: the rows that chose it. */
struct expert_rows {
    uint32_t n, first; /* range in `routes` */
};

struct route {
    uint32_t row, rank; /* rank: the expert's place among the row's experts, ascending id */
    float weight;
};

struct forward {
    struct alloc *alloc;
    struct arena arena;
    struct config config;
    struct weights *weights;
    const struct spine *spine;
    struct kern kern;
    struct linear linear;
    struct team *team;
    struct rope rope;
    struct kv_pool pool;
    struct forward_options options;
    struct forward_observer observer;
    forward_poll_fn *poll;
    void *poll_context;
    struct stage_clock stages;

    /* the pass that runs */
    size_t n_rows;
    struct kv **kv;       /* [rows_max] */
    uint32_t *tokens;     /* [rows_max] */
    uint32_t *positions;  /* [rows_max] */
    float *cosine, *sine; /* [rows_max][rope_dim / 2] */

    /* [rows_max][...] */
    float *stream;   /* [hidden] the residual stream */
    float *normed;   /* [hidden] what attention or the experts read */
    float *update;   /* [hidden] what is added to the stream */
    float *q_latent; /* [q_rank] */
    float *q;        /* [n_heads * (nope_dim + rope_dim)] */
    float *kv_raw;   /* [kv_rank + rope_dim] */
    float *context;  /* [n_heads * value_dim] */
    float *index_q;  /* [index_n_heads * index_head_dim] */
    float *index_k;  /* [index_head_dim] */
    float *index_w;  /* [index_n_heads] */
    struct selection *selections;
    bool *selection_failed;

    float *router_scores;            /* [rows_max][n_experts] sigmoid */
    uint32_t *routed;                /* [rows_max][n_experts_per_token] ascending */
    float *routed_weights;           /* likewise */
    struct expert_rows *expert_rows; /* [n_experts] */
    struct route *routes;            /* [rows_max * n_experts_per_token], by expert */
    uint32_t *wanted;                /* [n_experts] */
    float *expert_in;                /* [rows_max][hidden] rows gathered for one expert */
    float *gate, *up;                /* [rows_max][widest inner] */
    float *expert_out;               /* [rows_max][hidden] */
    float *shared_out;               /* [rows_max][hidden] */
    float *partial;                  /* [PARTIAL_OUTPUTS_MAX][hidden] */

    float *final;      /* [rows_max][hidden] */
    float *mtp_in;     /* [rows_max][2 * hidden]; NULL without MTP */
    float *logit_in;   /* [logit_rows_max][hidden] */
    float *logits;     /* [logit_rows_max][vocab] */
    size_t *logit_row; /* [rows_max] index into logits, or SIZE_MAX */

    struct thread_scratch *threads; /* [team_threads] */
};

/* False, with ERR_CANCELLED, when whoever asked for the pass wants it no longer. */
bool forward_goes_on(struct forward *f, uint32_t layer, struct err *err) MUST_CHECK;

/* update = attention(normed) for the rows of the pass; writes their rows of state. */
bool attention_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* Index keys of the rows, then each row's selection. Reads q_latent and normed. */
bool indexer_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* routed and routed_weights from normed. */
bool router_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* update = experts(normed), router included. */
bool experts_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* y = down(silu(gate x) * up x) for n_rows rows, with the pass's gate and up as scratch. */
void swiglu_run(struct forward *f, float *y, const struct matrix *gate, const struct matrix *up,
                const struct matrix *down, const float *x, size_t n_rows);

static inline const float *vector_of(const struct block_weights *block, enum role role)
{
    return block->role[role].payload;
}

#endif
