#ifndef RUN_SAMPLER_H
#define RUN_SAMPLER_H
/* From one row of logits to one token: the whole pipeline in its fixed order.
 *
 *  0  ids without a token, ids the request may not produce, and masked end ids become impossible
 *  1  raw log-probabilities are taken
 *  2  logit_bias     3  repetition penalty     4  presence and frequency penalty     5  grammar
 *  6  a temperature below 1e-5 takes the largest, lowest id on a tie; else logits are divided by it
 *  7  top_k     8  top_p     9  min_p     10  draw
 *
 * The draw inverts the distribution over the ids in descending order with u = philox_unit(key, t), where t counts the
 * generated ids in the history. The total weight of a row or head that nothing has cut is summed by ascending id, that
 * of a cut one in descending order of weight: both in double, so the same row gives the same id everywhere.
 *
 * A struct sampler is scratch: nothing in it outlives a call but memory, and no memory is taken after init. One thread
 * at a time. */
#include "run/history.h"
#include "run/logprob.h"
#include "run/sampler_head.h"
#include "run/sampling.h"

enum sampler_order {
    SAMPLER_TEMPERATURE_FIRST,
    SAMPLER_TEMPERATURE_LAST, /* top_p, min_p, top_k on the row as it is, then temperature: for parity with mlx-lm */
};

struct sampler {
    struct alloc *alloc;
    uint32_t n_logits, n_tokens;
    float *row;      /* [n_tokens] the logits on their way through the steps */
    uint32_t *count; /* [n_logits] how often an id is in a window; zero between calls */
    struct sampler_head head;
};

/* What stays the same for a whole request. Everything is borrowed. */
struct sampler_rules {
    const struct sampling *sampling; /* complete and checked */
    uint64_t key;                    /* of the draws, see run/random.h */
    enum sampler_order order;
    const uint32_t *eos; /* [n_eos] ids that end an answer of this request; masked by ignore_eos and min_tokens */
    uint32_t n_eos;
    const uint32_t *banned; /* [n_banned] added tokens that this request may not produce */
    uint32_t n_banned;
    bool wants_logprobs;
    uint32_t n_top_logprobs; /* up to LOGPROB_TOP_MAX */
};

struct sampler_input {
    const float *logits;           /* [n_logits] */
    const struct history *history; /* all that came before this position, drafts included */
    const uint64_t *allowed;       /* grammar: bit (id % 64) of word (id / 64) for each id below n_tokens; NULL: all */
};

struct sampled {
    uint32_t id;
    struct logprobs logprobs; /* only when the rules want them */
};

/* n_logits is the length of a row; ids from n_tokens on have no token. */
bool sampler_init(struct sampler *sampler, struct alloc *alloc, uint32_t n_logits, uint32_t n_tokens,
                  struct err *err) MUST_CHECK;
void sampler_fini(struct sampler *sampler); /* safe twice and on a zeroed struct */

/* Fails with ERR_FAILED, and a message that names the code for the client: numerical_error for a NaN or +inf
 * among the ids that have a token, or a row with nothing possible; grammar_dead_end when the grammar left nothing. */
bool sampler_pick(struct sampler *sampler, const struct sampler_rules *rules, const struct sampler_input *input,
                  struct sampled *out, struct err *err) MUST_CHECK;

#endif
