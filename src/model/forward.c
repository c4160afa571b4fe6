#include "model/forward.h"

#include "base/assert.h"
#include "model/forward_int.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static void tend_weights(void *weights)
{
    ((struct weights *)weights)->ops->tend(weights);
}

bool forward_new(struct forward **forward, struct alloc *alloc, const struct config *config, struct weights *weights,
                 const struct kern *kern, struct team *team, const struct forward_options *options, struct err *err)
{
    ASSERT(options->rows_max > 0);
    ASSERT(options->logit_rows_max > 0);
    ASSERT(options->positions_max > 0);
    struct forward *f = alloc_get(alloc, sizeof *f, err);
    if (!f) return false;
    f->alloc = alloc;
    f->config = *config;
    f->weights = weights;
    f->spine = weights->spine;
    f->kern = *kern;
    f->team = team;
    f->options = *options;
    f->stages.looks_up = tend_weights;
    f->stages.who = weights;
    struct kv_layout layout;
    kv_layout_init(&layout, config, options->kv_storage, f->spine->has_dsa, f->spine->has_mtp,
                   f->spine->mtp_has_indexer);
    kv_pool_init(&f->pool, alloc, &layout, options->kv_blocks_max ? options->kv_blocks_max : UINT32_MAX);
    arena_init(&f->arena, alloc, UINT64_MAX);
    if (!rope_init(&f->rope, &f->arena, config->rope_dim, config->rope_theta, err)) goto fail;
    if (!scratch_get(f, err)) goto fail;
    linear_init(&f->linear, kern, team, options->numerics, f->split,
                scratch_split_bytes(config, options, f->spine->has_mtp));
    *forward = f;
    return true;
fail:
    forward_free(f);
    return false;
}

void forward_free(struct forward *forward)
{
    if (!forward) return;
    kv_pool_fini(&forward->pool);
    arena_fini(&forward->arena);
    alloc_put(forward->alloc, forward);
}

struct kv_pool *forward_kv_pool(struct forward *forward)
{
    return &forward->pool;
}

void forward_observe(struct forward *forward, const struct forward_observer *observer)
{
    forward->observer = observer ? *observer : (struct forward_observer){0};
}

void forward_set_poll(struct forward *forward, forward_poll_fn *poll, void *context)
{
    forward->poll = poll;
    forward->poll_context = context;
}

void forward_set_clock(struct forward *forward, stage_now_fn *now_ns, void *context)
{
    forward->stages.now_ns = now_ns;
    forward->stages.context = context;
}

const struct stage_times *forward_times(const struct forward *forward)
{
    return &forward->stages.times;
}

/* Checks one row and makes room for its state; nothing of the sequence has moved when this fails. */
static bool admit_row(struct forward *f, size_t r, struct kv *kv, uint32_t token, uint32_t position, struct err *err)
{
    if (token >= f->config.vocab)
        return err_set(err, ERR_USER, "token id %" PRIu32 " is outside the vocabulary of %" PRIu32, token,
                       f->config.vocab);
    if (position >= f->options.positions_max)
        return err_set(err, ERR_USER,
                       "position %" PRIu32 " does not fit a context of %" PRIu32 " tokens; see --context-length",
                       position, f->options.positions_max);
    if (!kv_make_writable(kv, position, err)) return false;
    f->kv[r] = kv;
    f->tokens[r] = token;
    f->positions[r] = position;
    size_t pairs = f->config.rope_dim / 2;
    rope_angles(&f->rope, position, f->cosine + r * pairs, f->sine + r * pairs);
    return true;
}

/* Each may be a read that waits for the disk, so few are asked for at a time. */
enum { EMBED_ROWS = 8 };

static bool embed_rows(struct forward *f, uint32_t layer, struct err *err)
{
    for (size_t first = 0; first < f->n_rows; first += EMBED_ROWS) {
        size_t n = f->n_rows - first < EMBED_ROWS ? f->n_rows - first : EMBED_ROWS;
        if (!forward_goes_on(f, layer, err)) return false;
        if (!f->weights->ops->embed(f->weights, f->tokens + first, n, f->stream + first * f->config.hidden, err))
            return false;
    }
    return true;
}

