#include "run/logprob.h"

#include "base/assert.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>

/* A maximum in one variable waits for itself at every step; independent lanes do not. */
enum { LANES = 16 };

float logprob_max(const float *row, uint32_t n)
{
    float lane[LANES], max = -INFINITY;
    uint32_t i = 0;
    for (int l = 0; l < LANES; l++) lane[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = row[i + (uint32_t)l] > lane[l] ? row[i + (uint32_t)l] : lane[l];
    for (int l = 0; l < LANES; l++)
        if (lane[l] > max) max = lane[l];
    for (; i < n; i++)
        if (row[i] > max) max = row[i];
    return max;
}

bool logprob_check_row(const float *row, uint32_t n, struct err *err)
{
    uint32_t n_unsound = 0;
    for (uint32_t i = 0; i < n; i++) n_unsound += !(row[i] <= FLT_MAX); /* a NaN is not either */
    if (n_unsound > 0) {
        uint32_t i = 0;
        while (row[i] <= FLT_MAX) i++;
        return err_set(err, ERR_FAILED,
                       "numerical_error: the logit of id %" PRIu32 " is %g, and %" PRIu32
                       " in all are not numbers below infinity",
                       i, (double)row[i], n_unsound);
    }
    if (logprob_max(row, n) == -INFINITY)
        return err_set(err, ERR_FAILED, "numerical_error: the logits of all %" PRIu32 " ids are -inf", n);
    return true;
}

double logprob_norm(const float *row, uint32_t n)
{
    float max = logprob_max(row, n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)row[i] - (double)max);
    return (double)max + log(sum);
}

void logprob_top(struct logprobs *out, const float *row, uint32_t n, double norm, uint32_t n_top)
{
    ASSERT(n_top <= LOGPROB_TOP_MAX);
    out->n_top = 0;
    if (n_top == 0) return;

    /* Ids come in ascending order, so an equal one belongs behind those already there. */
    float least = -INFINITY;
    for (uint32_t id = 0; id < n; id++) {
        if (!(row[id] > least)) continue;
        double value = (double)row[id] - norm;
        uint32_t at = out->n_top < n_top ? out->n_top++ : n_top - 1;
        while (at > 0 && row[out->top[at - 1].id] < row[id]) {
            out->top[at] = out->top[at - 1];
            at--;
        }
        out->top[at] = (struct logprob){id, value};
        if (out->n_top == n_top) least = row[out->top[n_top - 1].id];
    }
}

bool logprob_row(struct logprobs *out, const float *row, uint32_t n, uint32_t chosen, uint32_t n_top, struct err *err)
{
    ASSERT(chosen < n);
    if (!logprob_check_row(row, n, err)) return false;
    double norm = logprob_norm(row, n);
    logprob_top(out, row, n, norm, n_top);
    out->chosen = (struct logprob){chosen, (double)row[chosen] - norm};
    return true;
}

double logprob_for_json(double value)
{
    return value < -9999 ? -9999 : value;
}
