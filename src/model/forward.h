#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H
/* The forward pass of glm_moe_dsa: embedding, pre-norm blocks of latent attention and experts, head; and the MTP layer
 * as a step of its own.
 *
 * A pass takes rows: one token of one sequence each. Rows of several sequences may share a pass, and rows of one
 * sequence are a stretch of consecutive positions that begins where its state ends. A row's result depends on its own
 * sequence only: never on its neighbours, on how a prompt was cut into passes, or on the number of threads.
 *
 * Owner: the engine thread. Everything is allocated by forward_new; a pass allocates only sequence state.
 */
#include "fmt/config.h"
#include "model/kv.h"
#include "model/numerics.h"
#include "model/stages.h"
#include "model/weights.h"
#include "par/team.h"

struct kern;
struct forward;

struct forward_row {
    struct kv *kv;
    uint32_t token;
    uint32_t position; /* kv->n_rows for a sequence's first row in the pass, then ascending by one */
    bool wants_logits;
};

/* One row of the MTP layer: the token behind `position`, and the model's hidden state at `position`. */
struct forward_mtp_row {
    struct kv *kv;
    uint32_t token; /* at position + 1 */
    uint32_t position;
    const float *hidden; /* [hidden]: after the final norm for a true row, what the chain says for a drafted one */
    bool wants_logits;
    bool takes_selection;  /* over, from row `selection_of` of the latest pass of the MTP layer, which is of the same */
    uint32_t selection_of; /* sequence and not in front of this one; its own position comes in for the lowest */
};

/* What a pass tells while it runs: for traces and tests. Members may be NULL. Called on the engine thread, except
 * index_scores, which any thread of the team may call. Pointers are good during the call only. */
struct forward_observer {
    void *context;
    /* After layer `layer`: the residual stream, [n_rows][hidden]. */
    void (*hidden)(void *context, uint32_t layer, const float *x, size_t n_rows);
    /* Indexer scores of one row over the n positions that it can see; only where a selection is made. */
    void (*index_scores)(void *context, uint32_t layer, size_t row, const float *scores, size_t n);
    /* What a full layer selected for a row, ascending; n == 0: all that it can see. */
    void (*selected)(void *context, uint32_t layer, size_t row, const uint32_t *positions, size_t n);
    /* The experts of a row, ascending, with their final weights. */
    void (*routed)(void *context, uint32_t layer, size_t row, const uint32_t *experts, const float *weights, size_t n);
};

struct forward_options {
    uint32_t rows_max;          /* rows of one pass */
    uint32_t logit_rows_max;    /* rows of one pass that may want logits */
    uint32_t positions_max;     /* tokens of one sequence */
    enum kv_storage kv_storage; /* how sequence state is stored; anything but f32 changes the function */
    uint32_t kv_blocks_max;     /* ceiling of all sequences' state, in blocks; 0: none */
    enum numerics numerics;     /* anything but exact changes the function */
    bool select_always;         /* run the indexer also where it would keep everything: must not change a bit */
    bool foresees;              /* hint at the next layer's experts while a layer runs: never changes a bit */
    bool mtp_is_dense;          /* the MTP layer attends all its rows even when it has an indexer */
};

/* What forward_new takes for such a pass, in bytes: the plan sets as much aside. */
struct forward_scratch {
    uint64_t pass_bytes;   /* for rows_max rows */
    uint64_t logits_bytes; /* for logit_rows_max of them */
    uint64_t thread_bytes; /* for each thread */
};
struct forward_scratch forward_scratch_of(const struct config *config, const struct forward_options *options,
                                          bool has_mtp);

bool forward_new(struct forward **forward, struct alloc *alloc, const struct config *config, struct weights *weights,
                 const struct kern *kern, struct team *team, const struct forward_options *options,
                 struct err *err) MUST_CHECK;
void forward_free(struct forward *forward); /* NULL is fine */

/* Where the state of sequences for this forward pass comes from; they must be gone before forward_free. */
struct kv_pool *forward_kv_pool(struct forward *forward);
void forward_observe(struct forward *forward, const struct forward_observer *observer); /* NULL: nobody */

/* Asked on the engine thread before every few embedding rows, every layer and every expert, and between tiles of rows,
 * by the MTP layer too; false calls the pass off: it fails with ERR_CANCELLED and no sequence has moved. NULL: never
 * asked. */
typedef bool forward_poll_fn(void *context, uint32_t layer);
void forward_set_poll(struct forward *forward, forward_poll_fn *poll, void *context);

/* Time by stage is counted from here on. now_ns NULL: no longer. */
void forward_set_clock(struct forward *forward, stage_now_fn *now_ns, void *context);
const struct stage_times *forward_times(const struct forward *forward);

/* Runs the rows through all layers and moves each sequence's n_rows. On failure no sequence has moved. */
bool forward_pass(struct forward *forward, const struct forward_row *rows, size_t n_rows, struct err *err) MUST_CHECK;

/* Runs the rows through the MTP layer and moves each sequence's n_mtp_rows. Needs a spine that has MTP. */
bool forward_mtp(struct forward *forward, const struct forward_mtp_row *rows, size_t n_rows,
                 struct err *err) MUST_CHECK;

/* Of the latest pass, good until the next one. */
const float *forward_logits(const struct forward *forward, size_t row); /* [vocab]; of a row that wanted them */
const float *forward_final(const struct forward *forward, size_t row);  /* [hidden] after the last norm: model.norm, or
                                                                           shared_head.norm after forward_mtp */
const float *forward_stream(const struct forward *forward, size_t row); /* [hidden] before that norm */

/* Index of the largest value; the lowest on a tie; NaN never wins. */
uint32_t forward_argmax(const float *logits, size_t n);

#endif