struct norm {
    float *y;
    const float *w;
    bool adds; /* the update to the stream first */
};

static void norm_row(struct forward *f, const void *context, size_t row, struct thread_scratch *t)
{
    const struct norm *norm = context;
    size_t hidden = f->config.hidden;
    float *stream = f->stream + row * hidden;
    (void)t;
    if (norm->adds) f->kern.add(stream, f->update + row * hidden, hidden);
    if (norm->w) f->kern.rmsnorm(norm->y + row * hidden, stream, norm->w, hidden, f->config.rms_eps);
}

static void norm_rows(struct forward *f, const struct norm *norm)
{
    forward_each_row(f, f->n_rows, norm_row, norm);
    stage_end(&f->stages, STAGE_NORM);
}

/* stream = stream + attention(norm(stream)); stream = stream + feed-forward(norm(stream)). */
static bool run_block(struct forward *f, uint32_t layer, struct err *err)
{
    const struct block_weights *block = &f->spine->blocks[layer];

    if (!forward_goes_on(f, layer, err)) return false;
    norm_rows(f, &(struct norm){f->normed, vector_of(block, ROLE_INPUT_NORM), false});
    if (!attention_run(f, layer, block, err)) return false;

    norm_rows(f, &(struct norm){f->normed, vector_of(block, ROLE_POST_NORM), true});
    if (f->config.is_sparse[layer]) {
        if (!experts_run(f, layer, block, err)) return false; /* the only step that may wait for the disk */
    } else {
        foresee_run(f, layer + 1);
        if (!feed_run(f, layer, f->update, &block->role[ROLE_GATE], &block->role[ROLE_UP], &block->role[ROLE_DOWN],
                      err))
            return false;
        stage_end(&f->stages, STAGE_DENSE);
    }
    norm_rows(f, &(struct norm){NULL, NULL, true});
    if (f->observer.hidden) f->observer.hidden(f->observer.context, layer, f->stream, f->n_rows);
    return true;
}

/* final = norm(stream); logits for the rows that want them. */
static void run_head(struct forward *f, const float *norm, size_t n_logit_rows)
{
    size_t hidden = f->config.hidden;
    norm_rows(f, &(struct norm){f->final, norm, false});
    if (n_logit_rows == 0) return;
    for (size_t r = 0; r < f->n_rows; r++)
        if (f->logit_row[r] != SIZE_MAX)
            memcpy(f->logit_in + f->logit_row[r] * hidden, f->final + r * hidden, hidden * sizeof(float));
    linear_apply(&f->linear, f->logits, &f->spine->head, f->logit_in, n_logit_rows);
    stage_end(&f->stages, STAGE_HEAD);
}

static size_t place_logits(struct forward *f, size_t r, bool wants, size_t n_logit_rows)
{
    f->logit_row[r] = wants ? n_logit_rows : SIZE_MAX;
    n_logit_rows += wants;
    ASSERT(n_logit_rows <= f->options.logit_rows_max);
    return n_logit_rows;
}

bool forward_pass(struct forward *forward, const struct forward_row *rows, size_t n_rows, struct err *err)
{
    struct forward *f = forward;
    size_t n_logit_rows = 0;
    ASSERT(n_rows > 0);
    ASSERT(n_rows <= f->options.rows_max);
    f->n_rows = n_rows;
    stage_begin(&f->stages);
    for (size_t r = 0; r < n_rows; r++) {
        ASSERT(rows[r].position >= rows[r].kv->n_rows);
        if (!admit_row(f, r, rows[r].kv, rows[r].token, rows[r].position, err)) return false;
        n_logit_rows = place_logits(f, r, rows[r].wants_logits, n_logit_rows);
    }
    if (!embed_rows(f, 0, err)) return false;
    stage_end(&f->stages, STAGE_EMBED);
    foresee_run(f, 0); /* a poor guess, but the disk has nothing else to do */
    stage_end(&f->stages, STAGE_ROUTER);
    for (uint32_t layer = 0; layer < f->config.n_layers; layer++)
        if (!run_block(f, layer, err)) return false;
    run_head(f, f->spine->final_norm.payload, n_logit_rows);
    for (size_t r = 0; r < n_rows; r++)
        if (rows[r].kv->n_rows <= rows[r].position) rows[r].kv->n_rows = rows[r].position + 1;
    return true;
}

