#include "run/pass_bench.h"

#include "base/assert.h"
#include "par/read_rate.h"
#include "plat/clock.h"
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 512 << 20, MADE_ROWS = 61 };

struct shape_state {
    struct kv *kv; /* [n_sequences] */
    uint32_t n_sequences;
    int64_t ns[PASS_BENCH_RUNS_MAX];
    struct stage_times stages[PASS_BENCH_RUNS_MAX];
};

struct pass_bench {
    struct engine *engine;
    struct forward *forward;
    const struct config *config;
    struct alloc *alloc;
    struct team *team; /* for reading memory; as large as the engine's */
    struct read_rate rate;
    int64_t read_ns[PASS_BENCH_RUNS_MAX];
    struct shape_state *states; /* [n_shapes] */
    size_t n_shapes;
    struct forward_row *rows; /* [engine's pass rows] */
    float *made;              /* [MADE_ROWS][width]: rows of state that stand for a context */
    size_t made_width;
    uint64_t random;
    uint8_t *is_routed; /* [n_experts] in the layer that was routed last */
    uint64_t expert_bytes;
};

static uint32_t next_random(struct pass_bench *b)
{
    b->random = b->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(b->random >> 33);
}

static int64_t now_ns(void)
{
    return clock_now_ns(clock_real());
}

static bool make_rows(struct pass_bench *b, struct err *err)
{
    const struct config *c = b->config;
    size_t latent = (size_t)c->kv_rank + c->rope_dim;
    b->made_width = latent > c->index_head_dim ? latent : c->index_head_dim;
    b->made = alloc_get_array(b->alloc, MADE_ROWS * b->made_width, sizeof *b->made, err);
    if (!b->made) return false;
    for (size_t i = 0; i < MADE_ROWS * b->made_width; i++) b->made[i] = (float)(next_random(b) & 0xffff) / 32768 - 1;
    return true;
}

/* State of positions 0 .. depth-1 in every layer that keeps any. */
static bool make_context(struct pass_bench *b, struct kv *kv, uint32_t depth, struct err *err)
{
    const struct kv_layout *layout = &kv->pool->layout;
    for (uint32_t position = 0; position < depth; position++) {
        if (!kv_make_writable(kv, position, err)) return false;
        for (uint32_t layer = 0; layer < layout->n_layers; layer++) {
            const float *row = b->made + (position * 7 + layer) % MADE_ROWS * b->made_width;
            kv_put_latent(kv, layer, position, row);
            if (layout->key_at[layer] != KV_NO_KEYS) kv_put_key(kv, layer, position, row);
        }
    }
    kv->n_rows = depth;
    return true;
}

static bool make_sequences(struct pass_bench *b, struct shape_state *state, const struct pass_shape *shape,
                           struct err *err)
{
    state->n_sequences = shape->is_prompt ? 1 : shape->rows;
    state->kv = alloc_get_array(b->alloc, state->n_sequences, sizeof *state->kv, err);
    if (!state->kv) return false;
    for (uint32_t i = 0; i < state->n_sequences; i++) kv_init(&state->kv[i], forward_kv_pool(b->forward));
    if (!make_context(b, &state->kv[0], shape->depth, err)) return false;
    for (uint32_t i = 1; i < state->n_sequences; i++)
        if (!kv_fork(&state->kv[i], &state->kv[0], shape->depth, err)) return false;
    return true;
}

static struct forward_row next_row(struct pass_bench *b, struct kv *kv, uint32_t ahead, bool wants_logits)
{
    return (struct forward_row){.kv = kv,
                                .token = next_random(b) % b->config->vocab,
                                .position = kv->n_rows + ahead,
                                .wants_logits = wants_logits};
}

static bool run_prompt(struct pass_bench *b, struct shape_state *state, const struct pass_shape *shape, struct err *err)
{
    for (uint32_t done = 0; done < shape->rows;) {
        uint32_t n = shape->rows - done < shape->chunk ? shape->rows - done : shape->chunk;
        for (uint32_t r = 0; r < n; r++) b->rows[r] = next_row(b, &state->kv[0], r, done + r + 1 == shape->rows);
        if (!forward_pass(b->forward, b->rows, n, err)) return false;
        done += n;
    }
    return true;
}

