#ifndef RUN_LOGPROB_H
#define RUN_LOGPROB_H
/* Log-probabilities: natural logarithm of the softmax over the live ids of a row, float in, sums in double.
 *
 * A row here is [n] logits of live ids; -inf marks an id that is not possible. Pure functions, any thread. */
#include "base/err.h"
#include <stdint.h>

enum { LOGPROB_TOP_MAX = 20 };

struct logprob {
    uint32_t id;
    double value;
};

struct logprobs {
    struct logprob chosen;               /* need not be among the top ones */
    uint32_t n_top;                      /* fewer than asked for when fewer ids are possible */
    struct logprob top[LOGPROB_TOP_MAX]; /* descending, ties by lower id */
};

/* Fails with ERR_FAILED and the code numerical_error when the row has a NaN, an infinity above, or no possible id. */
bool logprob_check_row(const float *row, uint32_t n, struct err *err) MUST_CHECK;

/* The largest logit; -inf when nothing is possible. For a row without NaN. */
float logprob_max(const float *row, uint32_t n);

/* The logarithm of the sum of exp(row[i]); row[i] minus this is the log-probability of i. For a checked row. */
double logprob_norm(const float *row, uint32_t n);

/* Fills n_top and top, for a checked row and its norm. n_top is at most LOGPROB_TOP_MAX. */
void logprob_top(struct logprobs *out, const float *row, uint32_t n, double norm, uint32_t n_top);

/* Everything about one row and one id, such as a token of the prompt and the row in front of it. */
bool logprob_row(struct logprobs *out, const float *row, uint32_t n, uint32_t chosen, uint32_t n_top,
                 struct err *err) MUST_CHECK;

/* JSON has no infinity: what is below -9999 is written as -9999. */
double logprob_for_json(double value);

#endif