/* stream = eh_proj [ norm(embedding of the next token) ; norm(hidden) ], the embedding half first. The hidden states
 * are read before anything is written: they may be outputs of the latest pass. */
static bool join_mtp_inputs(struct forward *f, const struct block_weights *block, const struct forward_mtp_row *rows,
                            struct err *err)
{
    size_t hidden = f->config.hidden;
    float eps = f->config.rms_eps;
    for (size_t r = 0; r < f->n_rows; r++)
        f->kern.rmsnorm(f->mtp_in + (2 * r + 1) * hidden, rows[r].hidden, vector_of(block, ROLE_H_NORM), hidden, eps);
    if (!embed_rows(f, f->config.n_layers, err)) return false;
    for (size_t r = 0; r < f->n_rows; r++)
        f->kern.rmsnorm(f->mtp_in + 2 * r * hidden, f->stream + r * hidden, vector_of(block, ROLE_E_NORM), hidden, eps);
    linear_apply(&f->linear, f->stream, &block->role[ROLE_EH_PROJ], f->mtp_in, f->n_rows);
    return true;
}

/* A row further on takes over what the row before it in its chain attended, and attends itself too: in a full
 * selection its position comes in for the lowest. Rows only move forward, so taking them over in order loses none. */
static void take_selections(struct forward *f, const struct forward_mtp_row *rows)
{
    for (size_t r = 0; r < f->n_rows; r++) {
        struct selection *to = &f->selections[r];
        to->is_taken = rows[r].takes_selection;
        if (!to->is_taken) continue;
        const struct selection *from = &f->selections[rows[r].selection_of];
        ASSERT(rows[r].selection_of >= r);
        to->n = from->n;
        to->first = from->first;
        to->failed = false;
        if (to->n == 0) continue;
        memmove(to->positions, from->positions + 1, (to->n - 1) * sizeof *to->positions);
        to->positions[to->n - 1] = rows[r].position;
    }
}

bool forward_mtp(struct forward *forward, const struct forward_mtp_row *rows, size_t n_rows, struct err *err)
{
    struct forward *f = forward;
    uint32_t layer = f->config.n_layers;
    const struct block_weights *block = &f->spine->blocks[layer];
    size_t n_logit_rows = 0;
    ASSERT(f->spine->has_mtp);
    ASSERT(n_rows > 0);
    ASSERT(n_rows <= f->options.rows_max);
    f->n_rows = n_rows;
    stage_begin(&f->stages);
    for (size_t r = 0; r < n_rows; r++) {
        ASSERT(rows[r].position >= rows[r].kv->n_mtp_rows);
        if (!admit_row(f, r, rows[r].kv, rows[r].token, rows[r].position, err)) return false;
        n_logit_rows = place_logits(f, r, rows[r].wants_logits, n_logit_rows);
    }
    take_selections(f, rows);
    if (!join_mtp_inputs(f, block, rows, err)) return false;
    stage_end(&f->stages, STAGE_EMBED);
    if (!run_block(f, layer, err)) return false;
    run_head(f, vector_of(block, ROLE_SHARED_HEAD_NORM), n_logit_rows);
    for (size_t r = 0; r < n_rows; r++)
        if (rows[r].kv->n_mtp_rows <= rows[r].position) rows[r].kv->n_mtp_rows = rows[r].position + 1;
    return true;
}

const float *forward_logits(const struct forward *forward, size_t row)
{
    ASSERT(row < forward->n_rows);
    ASSERT(forward->logit_row[row] != SIZE_MAX);
    return forward->logits + forward->logit_row[row] * forward->config.vocab;
}

const float *forward_final(const struct forward *forward, size_t row)
{
    ASSERT(row < forward->n_rows);
    return forward->final + row * forward->config.hidden;
}

const float *forward_stream(const struct forward *forward, size_t row)
{
    ASSERT(row < forward->n_rows);
    return forward->stream + row * forward->config.hidden;
}

uint32_t forward_argmax(const float *logits, size_t n)
{
    size_t best = 0;
    float value = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (logits[i] > value) {
            value = logits[i];
            best = i;
        }
    return (uint32_t)best;
}
