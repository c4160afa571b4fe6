/* The DSA lightning indexer: which positions a row attends.
 *
 * A full layer scores every visible position with a few small heads and keeps the index_topk best (score descending,
 * position ascending); the layers up to the next full one reuse that choice. A row that sees no more than index_topk
 * positions attends them all, and needs no scores. Keys are written for every token, for later selections need them. */
#include "model/forward_int.h"
#include <inttypes.h>
#include <math.h>

#define KEY_NORM_EPS 1e-6f

/* Below so many rows for each thread, one long row would keep the others waiting. */
enum { FEW_ROWS_PER_THREAD = 4 };

struct indexer {
    struct forward *f;
    const struct block_weights *block;
    uint32_t layer;
    float dot_scale;
    size_t first_row; /* of those that are scored tile by tile */
    size_t tiles_of_row;
};

static void rotate(struct forward *f, float *x, size_t row, struct thread_scratch *t)
{
    size_t pairs = f->config.rope_dim / 2; /* lanes 0 .. rope_dim-1: the rotated part comes first here */
    f->kern.rope(x, t->rope, f->cosine + row * pairs, f->sine + row * pairs, pairs);
}

static void append_key(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct indexer *ix = context;
    size_t dim = f->config.index_head_dim;
    float *key = f->index_k + row * dim;
    f->kern.layernorm(key, key, vector_of(ix->block, ROLE_INDEX_K_NORM), vector_of(ix->block, ROLE_INDEX_K_NORM_BIAS),
                      dim, KEY_NORM_EPS);
    rotate(f, key, row, t);
    kv_put_key(f->kv[row], ix->layer, f->positions[row], key);
}

static bool needs_scores(const struct forward *f, size_t row)
{
    const struct selection *selection = &f->selections[row];
    if (selection->is_taken) return false;
    return f->options.select_always || f->positions[row] - selection->first >= f->config.index_topk;
}

static void finish_query(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct config *c = &f->config;
    float head_scale = 1.0f / sqrtf((float)c->index_n_heads);
    (void)context;
    for (size_t h = 0; h < c->index_n_heads; h++) {
        rotate(f, f->index_q + (row * c->index_n_heads + h) * c->index_head_dim, row, t);
        f->index_w[row * c->index_n_heads + h] *= head_scale;
    }
}

static void project_queries(const struct indexer *ix)
{
    struct forward *f = ix->f;
    linear_apply(&f->linear, f->index_q, &ix->block->role[ROLE_INDEX_Q], f->q_latent, f->n_rows);
    linear_apply(&f->linear, f->index_w, &ix->block->role[ROLE_INDEX_HEAD_WEIGHTS], f->normed, f->n_rows);
    forward_each_row(f, f->n_rows, finish_query, NULL);
}

/* Scores of the positions of one tile, to their places in `scores`: keys that are stored narrower are unpacked once. */
static void score_tile(const struct indexer *ix, struct thread_scratch *t, size_t row, size_t tile, float *scores)
{
    const struct forward *f = ix->f;
    const struct config *c = &f->config;
    size_t first = tile * BLOCK_ROWS, left = (size_t)f->positions[row] + 1 - first;
    size_t n = left < BLOCK_ROWS ? left : BLOCK_ROWS;
    for (size_t i = 0; i < n; i++) {
        float *scratch = f->options.kv_storage == KV_STORAGE_F32 ? NULL : t->unpacked + i * c->index_head_dim;
        t->rows[i] = kv_key(f->kv[row], ix->layer, (uint32_t)(first + i), scratch);
    }
    f->kern.index_scores(scores + first, f->index_q + row * c->index_n_heads * c->index_head_dim,
                         f->index_w + row * c->index_n_heads, t->rows, n, c->index_n_heads, c->index_head_dim,
                         ix->dot_scale);
}

static size_t tiles_of(const struct forward *f, size_t row)
{
    return f->positions[row] / BLOCK_ROWS + 1;
}

static void select_row(const struct indexer *ix, float *scores, size_t row)
{
    struct forward *f = ix->f;
    struct selection *selection = &f->selections[row];
    size_t n = (size_t)f->positions[row] + 1, there = n - selection->first;
    size_t keep = there < f->config.index_topk ? there : f->config.index_topk;
    for (size_t i = 0; i < selection->first; i++) scores[i] = -INFINITY;
    if (f->observer.index_scores) f->observer.index_scores(f->observer.context, ix->layer, row, scores, n);
    selection->failed = !f->kern.select_top(selection->positions, scores, n, keep);
    selection->n = (uint32_t)keep;
}

/* Rows whose positions are scored between two questions whether the pass goes on. */
enum { SELECT_ROWS = 64 };

