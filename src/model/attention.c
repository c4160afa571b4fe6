/* Multi-head latent attention in the absorbed form, for every row in every phase.
 *
 * The cache holds one latent c and one rotated key r per token. A head's query is carried into the latent space once
 * (W_K transposed), so scores are dot products with cached rows and the value mix is a mix of cached rows (W_V after
 * it). Visible positions are walked in ascending order, selected or not: so selecting everything equals dense bit for
 * bit.
 *
 * Rows are taken ATTEND_ROWS at a time, in three steps that each share what is dear. Into the latent space and out of
 * it, a head's weights serve all rows. In between, a row's cached rows serve many heads, a block at a time. None of
 * this shows in a result: each (row, head) has its one order of sums, whoever computes it beside whom. */
#include "base/assert.h"
#include "model/forward_int.h"
#include <math.h>
#include <string.h>

/* From this many rows on, a head's W_K is unpacked once for all of them. */
enum { UNPACK_FROM_ROWS = 4 };

/* So many rows for each thread are shared out well enough as they are. */
enum { MANY_ROWS_PER_THREAD = 8 };

/* Heads of one item come in these. */
enum { HEAD_TILE = 4 };

struct attention {
    struct forward *f;
    const struct block_weights *block;
    uint32_t layer;
    float scale;
    size_t width;                  /* of a cached row: kv_rank + rope_dim */
    size_t first_row, n_rows;      /* the tile */
    size_t item_heads, item_count; /* heads of one item, and such items of one row */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void add_bias(struct forward *f, float *y, const struct matrix *bias, size_t n_rows)
{
    if (!bias->payload) return;
    for (size_t r = 0; r < n_rows; r++) f->kern.add(y + r * bias->rows, bias->payload, bias->rows);
}

/* Norm, rotation and storing of one row's latent; also the norm of its query latent. */
static void finish_latents(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct attention *a = context;
    const struct config *c = &f->config;
    size_t pairs = c->rope_dim / 2;
    float *q_latent = f->q_latent + row * c->q_rank, *raw = f->kv_raw + row * a->width;
    f->kern.rmsnorm(q_latent, q_latent, vector_of(a->block, ROLE_Q_A_NORM), c->q_rank, c->latent_eps);
    /* [latent | rope]; only the latent is normed */
    f->kern.rmsnorm(raw, raw, vector_of(a->block, ROLE_KV_A_NORM), c->kv_rank, c->latent_eps);
    f->kern.rope(raw + c->kv_rank, t->rope, f->cosine + row * pairs, f->sine + row * pairs, pairs);
    kv_put_latent(f->kv[row], a->layer, f->positions[row], raw);
}

static void project_latents(const struct attention *a)
{
    struct forward *f = a->f;
    linear_apply(&f->linear, f->q_latent, &a->block->role[ROLE_Q_A], f->normed, f->n_rows);
    add_bias(f, f->q_latent, &a->block->role[ROLE_Q_A_BIAS], f->n_rows);
    linear_apply(&f->linear, f->kv_raw, &a->block->role[ROLE_KV_A], f->normed, f->n_rows);
    add_bias(f, f->kv_raw, &a->block->role[ROLE_KV_A_BIAS], f->n_rows);
    forward_each_row(f, f->n_rows, finish_latents, a);
}

/* The tile's part of q, and where a head's absorbed query is; its mix takes its place later. */
static float *q_of(const struct attention *a, size_t row, size_t head)
{
    const struct config *c = &a->f->config;
    return a->f->q + (row * c->n_heads + head) * (c->nope_dim + c->rope_dim);
}

static float *query_of(const struct attention *a, size_t row, size_t head)
{
    return a->f->queries + (row * a->f->config.n_heads + head) * a->width;
}

/* A head of q is [nope | rope]. */
static void rotate_queries(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct attention *a = context;
    const struct config *c = &f->config;
    size_t pairs = c->rope_dim / 2, angles = (a->first_row + row) * pairs;
    for (size_t h = 0; h < c->n_heads; h++) {
        float *rope = q_of(a, row, h) + c->nope_dim;
        f->kern.rope(rope, t->rope, f->cosine + angles, f->sine + angles, pairs);
        memcpy(query_of(a, row, h) + c->kv_rank, rope, c->rope_dim * sizeof *rope);
    }
}

static void project_queries(const struct attention *a)
{
    struct forward *f = a->f;
    linear_apply(&f->linear, f->q, &a->block->role[ROLE_Q_B], f->q_latent + a->first_row * f->config.q_rank, a->n_rows);
    forward_each_row(f, a->n_rows, rotate_queries, a);
}

/* kv_b holds per head nope_dim rows of W_K, then value_dim rows of W_V. */
static struct matrix key_weights(const struct attention *a, size_t head)
{
    const struct config *c = &a->f->config;
    return matrix_rows(&a->block->role[ROLE_KV_B], (uint32_t)head * (c->nope_dim + c->value_dim), c->nope_dim);
}

static struct matrix value_weights(const struct attention *a, size_t head)
{
    const struct config *c = &a->f->config;
    return matrix_rows(&a->block->role[ROLE_KV_B], (uint32_t)head * (c->nope_dim + c->value_dim) + c->nope_dim,
                       c->value_dim);
}

/* Items are (row, head). */
static void absorb_few(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct attention *a = context;
    size_t n_heads = a->f->config.n_heads;
    (void)thread;
    for (size_t item = begin; item < end; item++) {
        size_t row = item / n_heads, head = item % n_heads;
        struct matrix w = key_weights(a, head);
        linear_row_transposed(&a->f->linear, query_of(a, row, head), &w, q_of(a, row, head));
    }
}

/* The same sums for all rows of the tile: the weights as integers, the coefficient of one is q * scale, rounded once.
 */
static void absorb_columns(const struct attention *a, struct thread_scratch *t, const struct matrix *w, size_t head,
                           size_t column, size_t step)
{
    const struct config *c = &a->f->config;
    size_t n = smaller(w->columns - column, step);
    size_t q_stride = c->n_heads * (size_t)(c->nope_dim + c->rope_dim), query_stride = c->n_heads * a->width;
    uint64_t row_scales = format_scales(w->format, 1, w->columns, w->group);
    const float *coefficients = q_of(a, 0, head);
    for (size_t o = 0; o < w->rows; o++) t->weight_rows[o] = t->integers + o * w->columns + column;
    if (w->scales) {
        for (size_t r = 0; r < a->n_rows; r++)
            for (size_t o = 0; o < w->rows; o++)
                t->coefficients[r * w->rows + o] = q_of(a, r, head)[o] * w->scales[o * row_scales + column / step];
        coefficients = t->coefficients;
        q_stride = w->rows;
    }
    for (size_t r = 0; r < a->n_rows; r++) memset(query_of(a, r, head) + column, 0, n * sizeof(float));
    a->f->kern.gather_mixes(query_of(a, 0, head) + column, query_stride, coefficients, q_stride, a->n_rows,
                            t->weight_rows, w->rows, n);
}

static size_t columns_of_scale(const struct matrix *w)
{
    return format_scales(w->format, 1, w->columns, w->group) > 1 ? w->group : w->columns;
}

/* Items are heads. */
static void absorb_many(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct attention *a = context;
    struct thread_scratch *t = &a->f->threads[thread];
    for (size_t head = begin; head < end; head++) {
        struct matrix w = key_weights(a, head);
        size_t step = columns_of_scale(&w);
        struct matrix integers = w;
        integers.scales = a->f->ones;
        for (uint32_t o = 0; o < w.rows; o++) {
            struct matrix row = matrix_rows(&integers, o, 1);
            row.scales = a->f->ones;
            linear_unpack(&a->f->linear, t->integers + (size_t)o * w.columns, &row);
        }
        for (size_t column = 0; column < w.columns; column += step) absorb_columns(a, t, &w, head, column, step);
    }
}

/* Up to BLOCK_ROWS cached rows of those that `row` attends, in ascending position, from the first-th on. */
static size_t list_block(const struct attention *a, struct thread_scratch *t, size_t row, size_t first, size_t n)
{
    const struct forward *f = a->f;
    const struct selection *selection = &f->selections[row];
    size_t count = smaller(n - first, BLOCK_ROWS);
    for (size_t i = 0; i < count; i++) {
        uint32_t position = selection->n ? selection->positions[first + i] : selection->first + (uint32_t)(first + i);
        float *scratch = f->options.kv_storage == KV_STORAGE_F32 ? NULL : t->unpacked + i * a->width;
        t->rows[i] = kv_latent(f->kv[row], a->layer, position, scratch);
    }
    return count;
}

static size_t n_visible(const struct forward *f, size_t row)
{
    const struct selection *selection = &f->selections[row];
    return selection->n ? selection->n : (size_t)f->positions[row] + 1 - selection->first;
}

/* From absorbed queries to mixes, for `n_heads` heads of one row. */
static void attend_heads(const struct attention *a, struct thread_scratch *t, size_t tile_row, size_t head,
                         size_t n_heads)
{
    const struct forward *f = a->f;
    const struct kern *kern = &f->kern;
    size_t row = a->first_row + tile_row, n = n_visible(f, row), kv_rank = f->config.kv_rank;
    float *query = query_of(a, tile_row, head);
    for (size_t first = 0; first < n; first += BLOCK_ROWS) {
        size_t count = list_block(a, t, row, first, n);
        kern->gather_dots(t->scores + first, n, query, a->width, n_heads, t->rows, count, a->width, a->scale);
    }
    for (size_t h = 0; h < n_heads; h++) {
        kern->softmax(t->scores + h * n, n);
        memset(query + h * a->width, 0, kv_rank * sizeof *query);
    }
    for (size_t first = 0; first < n; first += BLOCK_ROWS) {
        size_t count = list_block(a, t, row, first, n);
        kern->gather_mixes(query, a->width, t->scores + first, n, n_heads, t->rows, count, kv_rank);
    }
}

/* Items are (row, some heads). */
static void attend_range(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct attention *a = context;
    size_t n_heads = a->f->config.n_heads;
    for (size_t item = begin; item < end; item++) {
        size_t head = item % a->item_count * a->item_heads;
        attend_heads(a, &a->f->threads[thread], item / a->item_count, head, smaller(n_heads - head, a->item_heads));
    }
}

static size_t common_divisor(size_t a, size_t b)
{
    while (b > 0) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* As many heads to an item as the scores have room for, since every item reads all of its row's state; but an equal
 * number of items for each thread. */
static void choose_items(struct attention *a)
{
    const struct forward *f = a->f;
    size_t n_heads = f->config.n_heads, longest = 1, threads = team_threads(f->team);
    for (size_t r = a->first_row; r < a->first_row + a->n_rows; r++)
        if (n_visible(f, r) > longest) longest = n_visible(f, r);
    size_t room = (size_t)scratch_scores(&f->config, &f->options) / longest;
    size_t items_of_row = a->n_rows < MANY_ROWS_PER_THREAD * threads ? threads / common_divisor(threads, a->n_rows) : 1;
    size_t heads = (n_heads + items_of_row - 1) / items_of_row;
    heads = (heads + HEAD_TILE - 1) / HEAD_TILE * HEAD_TILE;
    if (room > HEAD_TILE) room = room / HEAD_TILE * HEAD_TILE;
    ASSERT(room > 0);
    a->item_heads = smaller(smaller(heads, room), n_heads);
    a->item_count = (n_heads + a->item_heads - 1) / a->item_heads;
}

/* Items are heads: out of the latent space. */
static void values_range(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct attention *a = context;
    const struct config *c = &a->f->config;
    (void)thread;
    for (size_t head = begin; head < end; head++) {
        struct matrix w = value_weights(a, head);
        linear_rows(&a->f->linear, a->f->context + head * c->value_dim, c->n_heads * (size_t)c->value_dim, &w,
                    query_of(a, 0, head), c->n_heads * a->width, a->n_rows);
    }
}

static void attend_tile(struct attention *a)
{
    struct forward *f = a->f;
    const struct config *c = &f->config;
    project_queries(a);
    stage_end(&f->stages, STAGE_PROJECT);
    if (a->n_rows < UNPACK_FROM_ROWS)
        team_run(f->team, a->n_rows * c->n_heads, 1, absorb_few, a);
    else
        team_run(f->team, c->n_heads, 1, absorb_many, a);
    stage_end(&f->stages, STAGE_ABSORB);
    choose_items(a);
    team_run(f->team, a->n_rows * a->item_count, 1, attend_range, a);
    stage_end(&f->stages, STAGE_ATTEND);
    team_run(f->team, c->n_heads, 1, values_range, a);
    stage_end(&f->stages, STAGE_ABSORB);
    float *update = f->update + a->first_row * c->hidden;
    linear_apply(&f->linear, update, &a->block->role[ROLE_O], f->context, a->n_rows);
    add_bias(f, update, &a->block->role[ROLE_O_BIAS], a->n_rows);
    stage_end(&f->stages, STAGE_PROJECT);
}

bool attention_run(struct forward *f, uint32_t layer, const struct block_weights *block, struct err *err)
{
    const struct config *c = &f->config;
    struct attention a = {.f = f,
                          .block = block,
                          .layer = layer,
                          .scale = 1.0f / sqrtf((float)(c->nope_dim + c->rope_dim)),
                          .width = (size_t)c->kv_rank + c->rope_dim};
    project_latents(&a);
    stage_end(&f->stages, STAGE_PROJECT);
    if (!forward_goes_on(f, layer, err)) return false;
    if (!indexer_run(f, layer, block, err)) return false;
    stage_end(&f->stages, STAGE_INDEX);
    for (size_t first = 0; first < f->n_rows; first += ATTEND_ROWS) {
        if (first > 0 && !forward_goes_on(f, layer, err)) return false;
        a.first_row = first;
        a.n_rows = smaller(f->n_rows - first, ATTEND_ROWS);
        attend_tile(&a);
    }
    return true;
}
