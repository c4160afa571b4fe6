/* The sparse feed-forward layer: route all rows, ask once for the union of their experts, compute each as it comes.
 *
 * Every (row, expert) output is scaled by its weight and added in ascending expert id, the shared expert last, whatever
 * the order of arrival. A small pass keeps the outputs apart and adds at the end; a large one asks for ascending ids.
 */
#include "base/assert.h"
#include "model/forward_int.h"
#include <string.h>

void swiglu_run(struct forward *f, float *y, const struct matrix *gate, const struct matrix *up,
                const struct matrix *down, const float *x, size_t n_rows)
{
    linear_apply_pair(&f->linear, f->gate, gate, f->up, up, x, n_rows);
    f->kern.swiglu(f->gate, f->gate, f->up, n_rows * gate->rows);
    linear_apply(&f->linear, y, down, f->gate, n_rows);
}

/* Sorts the routes by expert (rows ascending within one) and lists the experts that anybody chose, ascending. */
static size_t group_by_expert(struct forward *f)
{
    uint32_t k = f->config.n_experts_per_token;
    size_t n_wanted = 0;
    uint32_t first = 0;
    memset(f->expert_rows, 0, f->config.n_experts * sizeof *f->expert_rows);
    for (size_t i = 0; i < f->n_rows * k; i++) f->expert_rows[f->routed[i]].n++;
    for (uint32_t e = 0; e < f->config.n_experts; e++) {
        struct expert_rows *of = &f->expert_rows[e];
        of->first = first;
        first += of->n;
        if (of->n) f->wanted[n_wanted++] = e;
        of->n = 0; /* counts up again below */
    }
    for (size_t i = 0; i < f->n_rows * k; i++) {
        struct expert_rows *of = &f->expert_rows[f->routed[i]];
        f->routes[of->first + of->n++] =
            (struct route){.row = (uint32_t)(i / k), .rank = (uint32_t)(i % k), .weight = f->routed_weights[i]};
    }
    return n_wanted;
}

static void compute_expert(struct forward *f, const struct lease *lease, bool keeps_apart)
{
    size_t hidden = f->config.hidden;
    const struct expert_rows *of = &f->expert_rows[lease->expert];
    const struct route *routes = f->routes + of->first;

    for (uint32_t i = 0; i < of->n; i++)
        memcpy(f->expert_in + i * hidden, f->normed + routes[i].row * hidden, hidden * sizeof(float));
    swiglu_run(f, f->expert_out, &lease->part[EXPERT_GATE], &lease->part[EXPERT_UP], &lease->part[EXPERT_DOWN],
               f->expert_in, of->n);
    for (uint32_t i = 0; i < of->n; i++) {
        const float *out = f->expert_out + i * hidden;
        if (keeps_apart)
            memcpy(f->partial + (routes[i].row * f->config.n_experts_per_token + routes[i].rank) * hidden, out,
                   hidden * sizeof(float));
        else
            f->kern.axpy(f->update + routes[i].row * hidden, routes[i].weight, out, hidden);
    }
}

static void add_partial(struct forward *f)
{
    size_t hidden = f->config.hidden, k = f->config.n_experts_per_token;
    for (size_t i = 0; i < f->n_rows * k; i++) /* ascending id within a row */
        f->kern.axpy(f->update + i / k * hidden, f->routed_weights[i], f->partial + i * hidden, hidden);
}

bool experts_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err)
{
    const struct weights_ops *ops = f->weights->ops;
    size_t n_outputs = f->n_rows * f->config.n_experts_per_token;
    bool keeps_apart = n_outputs <= PARTIAL_OUTPUTS_MAX;

    if (!router_run(f, layer, block, err)) return false;
    size_t n_wanted = group_by_expert(f);
    stage_end(&f->stages, STAGE_ROUTER);
    if (!ops->want(f->weights, layer, f->wanted, n_wanted, keeps_apart ? ORDER_ANY : ORDER_ASCENDING, err))
        return false;

    /* While reads are under way: what needs none. */
    swiglu_run(f, f->shared_out, &block->role[ROLE_SHARED_GATE], &block->role[ROLE_SHARED_UP],
               &block->role[ROLE_SHARED_DOWN], f->normed, f->n_rows);
    stage_end(&f->stages, STAGE_SHARED);

    memset(f->update, 0, f->n_rows * f->config.hidden * sizeof(float));
    for (size_t i = 0; i < n_wanted; i++) {
        struct lease lease;
        if (!forward_goes_on(f, layer, err)) {
            ops->drop(f->weights);
            return false;
        }
        if (!ops->next(f->weights, &lease, err)) return false;
        stage_end(&f->stages, STAGE_WAIT);
        ASSERT(keeps_apart || lease.expert == f->wanted[i]);
        compute_expert(f, &lease, keeps_apart);
        ops->unpin(f->weights, &lease);
        stage_end(&f->stages, STAGE_EXPERTS);
    }
    if (keeps_apart) add_partial(f);
    f->kern.add(f->update, f->shared_out, f->n_rows * f->config.hidden);
    stage_end(&f->stages, STAGE_EXPERTS);
    return true;
}
