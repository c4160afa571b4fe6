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

/* Rows that attention, and the feed-forward parts, take at a time: enough that a pass over the weights is shared by
 * many, few enough that what is wide for each row needs no memory for all rows of a pass. */
enum { ATTEND_ROWS = 128, FEED_ROWS = 256 };

/* Cached rows or index keys that are listed at a time, and unpacked when they are stored narrower. */
enum { BLOCK_ROWS = 256 };

/* Scores that a thread keeps at a time: half a megabyte. */
enum { SCORES_AIM = 1 << 17 };

/* The positions one row attends, for the layers that follow a full layer. */
struct selection {
    bool failed;         /* a score was NaN */
    bool is_taken;       /* over from an earlier pass of the MTP layer: none is made */
    uint32_t first;      /* positions in front of it are not there: those that the MTP layer never saw */
    uint32_t n;          /* 0: all of first .. position */
    uint32_t *positions; /* [index_topk], ascending */
};

/* Scratch of one thread of the team. */
struct thread_scratch {
    float *scores;             /* [scratch_scores]: some heads by what a row attends, or index scores of one row */
    const float **rows;        /* [BLOCK_ROWS] */
    float *unpacked;           /* [BLOCK_ROWS][latent or key width] those rows when they are stored narrower */
    float *rope;               /* [rope_dim] */
    float *choice;             /* [n_experts + n_expert_groups] of the router */
    float *integers;           /* [nope_dim][kv_rank] a head's W_K without its scales */
    const float **weight_rows; /* [nope_dim] into it */
    float *coefficients;       /* [ATTEND_ROWS][nope_dim] */
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
    float *kv_raw;   /* [kv_rank + rope_dim] */
    float *index_q;  /* [index_n_heads * index_head_dim] */
    float *index_k;  /* [index_head_dim] */
    float *index_w;  /* [index_n_heads] */
    struct selection *selections;
    uint32_t *selected; /* [index_topk] where the selections' positions are */
    float *shared_out;  /* [hidden] */
    float *final;       /* [hidden] */

    /* [rows_max or ATTEND_ROWS, the smaller][...] */
    float *q;       /* [n_heads][nope_dim + rope_dim] */
    float *queries; /* [n_heads][kv_rank + rope_dim] absorbed, and then the mixes */
    float *context; /* [n_heads][value_dim] */
    float *ones;    /* [kv_rank] scales that leave integers as they are */

    float *router_scores;             /* [rows_max][n_experts] sigmoid */
    uint32_t *routed;                 /* [rows_max][n_experts_per_token] ascending */
    float *routed_weights;            /* likewise */
    struct expert_rows *expert_rows;  /* [n_experts] */
    struct route *routes;             /* [rows_max * n_experts_per_token], by expert */
    uint32_t *wanted;                 /* [n_experts] */
    uint32_t *foreseen, *foreseen_by; /* [n_experts] of the next layer, and how surely some row wants it */
    float *expert_in, *expert_out;    /* [rows_max or FEED_ROWS, the smaller][hidden] */
    float *gate, *up;                 /* likewise, [widest inner] */
    float *partial;                   /* [PARTIAL_OUTPUTS_MAX][hidden] */

    float *mtp_in;     /* [rows_max][2 * hidden]; NULL without MTP */
    float *logit_in;   /* [logit_rows_max][hidden] */
    float *logits;     /* [logit_rows_max][vocab] */
    size_t *logit_row; /* [rows_max] index into logits, or SIZE_MAX */

    unsigned char *split; /* [scratch_split_bytes] inputs of a product as integers */

    struct thread_scratch *threads; /* [team_threads] */
};

/* All scratch, from the arena. */
bool scratch_get(struct forward *f, struct err *err) MUST_CHECK;

/* Floats in a thread's `scores`: at least a whole context. */
uint64_t scratch_scores(const struct config *config, const struct forward_options *options);
uint64_t scratch_split_bytes(const struct config *config, const struct forward_options *options, bool has_mtp);

/* Calls fn for rows 0 .. n_rows-1, shared out among the team when they are many. */
typedef void row_fn(struct forward *f, const void *context, size_t row, struct thread_scratch *t);
void forward_each_row(struct forward *f, size_t n_rows, row_fn *fn, const void *context);

/* False, with ERR_CANCELLED, when whoever asked for the pass wants it no longer. */
bool forward_goes_on(struct forward *f, uint32_t layer, struct err *err) MUST_CHECK;

/* update = attention(normed) for the rows of the pass; writes their rows of state. */
bool attention_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* Index keys of the rows, then each row's selection. Reads q_latent and normed. */
bool indexer_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* routed and routed_weights from normed. */
bool router_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* Hints at the experts that the first sparse layer from `next` on will want, when that was asked for. */
void foresee_run(struct forward *f, uint32_t next);

/* update = experts(normed), router included. */
bool experts_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err) MUST_CHECK;

/* y = down(silu(gate x) * up x) for all rows x of the pass, from normed; asks between tiles whether it goes on. */
bool feed_run(struct forward *f, uint32_t layer, float *y, const struct matrix *gate, const struct matrix *up,
              const struct matrix *down, struct err *err) MUST_CHECK;

static inline const float *vector_of(const struct block_weights *block, enum role role)
{
    return block->role[role].payload;
}

#endif
