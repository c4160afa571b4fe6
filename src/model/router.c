/* The router: sigmoid scores, a bias that only chooses, the best experts of each row.
 *
 * choice = sigmoid(gate x) + bias; with groups, only the best groups (by the sum of their two best choices) take part;
 * the largest choices win, the lower id on a tie. Weights come from the unbiased scores of the chosen. */
#include "model/forward_int.h"
#include <inttypes.h>
#include <math.h>

/* Sets of experts and groups are small: marking them in place beats sorting. */
#define NOT_ELIGIBLE (-INFINITY)

static uint32_t best_of(const float *choice, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (choice[i] > choice[best]) best = i;
    return best;
}

static float two_best(const float *choice, uint32_t n)
{
    float first = NOT_ELIGIBLE, second = NOT_ELIGIBLE;
    for (uint32_t i = 0; i < n; i++) {
        float c = choice[i];
        if (c > first) {
            second = first;
            first = c;
        } else if (c > second) {
            second = c;
        }
    }
    return n > 1 ? first + second : first;
}

/* Takes the experts of all but the best groups out of the choice. */
static void limit_groups(const struct config *c, float *choice, float *group_score)
{
    uint32_t width = c->n_experts / c->n_expert_groups;
    for (uint32_t g = 0; g < c->n_expert_groups; g++) group_score[g] = two_best(choice + g * width, width);
    for (uint32_t kept = 0; kept < c->n_expert_groups_kept; kept++)
        group_score[best_of(group_score, c->n_expert_groups)] = NOT_ELIGIBLE;
    for (uint32_t g = 0; g < c->n_expert_groups; g++)
        for (uint32_t i = 0; group_score[g] != NOT_ELIGIBLE && i < width; i++) choice[g * width + i] = NOT_ELIGIBLE;
}

static void insert_ascending(uint32_t *ids, uint32_t n, uint32_t id)
{
    for (; n > 0 && ids[n - 1] > id; n--) ids[n] = ids[n - 1];
    ids[n] = id;
}

static void choose(const struct config *c, const float *score, float *choice, uint32_t *ids, float *weights)
{
    for (uint32_t i = 0; i < c->n_experts_per_token; i++) {
        uint32_t best = best_of(choice, c->n_experts);
        choice[best] = NOT_ELIGIBLE;
        insert_ascending(ids, i, best);
    }
    float sum = 0.0f;
    for (uint32_t i = 0; i < c->n_experts_per_token; i++) sum += score[ids[i]];
    for (uint32_t i = 0; i < c->n_experts_per_token; i++) {
        float w = score[ids[i]];
        if (c->normalise_router) w /= sum + 1e-20f;
        weights[i] = w * c->router_scale;
    }
}

/* Stands in a row's first expert id when a choice is not finite. */
#define NOT_FINITE UINT32_MAX

static void route_row(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct config *c = &f->config;
    const float *bias = context;
    float *score = f->router_scores + row * c->n_experts, *choice = t->choice;
    uint32_t *ids = f->routed + row * c->n_experts_per_token;
    bool is_finite = true;
    f->kern.sigmoid(score, score, c->n_experts);
    for (uint32_t e = 0; e < c->n_experts; e++) {
        choice[e] = score[e] + bias[e];
        is_finite = is_finite && isfinite(choice[e]);
    }
    if (!is_finite) {
        ids[0] = NOT_FINITE;
        return;
    }
    if (c->n_expert_groups > 1) limit_groups(c, choice, choice + c->n_experts);
    choose(c, score, choice, ids, f->routed_weights + row * c->n_experts_per_token);
}

static bool refuse_row(const struct forward *f, uint32_t layer, size_t row, const float *bias, struct err *err)
{
    const float *score = f->router_scores + row * f->config.n_experts;
    uint32_t expert = 0;
    while (isfinite(score[expert] + bias[expert])) expert++;
    return err_set(err, ERR_FAILED,
                   "layer %" PRIu32 ", position %" PRIu32 ", expert %" PRIu32
                   ": the router's score is not finite; are weights damaged? try `weir verify`",
                   layer, f->positions[row], expert);
}

bool router_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err)
{
    const float *bias = vector_of(block, ROLE_ROUTER_BIAS);
    size_t k = f->config.n_experts_per_token;
    linear_apply(&f->linear, f->router_scores, &block->role[ROLE_ROUTER], f->normed, f->n_rows);
    forward_each_row(f, f->n_rows, route_row, bias);
    for (size_t r = 0; r < f->n_rows; r++) {
        const uint32_t *ids = f->routed + r * k;
        if (ids[0] == NOT_FINITE) return refuse_row(f, layer, r, bias, err);
        if (f->observer.routed) f->observer.routed(f->observer.context, layer, r, ids, f->routed_weights + r * k, k);
    }
    return true;
}
