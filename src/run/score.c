#include "run/score.h"

#include "base/assert.h"
#include <inttypes.h>
#include <math.h>

struct scoring {
    const uint32_t *tokens;
    size_t n, done; /* done: tokens whose following logits were seen */
    uint32_t n_live;
    size_t n_top;
    struct score_candidate *top;
    const struct score_watcher *watcher;
    struct score_result *result;
};

/* log(sum(exp(logits))) in double. */
static double log_sum_of(const float *logits, size_t n)
{
    double best = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if (logits[i] > best) best = logits[i];
    for (size_t i = 0; i < n; i++) sum += exp(logits[i] - best);
    return best + log(sum);
}

/* The n_top largest, best first, the lower id on a tie: insertion into a short list. */
static size_t list_top(const struct scoring *s, const float *logits, double log_sum)
{
    size_t n = 0;
    for (uint32_t id = 0; id < s->n_live; id++) {
        double logprob = logits[id] - log_sum;
        if (n == s->n_top && !(logprob > s->top[n - 1].logprob)) continue;
        size_t at = n < s->n_top ? n++ : n - 1;
        for (; at > 0 && s->top[at - 1].logprob < logprob; at--) s->top[at] = s->top[at - 1];
        s->top[at] = (struct score_candidate){.token = id, .logprob = logprob};
    }
    return n;
}

static bool tell(struct scoring *s, const struct score_token *token, struct err *err)
{
    return !s->watcher->token || s->watcher->token(s->watcher->context, token, err);
}

static bool see_logits(void *context, uint32_t position, const float *logits, struct err *err)
{
    struct scoring *s = context;
    if (s->watcher->logits && !s->watcher->logits(s->watcher->context, position, logits, err)) return false;
    if (++s->done == s->n) return true; /* what follows the last token is nobody's */

    double log_sum = log_sum_of(logits, s->n_live);
    if (!isfinite(log_sum))
        return err_set(err, ERR_FAILED, "position %" PRIu32 ": logits are not finite; try `weir verify`", position);
    uint32_t token = s->tokens[s->done];
    struct score_token scored = {
        .position = position + 1, .token = token, .logprob = logits[token] - log_sum, .top = s->top};
    if (s->n_top) scored.n_top = list_top(s, logits, log_sum);
    s->result->logprob_sum += scored.logprob;
    s->result->n_scored++;
    return tell(s, &scored, err);
}

bool score_run(struct session *session, const uint32_t *tokens, size_t n, size_t n_top, uint32_t n_live,
               const struct score_watcher *watcher, struct score_result *result, struct err *err)
{
    struct alloc *alloc = engine_alloc(session->engine);
    struct scoring s = {
        .tokens = tokens, .n = n, .n_live = n_live, .n_top = n_top, .watcher = watcher, .result = result};
    ASSERT(n > 0);
    ASSERT(n_live <= engine_config(session->engine)->vocab);
    ASSERT(n_top <= SCORE_TOP_MAX);
    *result = (struct score_result){0};
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= n_live)
            return err_set(err, ERR_USER, "token %zu is %" PRIu32 ", outside the vocabulary of %" PRIu32, i, tokens[i],
                           n_live);
    s.top = alloc_get_array(alloc, n_top, sizeof *s.top, err);
    if (!s.top) return false;
    struct score_token opening = {.position = session_tokens(session), .token = tokens[0]};
    bool ok = tell(&s, &opening, err) && session_feed(session, tokens, n, see_logits, &s, err);
    if (ok && result->n_scored) result->perplexity = exp(-result->logprob_sum / (double)result->n_scored);
    alloc_put(alloc, s.top);
    return ok;
}
