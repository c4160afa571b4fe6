#include "run/route_recorder.h"

#include "base/assert.h"
#include "resid/trace.h"
#include <string.h>

struct route_recorder {
    struct engine *engine;
    struct alloc *alloc;
    struct trace_writer *writer;
    uint16_t *experts; /* [pass_rows][n_per_row] of the layer that runs */
    size_t n_rows, n_per_row;
    uint32_t pass, last_layer;
    uint64_t n_steps;
    bool has_failed;
    struct err why;
};

static void see_routed(void *context, uint32_t layer, size_t row, const uint32_t *experts, const float *weights,
                       size_t n)
{
    struct route_recorder *r = context;
    (void)layer;
    (void)weights;
    ASSERT(n == r->n_per_row);
    for (size_t i = 0; i < n; i++) r->experts[row * n + i] = (uint16_t)experts[i];
    if (r->n_rows < row + 1) r->n_rows = row + 1;
}

/* A layer is complete; one that was called off, or is dense, has nothing to tell. */
static void see_hidden(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    struct route_recorder *r = context;
    (void)x;
    if (r->n_rows == n_rows && !r->has_failed) {
        if (layer <= r->last_layer) r->pass++;
        r->last_layer = layer;
        const struct trace_step step = {.pass = r->pass,
                                        .n_rows = (uint32_t)n_rows,
                                        .layer = layer,
                                        .phase = n_rows == 1 ? TRACE_DECODE : TRACE_PREFILL,
                                        .experts = r->experts};
        r->has_failed = !trace_add(r->writer, &step, &r->why);
        r->n_steps++;
    }
    r->n_rows = 0;
}

bool route_recorder_open(struct route_recorder **out, struct engine *engine, struct file_system fs,
                         struct write_system ws, const char *path, struct err *err)
{
    const struct config *config = engine_config(engine);
    struct alloc *alloc = engine_alloc(engine);
    struct trace_shape shape = {
        .n_layers = config->n_layers + 1, .n_experts = config->n_experts, .n_per_row = config->n_experts_per_token};
    struct route_recorder *r = alloc_get(alloc, sizeof *r, err);
    if (!r) return false;
    *r = (struct route_recorder){.engine = engine, .alloc = alloc, .n_per_row = config->n_experts_per_token};
    r->experts =
        alloc_get_array(alloc, engine_settings_of(engine)->pass_rows * (uint64_t)r->n_per_row, sizeof *r->experts, err);
    if (!r->experts) goto fail;
    memcpy(shape.identity, engine_inventory(engine)->catalogue->identity, sizeof shape.identity);
    if (!trace_create(&r->writer, alloc, fs, ws, path, &shape, err)) goto fail;
    forward_observe(engine_forward(engine),
                    &(struct forward_observer){.context = r, .hidden = see_hidden, .routed = see_routed});
    *out = r;
    return true;
fail:
    alloc_put(alloc, r->experts);
    alloc_put(alloc, r);
    return false;
}

bool route_recorder_close(struct route_recorder *r, struct err *err)
{
    if (!r) return true;
    forward_observe(engine_forward(r->engine), NULL);
    bool ok = !r->has_failed;
    if (!ok && err) *err = r->why;
    if (ok) ok = trace_flush(r->writer, err);
    trace_close(r->writer);
    alloc_put(r->alloc, r->experts);
    alloc_put(r->alloc, r);
    return ok;
}

uint64_t route_recorder_steps(const struct route_recorder *r)
{
    return r->n_steps;
}
