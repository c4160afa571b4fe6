/* The sparse feed-forward layer: route all rows, ask once for the union of their experts, compute each as it comes.
 *
 * Every (row, expert) output is scaled by its weight and added in ascending expert id, the shared expert last, whatever
 * the order of arrival. A small pass keeps the outputs apart and adds at the end; a large one asks for ascending ids.
 */
#include "base/assert.h"
#include "model/forward_int.h"
#include <string.h>

/* Elements that are worth a thread's while. */
enum { SWIGLU_GRAIN = 1 << 14 };

static void swiglu_range(void *context, size_t begin, size_t end, unsigned thread)
{
    struct forward *f = context;
    (void)thread;
    f->kern.swiglu(f->gate + begin, f->gate + begin, f->up + begin, end - begin);
}

/* y = down(silu(gate x) * up x) for up to FEED_ROWS rows, with the pass's gate and up as scratch. */
static void swiglu_run(struct forward *f, float *y, const struct matrix *gate, const struct matrix *up,
                       const struct matrix *down, const float *x, size_t n_rows)
{
    ASSERT(n_rows <= FEED_ROWS);
    linear_apply_pair(&f->linear, f->gate, gate, f->up, up, x, n_rows);
    team_run(f->team, n_rows * gate->rows, SWIGLU_GRAIN, swiglu_range, f);
    linear_apply(&f->linear, y, down, f->gate, n_rows);
}

bool feed_run(struct forward *f, uint32_t layer, float *y, const struct matrix *gate, const struct matrix *up,
              const struct matrix *down, struct err *err)
{
    for (size_t first = 0; first < f->n_rows; first += FEED_ROWS) {
        size_t n = f->n_rows - first < FEED_ROWS ? f->n_rows - first : FEED_ROWS;
        if (first > 0 && !forward_goes_on(f, layer, err)) return false;
        swiglu_run(f, y + first * down->rows, gate, up, down, f->normed + first * gate->columns, n);
    }
    return true;
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

/* Some of an expert's rows: routes[0 .. n-1]. */
struct expert_tile {
    const struct route *routes;
    bool keeps_apart;
};

static void gather_row(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct expert_tile *tile = context;
    size_t hidden = f->config.hidden;
    (void)t;
    memcpy(f->expert_in + row * hidden, f->normed + tile->routes[row].row * hidden, hidden * sizeof(float));
}

static void scatter_row(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct expert_tile *tile = context;
    const struct route *route = &tile->routes[row];
    size_t hidden = f->config.hidden, k = f->config.n_experts_per_token;
    const float *out = f->expert_out + row * hidden;
    (void)t;
    if (tile->keeps_apart)
        memcpy(f->partial + (route->row * k + route->rank) * hidden, out, hidden * sizeof(float));
    else
        f->kern.axpy(f->update + route->row * hidden, route->weight, out, hidden);
}

static void compute_expert(struct forward *f, const struct lease *lease, bool keeps_apart)
{
    const struct expert_rows *of = &f->expert_rows[lease->expert];
    for (uint32_t first = 0; first < of->n; first += FEED_ROWS) {
        size_t n = of->n - first < FEED_ROWS ? of->n - first : FEED_ROWS;
        const struct expert_tile tile = {.routes = f->routes + of->first + first, .keeps_apart = keeps_apart};
        forward_each_row(f, n, gather_row, &tile);
        swiglu_run(f, f->expert_out, &lease->part[EXPERT_GATE], &lease->part[EXPERT_UP], &lease->part[EXPERT_DOWN],
                   f->expert_in, n);
        forward_each_row(f, n, scatter_row, &tile);
    }
}

/* The row's outputs that were kept apart, in ascending id, then the shared expert's. */
static void finish_row(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const bool *keeps_apart = context;
    size_t hidden = f->config.hidden, k = f->config.n_experts_per_token;
    float *update = f->update + row * hidden;
    (void)t;
    for (size_t i = row * k; *keeps_apart && i < (row + 1) * k; i++)
        f->kern.axpy(update, f->routed_weights[i], f->partial + i * hidden, hidden);
    f->kern.add(update, f->shared_out + row * hidden, hidden);
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
    foresee_run(f, layer + 1);
    stage_end(&f->stages, STAGE_ROUTER);
    if (!feed_run(f, layer, f->shared_out, &block->role[ROLE_SHARED_GATE], &block->role[ROLE_SHARED_UP],
                  &block->role[ROLE_SHARED_DOWN], err)) {
        ops->drop(f->weights);
        return false;
    }
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
    forward_each_row(f, f->n_rows, finish_row, &keeps_apart);
    stage_end(&f->stages, STAGE_EXPERTS);
    return true;
}
