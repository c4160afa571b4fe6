/* The DSA lightning indexer: which positions a row attends.
 *
 * A full layer scores every visible position with a few small heads and keeps the index_topk best (score descending,
 * position ascending); the layers up to the next full one reuse that choice. A row that sees no more than index_topk
 * positions attends them all, and needs no scores. Keys are written for every token, for later selections need them. */
#include "base/assert.h"
#include "model/forward_int.h"
#include <inttypes.h>
#include <math.h>

#define KEY_NORM_EPS 1e-6f

struct indexer {
    struct forward *f;
    uint32_t layer;
    float dot_scale;
};

static void rotate(struct forward *f, float *x, size_t row)
{
    size_t pairs = f->config.rope_dim / 2; /* lanes 0 .. rope_dim-1: the rotated part comes first here */
    f->kern.rope(x, f->threads[0].rope, f->cosine + row * pairs, f->sine + row * pairs, pairs);
}

static void append_keys(struct forward *f, uint32_t layer, const struct block_weights *block)
{
    size_t dim = f->config.index_head_dim;
    linear_apply(&f->linear, f->index_k, &block->role[ROLE_INDEX_K], f->normed, f->n_rows);
    for (size_t r = 0; r < f->n_rows; r++) {
        float *key = f->index_k + r * dim;
        f->kern.layernorm(key, key, vector_of(block, ROLE_INDEX_K_NORM), vector_of(block, ROLE_INDEX_K_NORM_BIAS), dim,
                          KEY_NORM_EPS);
        rotate(f, key, r);
        kv_put_key(f->kv[r], layer, f->positions[r], key);
    }
}

static bool needs_scores(const struct forward *f, size_t row)
{
    return f->options.select_always || f->positions[row] >= f->config.index_topk;
}

static void project_queries(struct forward *f, const struct block_weights *block)
{
    const struct config *c = &f->config;
    float head_scale = 1.0f / sqrtf((float)c->index_n_heads);
    linear_apply(&f->linear, f->index_q, &block->role[ROLE_INDEX_Q], f->q_latent, f->n_rows);
    linear_apply(&f->linear, f->index_w, &block->role[ROLE_INDEX_HEAD_WEIGHTS], f->normed, f->n_rows);
    for (size_t r = 0; r < f->n_rows; r++)
        for (size_t h = 0; h < c->index_n_heads; h++) {
            rotate(f, f->index_q + (r * c->index_n_heads + h) * c->index_head_dim, r);
            f->index_w[r * c->index_n_heads + h] *= head_scale;
        }
}

/* Scores of positions first .. first+n-1, which are a tile: keys that are stored narrower are unpacked once. */
static void score_tile(const struct indexer *ix, struct thread_scratch *t, size_t row, size_t first, size_t n)
{
    const struct forward *f = ix->f;
    const struct config *c = &f->config;
    for (size_t i = 0; i < n; i++)
        t->tile_rows[i] = kv_key(f->kv[row], ix->layer, (uint32_t)(first + i), t->tile + i * c->index_head_dim);
    f->kern.index_scores(t->scores + first, f->index_q + row * c->index_n_heads * c->index_head_dim,
                         f->index_w + row * c->index_n_heads, t->tile_rows, n, c->index_n_heads, c->index_head_dim,
                         ix->dot_scale);
}

static void select_row(const struct indexer *ix, struct thread_scratch *t, size_t row)
{
    struct forward *f = ix->f;
    size_t n = (size_t)f->positions[row] + 1, keep = n < f->config.index_topk ? n : f->config.index_topk;
    struct selection *selection = &f->selections[row];

    for (size_t first = 0; first < n; first += INDEX_TILE)
        score_tile(ix, t, row, first, n - first < INDEX_TILE ? n - first : INDEX_TILE);
    if (f->observer.index_scores) f->observer.index_scores(f->observer.context, ix->layer, row, t->scores, n);
    f->selection_failed[row] = !f->kern.select_top(selection->positions, t->scores, n, keep);
    selection->n = (uint32_t)keep;
}

static void select_range(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct indexer *ix = context;
    for (size_t row = begin; row < end; row++)
        if (needs_scores(ix->f, row)) select_row(ix, &ix->f->threads[thread], row);
}

static bool tell_and_check(struct forward *f, uint32_t layer, struct err *err)
{
    for (size_t r = 0; r < f->n_rows; r++) {
        if (f->selection_failed[r])
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

bool indexer_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err)
{
    bool starts_afresh = layer == 0 || layer == f->config.n_layers || is_selecting(f, layer);
    for (size_t r = 0; starts_afresh && r < f->n_rows; r++) {
        f->selections[r].n = 0;
        f->selection_failed[r] = false;
    }
    if (!is_selecting(f, layer)) return true;

    append_keys(f, layer, block);
    bool any = false;
    for (size_t r = 0; r < f->n_rows; r++) any = any || needs_scores(f, r);
    if (any) {
        struct indexer ix = {.f = f, .layer = layer, .dot_scale = 1.0f / sqrtf((float)f->config.index_head_dim)};
        project_queries(f, block);
        team_run(f->team, f->n_rows, 1, select_range, &ix);
    }
    return tell_and_check(f, layer, err);
}
