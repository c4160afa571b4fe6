#include "run/trace_dump.h"

#include "base/buf.h"
#include "plat/file_write.h"
#include <inttypes.h>
#include <xxhash.h>

#define LINES_BYTES_MAX (UINT64_C(1) << 30)

/* What was told about one row in the layer that runs. */
struct row_trace {
    const uint32_t *experts; /* borrowed until the layer's hidden state is told, which comes last */
    size_t n_experts;
    const uint32_t *selected;
    size_t n_selected;
    bool has_selection;
};

struct trace_dump {
    struct engine *engine;
    struct alloc *alloc;
    struct file_writer writer;
    struct buf lines;
    uint64_t written;
    uint32_t first;         /* position of the first row of the pass that runs */
    struct row_trace *rows; /* [pass_rows] */
    struct err err;
    bool failed;
};

static void see_selected(void *context, uint32_t layer, size_t row, const uint32_t *positions, size_t n)
{
    struct row_trace *of = &((struct trace_dump *)context)->rows[row];
    (void)layer;
    of->has_selection = true;
    of->selected = positions;
    of->n_selected = n;
}

static void see_routed(void *context, uint32_t layer, size_t row, const uint32_t *experts, const float *weights,
                       size_t n)
{
    struct row_trace *of = &((struct trace_dump *)context)->rows[row];
    (void)layer;
    (void)weights;
    of->experts = experts;
    of->n_experts = n;
}

static bool add_list(struct buf *out, const char *name, const uint32_t *values, size_t n, struct err *err)
{
    if (!buf_printf(out, err, ",\"%s\":[", name)) return false;
    for (size_t i = 0; i < n; i++)
        if (!buf_printf(out, err, "%s%" PRIu32, i ? "," : "", values[i])) return false;
    return buf_add_char(out, ']', err);
}

static bool add_line(struct trace_dump *dump, uint32_t layer, size_t row, const float *x, struct err *err)
{
    const struct row_trace *of = &dump->rows[row];
    struct buf *out = &dump->lines;
    uint64_t hash = XXH3_64bits(x, engine_config(dump->engine)->hidden * sizeof *x);
    if (!buf_printf(out, err, "{\"position\":%" PRIu32 ",\"layer\":%" PRIu32 ",\"hidden\":\"%016" PRIx64 "\"",
                    dump->first + (uint32_t)row, layer, hash))
        return false;
    if (of->n_experts && !add_list(out, "experts", of->experts, of->n_experts, err)) return false;
    if (of->has_selection && of->n_selected == 0 && !buf_add_text(out, ",\"selected\":\"all\"", err)) return false;
    if (of->n_selected && !add_list(out, "selected", of->selected, of->n_selected, err)) return false;
    return buf_add_text(out, "}\n", err);
}

static bool flush(struct trace_dump *dump, struct err *err)
{
    if (dump->lines.bytes && !file_write(&dump->writer, dump->lines.data, dump->lines.bytes, dump->written, err))
        return false;
    dump->written += dump->lines.bytes;
    buf_clear(&dump->lines);
    return true;
}

static void see_hidden(void *context, uint32_t layer, const float *x, size_t n_rows)
{
    struct trace_dump *dump = context;
    const struct config *config = engine_config(dump->engine);
    for (size_t r = 0; !dump->failed && r < n_rows; r++) {
        dump->failed = !add_line(dump, layer, r, x + r * config->hidden, &dump->err);
        dump->rows[r] = (struct row_trace){0};
    }
    if (!dump->failed) dump->failed = !flush(dump, &dump->err);
    if (layer + 1 == config->n_layers) dump->first += (uint32_t)n_rows;
}

bool trace_dump_open(struct trace_dump **dump, struct engine *engine, const char *path, uint32_t first, struct err *err)
{
    struct alloc *alloc = engine_alloc(engine);
    struct trace_dump *d = alloc_get(alloc, sizeof *d, err);
    if (!d) return false;
    d->engine = engine;
    d->alloc = alloc;
    d->first = first;
    buf_init(&d->lines, alloc, LINES_BYTES_MAX);
    d->rows = alloc_get_array(alloc, engine_settings_of(engine)->pass_rows, sizeof *d->rows, err);
    if (!d->rows || !file_create(&d->writer, alloc, write_system_real(), path, err)) {
        alloc_put(alloc, d->rows);
        alloc_put(alloc, d);
        return false;
    }
    const struct forward_observer observer = {
        .context = d, .hidden = see_hidden, .selected = see_selected, .routed = see_routed};
    forward_observe(engine_forward(engine), &observer);
    *dump = d;
    return true;
}

bool trace_dump_close(struct trace_dump *dump, struct err *err)
{
    if (!dump) return true;
    bool ok = !dump->failed;
    forward_observe(engine_forward(dump->engine), NULL);
    if (!ok) *err = dump->err;
    if (ok) ok = file_commit(&dump->writer, err);
    file_abandon(&dump->writer);
    buf_fini(&dump->lines);
    alloc_put(dump->alloc, dump->rows);
    alloc_put(dump->alloc, dump);
    return ok;
}