static bool run_decode(struct pass_bench *b, struct shape_state *state, const struct pass_shape *shape, struct err *err)
{
    for (uint32_t step = 0; step < shape->steps; step++) {
        for (uint32_t i = 0; i < shape->rows; i++) b->rows[i] = next_row(b, &state->kv[i], 0, true);
        if (!forward_pass(b->forward, b->rows, shape->rows, err)) return false;
    }
    return true;
}

/* The same tokens in every run. */
static bool run_shape(struct pass_bench *b, struct shape_state *state, const struct pass_shape *shape, struct err *err)
{
    b->random = shape->rows;
    bool ok = shape->is_prompt ? run_prompt(b, state, shape, err) : run_decode(b, state, shape, err);
    for (uint32_t i = 0; i < state->n_sequences; i++) kv_truncate(&state->kv[i], shape->depth);
    return ok;
}

static bool measure(struct pass_bench *b, struct shape_state *state, const struct pass_shape *shape, unsigned run,
                    struct err *err)
{
    const struct stage_times before = *forward_times(b->forward);
    int64_t start = now_ns();
    if (!run_shape(b, state, shape, err)) return false;
    state->ns[run] = now_ns() - start;
    for (int s = 0; s < STAGE_COUNT; s++) state->stages[run].ns[s] = forward_times(b->forward)->ns[s] - before.ns[s];
    return true;
}

static uint64_t matrix_bytes(const struct weight_source *source)
{
    return source->payload ? weight_source_bytes(source) : 0;
}

/* Matrices and vectors of the main layers and the head; embedding rows are a few kilobytes. */
static uint64_t spine_bytes(const struct pass_bench *b)
{
    const struct inventory *inventory = engine_inventory(b->engine);
    uint64_t bytes = matrix_bytes(&inventory->model[MODEL_HEAD]);
    for (uint32_t layer = 0; layer < b->config->n_layers; layer++)
        for (int role = 0; role < ROLE_COUNT; role++) bytes += matrix_bytes(&inventory->layers[layer].role[role]);
    return bytes;
}

/* An observer: adds each distinct expert of a layer once. */
static void see_routed(void *context, uint32_t layer, size_t row, const uint32_t *experts, const float *weights,
                       size_t n)
{
    struct pass_bench *b = context;
    const struct layer_sources *sources = &engine_inventory(b->engine)->layers[layer];
    (void)weights;
    if (row == 0) memset(b->is_routed, 0, b->config->n_experts);
    for (size_t i = 0; i < n; i++) {
        if (b->is_routed[experts[i]]) continue;
        b->is_routed[experts[i]] = 1;
        for (int part = 0; part < EXPERT_PARTS; part++)
            b->expert_bytes += weight_source_bytes(&sources->experts[experts[i]][part]);
    }
}

static uint64_t row_state_bytes(const struct pass_bench *b, uint64_t position)
{
    const struct kv_layout *layout = &forward_kv_pool(b->forward)->layout;
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < b->config->n_layers; layer++) {
        bool is_sparse = engine_inventory(b->engine)->dsa == CAPABILITY_PRESENT && position >= b->config->index_topk;
        bytes += layout->latent_bytes * (is_sparse ? b->config->index_topk : position + 1);
        if (is_sparse && layout->key_at[layer] != KV_NO_KEYS) bytes += layout->key_bytes * (position + 1);
    }
    return bytes;
}

