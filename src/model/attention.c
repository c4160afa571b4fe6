/* Multi-head latent attention in the absorbed form, for every row in every phase.
 *
 * The cache holds one latent c and one rotated key r per token. A head's query is carried into the latent space once
 * (W_K transposed), so scores are dot products with cached rows and the value mix is a mix of cached rows (W_V after
 * it). Visible positions are walked in ascending order, selected or not: so selecting everything equals dense bit for
 * bit. */
#include "base/assert.h"
#include "model/forward_int.h"
#include <math.h>
#include <string.h>

struct attention {
    struct forward *f;
    const struct block_weights *block;
    uint32_t layer;
    float scale;
};

static void add_bias(struct forward *f, float *y, const struct matrix *bias)
{
    if (!bias->payload) return;
    for (size_t r = 0; r < f->n_rows; r++) f->kern.add(y + r * bias->rows, bias->payload, bias->rows);
}

static void norm_rows(struct forward *f, float *x, const float *w, size_t n)
{
    for (size_t r = 0; r < f->n_rows; r++) f->kern.rmsnorm(x + r * n, x + r * n, w, n, f->config.latent_eps);
}

static void project_query(struct forward *f, const struct block_weights *block)
{
    const struct config *c = &f->config;
    size_t head_dim = c->nope_dim + c->rope_dim, pairs = c->rope_dim / 2;

    linear_apply(&f->linear, f->q_latent, &block->role[ROLE_Q_A], f->normed, f->n_rows);
    add_bias(f, f->q_latent, &block->role[ROLE_Q_A_BIAS]);
    norm_rows(f, f->q_latent, vector_of(block, ROLE_Q_A_NORM), c->q_rank);
    linear_apply(&f->linear, f->q, &block->role[ROLE_Q_B], f->q_latent, f->n_rows);
    for (size_t r = 0; r < f->n_rows; r++)
        for (size_t h = 0; h < c->n_heads; h++) /* a head is [nope | rope] */
            f->kern.rope(f->q + (r * c->n_heads + h) * head_dim + c->nope_dim, f->threads[0].rope,
                         f->cosine + r * pairs, f->sine + r * pairs, pairs);
}

/* Writes the rows' latents and rotated keys into their sequences' state. */
static void append_latents(struct forward *f, uint32_t layer, const struct block_weights *block)
{
    const struct config *c = &f->config;
    size_t width = c->kv_rank + c->rope_dim, pairs = c->rope_dim / 2;

    linear_apply(&f->linear, f->kv_raw, &block->role[ROLE_KV_A], f->normed, f->n_rows);
    add_bias(f, f->kv_raw, &block->role[ROLE_KV_A_BIAS]);
    for (size_t r = 0; r < f->n_rows; r++) {
        float *raw = f->kv_raw + r * width; /* [latent | rope]; only the latent is normed */
        f->kern.rmsnorm(raw, raw, vector_of(block, ROLE_KV_A_NORM), c->kv_rank, c->latent_eps);
        f->kern.rope(raw + c->kv_rank, f->threads[0].rope, f->cosine + r * pairs, f->sine + r * pairs, pairs);
        kv_put_latent(f->kv[r], layer, f->positions[r], raw);
    }
}

/* The cached rows that row `row` attends, in ascending position. */
static void list_visible(const struct attention *a, struct thread_scratch *t, size_t row)
{
    const struct forward *f = a->f;
    const struct selection *selection = &f->selections[row];
    if (t->rows_are_for == row) return;
    t->rows_are_for = row;
    t->n_rows = selection->n ? selection->n : (size_t)f->positions[row] + 1;
    for (size_t i = 0; i < t->n_rows; i++) {
        uint32_t position = selection->n ? selection->positions[i] : (uint32_t)i;
        float *scratch = t->unpacked ? t->unpacked + i * f->pool.layout.latent_width : NULL;
        t->rows[i] = kv_latent(f->kv[row], a->layer, position, scratch);
    }
}

static void attend_head(const struct attention *a, struct thread_scratch *t, size_t row, size_t head)
{
    const struct forward *f = a->f;
    const struct config *c = &f->config;
    size_t head_dim = c->nope_dim + c->rope_dim;
    const float *q = f->q + (row * c->n_heads + head) * head_dim;
    const struct matrix *kv_b = &a->block->role[ROLE_KV_B]; /* per head: nope_dim rows W_K, value_dim rows W_V */
    uint32_t first = (uint32_t)head * (c->nope_dim + c->value_dim);
    struct matrix w_k = matrix_rows(kv_b, first, c->nope_dim);
    struct matrix w_v = matrix_rows(kv_b, first + c->nope_dim, c->value_dim);

    linear_row_transposed(&f->linear, t->query, &w_k, q);
    memcpy(t->query + c->kv_rank, q + c->nope_dim, c->rope_dim * sizeof(float));
    size_t width = c->kv_rank + c->rope_dim;
    f->kern.gather_dots(t->scores, t->n_rows, t->query, width, 1, t->rows, t->n_rows, width, a->scale);
    f->kern.softmax(t->scores, t->n_rows);
    memset(t->mix, 0, c->kv_rank * sizeof *t->mix);
    f->kern.gather_mixes(t->mix, c->kv_rank, t->scores, t->n_rows, 1, t->rows, t->n_rows, c->kv_rank);
    linear_row(&f->linear, f->context + (row * c->n_heads + head) * c->value_dim, &w_v, t->mix);
}

/* Items are (row, head), row-major, so that a range shares its list of visible rows. */
static void attend_range(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct attention *a = context;
    struct thread_scratch *t = &a->f->threads[thread];
    size_t n_heads = a->f->config.n_heads;
    for (size_t item = begin; item < end; item++) {
        list_visible(a, t, item / n_heads);
        attend_head(a, t, item / n_heads, item % n_heads);
    }
}

bool attention_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err)
{
    const struct config *c = &f->config;
    project_query(f, block);
    append_latents(f, layer, block);
    stage_end(&f->stages, STAGE_PROJECT);
    if (!indexer_run(f, layer, block, err)) return false;
    stage_end(&f->stages, STAGE_INDEX);

    struct attention a = {
        .f = f, .block = block, .layer = layer, .scale = 1.0f / sqrtf((float)(c->nope_dim + c->rope_dim))};
    for (unsigned i = 0; i < team_threads(f->team); i++) f->threads[i].rows_are_for = SIZE_MAX;
    team_run(f->team, f->n_rows * c->n_heads, 1, attend_range, &a);
    stage_end(&f->stages, STAGE_ATTEND);
    linear_apply(&f->linear, f->update, &block->role[ROLE_O], f->context, f->n_rows);
    add_bias(f, f->update, &block->role[ROLE_O_BIAS]);
    stage_end(&f->stages, STAGE_PROJECT);
    return true;
}