/* Many rows: each is one thread's. */
static void select_range(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct indexer *ix = context;
    struct thread_scratch *t = &ix->f->threads[thread];
    for (size_t row = ix->first_row + begin; row < ix->first_row + end; row++) {
        if (!needs_scores(ix->f, row)) continue;
        for (size_t tile = 0; tile < tiles_of(ix->f, row); tile++) score_tile(ix, t, row, tile, t->scores);
        select_row(ix, t->scores, row);
    }
}

/* Few rows: their tiles are shared out. The scores of the k-th are collected in thread k's scratch. */
static void score_range(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct indexer *ix = context;
    struct forward *f = ix->f;
    for (size_t item = begin; item < end; item++) {
        size_t k = item / ix->tiles_of_row, row = ix->first_row + k, tile = item % ix->tiles_of_row;
        if (needs_scores(f, row) && tile < tiles_of(f, row))
            score_tile(ix, &f->threads[thread], row, tile, f->threads[k].scores);
    }
}

static void collect_range(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct indexer *ix = context;
    (void)thread;
    for (size_t k = begin; k < end; k++)
        if (needs_scores(ix->f, ix->first_row + k)) select_row(ix, ix->f->threads[k].scores, ix->first_row + k);
}

static void select_few(struct indexer *ix)
{
    struct forward *f = ix->f;
    size_t threads = team_threads(f->team);
    for (ix->first_row = 0; ix->first_row < f->n_rows; ix->first_row += threads) {
        size_t n = f->n_rows - ix->first_row < threads ? f->n_rows - ix->first_row : threads;
        ix->tiles_of_row = 0;
        for (size_t k = 0; k < n; k++)
            if (tiles_of(f, ix->first_row + k) > ix->tiles_of_row) ix->tiles_of_row = tiles_of(f, ix->first_row + k);
        team_run(f->team, n * ix->tiles_of_row, 1, score_range, ix);
        team_run(f->team, n, 1, collect_range, ix);
    }
}

static bool select_many(struct indexer *ix, struct err *err)
{
    struct forward *f = ix->f;
    for (ix->first_row = 0; ix->first_row < f->n_rows; ix->first_row += SELECT_ROWS) {
        size_t n = f->n_rows - ix->first_row < SELECT_ROWS ? f->n_rows - ix->first_row : SELECT_ROWS;
        if (!forward_goes_on(f, ix->layer, err)) return false;
        team_run(f->team, n, 1, select_range, ix);
    }
    return true;
}

static bool tell_and_check(struct forward *f, uint32_t layer, struct err *err)
{
    for (size_t r = 0; r < f->n_rows; r++) {
        if (f->selections[r].failed)
            return err_set(err, ERR_FAILED,
                           "layer %" PRIu32 ", position %" PRIu32
                           ": an index score is not a number; are the indexer's weights damaged? try `weir verify`",
                           layer, f->positions[r]);
        const struct selection *selection = &f->selections[r];
        if (f->observer.selected)
            f->observer.selected(f->observer.context, layer, r, selection->positions, selection->n);
    }
    return true;
}

/* Whether this layer makes selections of its own; else it takes over what the layer before it attended. */
static bool is_selecting(const struct forward *f, uint32_t layer)
{
    if (layer == f->config.n_layers) return f->spine->mtp_has_indexer && !f->options.mtp_is_dense;
    return f->spine->has_dsa && f->config.is_full[layer];
}

static void start_selection(const struct forward *f, uint32_t layer, struct selection *selection, const struct kv *kv)
{
    bool is_mtp = layer == f->config.n_layers;
    if (is_mtp && selection->is_taken) return;
    *selection = (struct selection){.first = is_mtp ? kv->mtp_first : 0, .positions = selection->positions};
}

bool indexer_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err)
{
    bool starts_afresh = layer == 0 || layer == f->config.n_layers || is_selecting(f, layer);
    for (size_t r = 0; starts_afresh && r < f->n_rows; r++) start_selection(f, layer, &f->selections[r], f->kv[r]);
    if (!is_selecting(f, layer)) return true;

    struct indexer ix = {
        .f = f, .block = block, .layer = layer, .dot_scale = 1.0f / sqrtf((float)f->config.index_head_dim)};
    linear_apply(&f->linear, f->index_k, &block->role[ROLE_INDEX_K], f->normed, f->n_rows);
    forward_each_row(f, f->n_rows, append_key, &ix);
    bool any = false;
    for (size_t r = 0; r < f->n_rows; r++) any = any || needs_scores(f, r);
    if (any) {
        if (!forward_goes_on(f, layer, err)) return false;
        project_queries(&ix);
        if (f->n_rows < FEW_ROWS_PER_THREAD * team_threads(f->team))
            select_few(&ix);
        else if (!select_many(&ix, err))
            return false;
    }
    return tell_and_check(f, layer, err);
}
