#ifndef RUN_SCORE_H
#define RUN_SCORE_H
/* Teacher-forced evaluation: how likely a model finds a text, token by token.
 *
 * Log-probabilities are natural, from the raw logits, summed in double. The first token has none: nothing stands before
 * it. n_live: ids from there on have no token and take no part. */
#include "run/session.h"

struct score_candidate {
    uint32_t token;
    double logprob;
};

struct score_token {
    uint32_t position, token;
    double logprob;                    /* of this token given those before it; 0 for the first */
    const struct score_candidate *top; /* [n_top] the likeliest tokens at this place, best first */
    size_t n_top;
};

struct score_watcher {
    void *context;
    /* For each token in order; may stop the scoring with an error. May be NULL. */
    bool (*token)(void *context, const struct score_token *token, struct err *err);
    /* The logits behind each token. May be NULL. */
    session_logits_fn *logits;
};

struct score_result {
    size_t n_scored; /* tokens with a log-probability */
    double logprob_sum;
    double perplexity; /* exp of the mean negative log-probability; 0 when nothing was scored */
};

enum { SCORE_TOP_MAX = 1000 };

/* Scores the n tokens behind what the session holds. */
bool score_run(struct session *session, const uint32_t *tokens, size_t n, size_t n_top, uint32_t n_live,
               const struct score_watcher *watcher, struct score_result *result, struct err *err) MUST_CHECK;

#endif
