/* Which experts the next sparse layer will probably want: its norm and router over the residual stream as it is now,
 * before what lies between is known. Only advice for whoever keeps the weights: nothing of it enters a result. */
#include "model/forward_int.h"
#include <math.h>
#include <string.h>

/* Ids of the row's likeliest experts, the likeliest first. */
static void foresee_row(struct forward *f, size_t row, const float *bias, uint32_t *ids)
{
    const struct config *c = &f->config;
    float *score = f->router_scores + row * c->n_experts;
    f->kern.sigmoid(score, score, c->n_experts);
    for (uint32_t e = 0; e < c->n_experts; e++) score[e] += bias[e];
    for (uint32_t i = 0; i < c->n_experts_per_token; i++) {
        uint32_t best = 0;
        for (uint32_t e = 1; e < c->n_experts; e++)
            if (score[e] > score[best]) best = e;
        ids[i] = best;
        score[best] = -INFINITY;
    }
}

enum { GUESSED = 1, SURE = 2 };

/* Experts of several rows, ascending as they lie on disk, those first of which some row is sure. Returns how many. */
static size_t foresee_rows(struct forward *f, size_t n_rows, const float *bias, size_t *n_sure)
{
    const struct config *c = &f->config;
    uint32_t k = c->n_experts_per_token;
    size_t n = 0;
    memset(f->foreseen_by, 0, c->n_experts * sizeof *f->foreseen_by);
    for (size_t r = 0; r < n_rows; r++) {
        foresee_row(f, r, bias, f->foreseen);
        for (uint32_t i = 0; i < k; i++) {
            uint32_t how = i < (k + 1) / 2 ? SURE : GUESSED, *known = &f->foreseen_by[f->foreseen[i]];
            if (*known < how) *known = how;
        }
    }
    for (uint32_t how = SURE; how >= GUESSED; how--) {
        for (uint32_t e = 0; e < c->n_experts; e++)
            if (f->foreseen_by[e] == how) f->foreseen[n++] = e;
        if (how == SURE) *n_sure = n;
    }
    return n;
}

/* Experts that any row is expected to want; of a single row the likeliest first. The surer half of a row's is worth a
 * read at any time: a wrong guess costs one. */
void foresee_run(struct forward *f, uint32_t next)
{
    const struct config *c = &f->config;
    size_t n_rows = f->n_rows < FEED_ROWS ? f->n_rows : FEED_ROWS, n = c->n_experts_per_token, n_sure = (n + 1) / 2;
    while (next < c->n_layers && !c->is_sparse[next]) next++;
    if (!f->options.foresees || next >= c->n_layers || !f->weights->ops->lacks(f->weights, next)) return;
    const struct block_weights *block = &f->spine->blocks[next];
    const float *bias = vector_of(block, ROLE_ROUTER_BIAS);
    for (size_t r = 0; r < n_rows; r++)
        f->kern.rmsnorm(f->expert_in + r * c->hidden, f->stream + r * c->hidden, vector_of(block, ROLE_POST_NORM),
                        c->hidden, c->rms_eps);
    linear_apply(&f->linear, f->router_scores, &block->role[ROLE_ROUTER], f->expert_in, n_rows);
    if (n_rows == 1)
        foresee_row(f, 0, bias, f->foreseen);
    else
        n = foresee_rows(f, n_rows, bias, &n_sure);
    f->weights->ops->hint(f->weights, next, f->foreseen, n_sure, n);
}