/* One run that is not timed: it also brings everything into memory, and counts what a run reads. */
static bool warm_up(struct pass_bench *b, struct shape_state *state, const struct pass_shape *shape,
                    struct pass_figures *figures, struct err *err)
{
    const struct forward_observer observer = {.context = b, .routed = see_routed};
    uint32_t n_positions = shape->is_prompt ? shape->rows : shape->steps;
    b->expert_bytes = 0;
    forward_observe(b->forward, &observer);
    bool ok = run_shape(b, state, shape, err);
    forward_observe(b->forward, NULL);
    figures->n_passes = shape->is_prompt ? (shape->rows + shape->chunk - 1) / shape->chunk : shape->steps;
    figures->n_tokens = (uint64_t)n_positions * state->n_sequences;
    figures->expert_bytes = b->expert_bytes;
    figures->weight_bytes = spine_bytes(b) * figures->n_passes + b->expert_bytes;
    for (uint32_t i = 0; i < n_positions; i++)
        figures->state_bytes += row_state_bytes(b, (uint64_t)shape->depth + i) * state->n_sequences;
    return ok;
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The lower median: one of the runs, so that its stages can be told. */
static int64_t median(const int64_t *ns, unsigned n)
{
    int64_t sorted[PASS_BENCH_RUNS_MAX];
    memcpy(sorted, ns, n * sizeof *ns);
    qsort(sorted, n, sizeof *sorted, compare_ns);
    return sorted[(n - 1) / 2];
}

static void conclude(struct pass_figures *figures, const struct shape_state *state, unsigned n_runs)
{
    figures->ns = figures->ns_min = median(state->ns, n_runs);
    for (unsigned run = 0; run < n_runs; run++) {
        if (state->ns[run] < figures->ns_min) figures->ns_min = state->ns[run];
        if (state->ns[run] == figures->ns) figures->stages = state->stages[run];
    }
}

static bool prepare(struct pass_bench *b, const struct pass_shape *shapes, struct err *err)
{
    const struct engine_settings *settings = engine_settings_of(b->engine);
    b->states = alloc_get_array(b->alloc, b->n_shapes, sizeof *b->states, err);
    b->rows = alloc_get_array(b->alloc, settings->pass_rows, sizeof *b->rows, err);
    b->is_routed = alloc_get(b->alloc, b->config->n_experts + 1, err);
    if (!b->states || !b->rows || !b->is_routed) return false;
    if (!make_rows(b, err)) return false;
    if (!team_new(&b->team, b->alloc, settings->n_threads, err)) return false;
    if (!read_rate_init(&b->rate, b->alloc, b->team, READ_BYTES, err)) return false;
    for (size_t i = 0; i < b->n_shapes; i++)
        if (!make_sequences(b, &b->states[i], &shapes[i], err)) return false;
    return true;
}

static void clean_up(struct pass_bench *b)
{
    for (size_t i = 0; b->states && i < b->n_shapes; i++) {
        struct shape_state *state = &b->states[i];
        for (uint32_t k = 0; state->kv && k < state->n_sequences; k++) kv_fini(&state->kv[k]);
        if (state->kv) alloc_put(b->alloc, state->kv);
    }
    read_rate_fini(&b->rate);
    team_free(b->team);
    if (b->made) alloc_put(b->alloc, b->made);
    if (b->is_routed) alloc_put(b->alloc, b->is_routed);
    if (b->rows) alloc_put(b->alloc, b->rows);
    if (b->states) alloc_put(b->alloc, b->states);
}

bool pass_bench_run(struct pass_bench_result *result, struct engine *engine, const struct pass_shape *shapes,
                    size_t n_shapes, unsigned n_runs, struct err *err)
{
    struct pass_bench b = {.engine = engine,
                           .forward = engine_forward(engine),
                           .config = engine_config(engine),
                           .alloc = engine_alloc(engine),
                           .n_shapes = n_shapes};
    ASSERT(n_shapes > 0 && n_shapes <= PASS_BENCH_SHAPES_MAX);
    ASSERT(n_runs > 0 && n_runs <= PASS_BENCH_RUNS_MAX);
    *result = (struct pass_bench_result){0};
    bool ok = prepare(&b, shapes, err);
    for (size_t i = 0; ok && i < n_shapes; i++) ok = warm_up(&b, &b.states[i], &shapes[i], &result->figures[i], err);
    for (unsigned run = 0; ok && run < n_runs; run++) {
        int64_t start = now_ns();
        read_rate_run(&b.rate, b.team);
        b.read_ns[run] = now_ns() - start;
        for (size_t i = 0; ok && i < n_shapes; i++) ok = measure(&b, &b.states[i], &shapes[i], run, err);
    }
    for (size_t i = 0; ok && i < n_shapes; i++) conclude(&result->figures[i], &b.states[i], n_runs);
    if (ok) result->read_bytes_per_s = READ_BYTES / ((double)median(b.read_ns, n_runs) / 1e9);
    clean_up(&b);
    return ok;
}
