#include "convert/convert_output.h"

#include "base/checked.h"
#include "fmt/dequantise.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GATHER_BYTES (1u << 20)

/* Bytes on their way to one region of the output: neighbours are gathered to fewer, larger writes. */
struct region {
    struct file_writer *writer;
    uint8_t *buffer;
    uint64_t at, used; /* of buffer, in the file */
};

/* The matrix or vector that is being converted, in values. */
struct shape {
    uint64_t rows, columns; /* a vector is one column */
    uint64_t block_rows;
};

static uint64_t columns_of(const struct convert_tensor *t)
{
    return t->columns ? t->columns : 1;
}

static uint64_t scales_of_row(const struct convert_tensor *t)
{
    return t->scale_bytes / 4 / t->rows;
}

static struct shape shape_of(const struct convert_tensor *t, uint64_t block_values)
{
    struct shape shape = {.rows = t->rows, .columns = columns_of(t)};
    shape.block_rows = block_values / shape.columns;
    if (shape.block_rows == 0) shape.block_rows = 1;
    /* Whole blocks of FP8 factors, so that none is read twice. */
    if (t->source_scale && shape.block_rows > CONVERT_FP8_BLOCK)
        shape.block_rows = round_down(shape.block_rows, CONVERT_FP8_BLOCK);
    if (shape.block_rows > shape.rows) shape.block_rows = shape.rows;
    return shape;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool convert_maker_init(struct convert_maker *maker, const struct convert_job *job, const struct convert_plan *plan,
                        const struct catalogue *catalogue, struct err *err)
{
    *maker = (struct convert_maker){.job = job, .plan = plan, .catalogue = catalogue};
    uint64_t values = 1, scales = 1, factors = 1, raw = 1, payload = 1;
    for (uint32_t i = 0; i < plan->n_tensors; i++) {
        const struct convert_tensor *t = &plan->tensors[i];
        struct shape shape = shape_of(t, plan->options.block_values);
        uint64_t block = shape.block_rows * shape.columns, value_bytes = convert_source_value_bytes(t->source->dtype);
        values = larger(values, block);
        if (value_bytes < 4) raw = larger(raw, block * value_bytes);
        if (t->format != FORMAT_F32) {
            payload = larger(payload, t->payload_bytes / t->rows * shape.block_rows);
            scales = larger(scales, scales_of_row(t) * shape.block_rows);
        }
        if (t->source_scale)
            factors = larger(factors, (shape.block_rows / CONVERT_FP8_BLOCK + 2) * t->source_scale->shape[1]);
    }
    struct alloc *alloc = job->alloc;
    maker->block_values = values;
    if ((maker->weights = alloc_get_array(alloc, values, sizeof *maker->weights, err)) &&
        (maker->raw = alloc_get(alloc, raw, err)) &&
        (maker->factors = alloc_get_array(alloc, factors, sizeof *maker->factors, err)) &&
        (maker->payload = alloc_get(alloc, payload, err)) &&
        (maker->scales = alloc_get_array(alloc, scales, sizeof *maker->scales, err)) &&
        (maker->buffers[0] = alloc_get(alloc, GATHER_BYTES, err)) &&
        (maker->buffers[1] = alloc_get(alloc, GATHER_BYTES, err)))
        return true;
    convert_maker_fini(maker);
    return false;
}

void convert_maker_fini(struct convert_maker *maker)
{
    if (!maker->job) return;
    struct alloc *alloc = maker->job->alloc;
    alloc_put(alloc, maker->weights);
    alloc_put(alloc, maker->raw);
    alloc_put(alloc, maker->factors);
    alloc_put(alloc, maker->payload);
    alloc_put(alloc, maker->scales);
    alloc_put(alloc, maker->buffers[0]);
    alloc_put(alloc, maker->buffers[1]);
    *maker = (struct convert_maker){0};
}

static bool region_flush(struct region *region, struct err *err)
{
    if (region->used && !file_write(region->writer, region->buffer, region->used, region->at, err)) return false;
    region->used = 0;
    return true;
}

static bool region_put(struct region *region, uint64_t at, const void *data, uint64_t bytes, struct err *err)
{
    if (region->used + bytes > GATHER_BYTES || region->at + region->used != at)
        if (!region_flush(region, err)) return false;
    if (bytes > GATHER_BYTES) return file_write(region->writer, data, bytes, at, err);
    if (region->used == 0) region->at = at;
    memcpy(region->buffer + region->used, data, bytes);
    region->used += bytes;
    return true;
}

/* Multiplies rows [row, row + n) with the factors of their 128 x 128 blocks. */
static bool apply_factors(struct convert_maker *m, const struct convert_tensor *t, uint64_t row, uint64_t n,
                          struct err *err)
{
    uint64_t per_row = t->source_scale->shape[1], first = row / CONVERT_FP8_BLOCK;
    uint64_t grid_rows = (row + n - 1) / CONVERT_FP8_BLOCK - first + 1;
    if (!catalogue_read(m->catalogue, t->source_scale, 4 * first * per_row, m->factors, 4 * grid_rows * per_row, err))
        return false;
    for (uint64_t r = 0; r < n; r++) {
        float *weights = m->weights + r * t->columns;
        const float *factors = m->factors + ((row + r) / CONVERT_FP8_BLOCK - first) * per_row;
        for (uint64_t i = 0; i < t->columns; i++) weights[i] *= factors[i / CONVERT_FP8_BLOCK];
    }
    return true;
}

/* Rows [row, row + n) of the source as f32, into m->weights. */
static bool read_rows(struct convert_maker *m, const struct convert_tensor *t, uint64_t row, uint64_t n,
                      struct err *err)
{
    uint64_t columns = columns_of(t), values = n * columns;
    uint64_t value_bytes = convert_source_value_bytes(t->source->dtype);
    void *into = t->source->dtype == DTYPE_F32 ? (void *)m->weights : m->raw;
    if (!catalogue_read(m->catalogue, t->source, row * columns * value_bytes, into, values * value_bytes, err))
        return false;
    switch (t->source->dtype) {
    case DTYPE_F16: float_from_f16(m->weights, m->raw, values); break;
    case DTYPE_BF16: float_from_bf16(m->weights, m->raw, values); break;
    case DTYPE_F8_E4M3: float_from_e4m3(m->weights, m->raw, values); break;
    default: break; /* F32 is in its place already */
    }
    return !t->source_scale || apply_factors(m, t, row, n, err);
}

static bool check_finite(const struct convert_maker *m, const struct convert_tensor *t, uint64_t row, uint64_t values,
                         struct err *err)
{
    uint64_t bad = quantise_find_bad(m->weights, values), columns = columns_of(t);
    if (bad == values) return true;
    return err_set(err, ERR_DATA,
                   "%s/%s: %s holds %f at [%" PRIu64 ", %" PRIu64
                   "]%s, which no integer stands for: the source is damaged",
                   m->job->source, m->catalogue->shards[t->source->shard].name, t->name, (double)m->weights[bad],
                   row + bad / columns, bad % columns, t->source_scale ? " (times its block's factor)" : "");
}

static void quantise_rows(struct convert_maker *m, const struct convert_tensor *t, uint64_t n,
                          struct quantise_loss *loss)
{
    uint64_t payload_bytes = t->payload_bytes / t->rows, scales = scales_of_row(t);
    for (uint64_t r = 0; r < n; r++) {
        const float *weights = m->weights + r * t->columns;
        if (t->format == FORMAT_INT8_ROW)
            quantise_row_int8(m->payload + r * payload_bytes, m->scales + r, weights, t->columns, loss);
        else
            quantise_row_int4(m->payload + r * payload_bytes, m->scales + r * scales, weights, t->columns, t->group,
                              loss);
    }
}

struct making {
    struct convert_maker *maker;
    const struct convert_output *output;
    struct region f32, u8;
    convert_tick_fn *tick;
    void *tick_context;
};

static bool put_rows(struct making *g, const struct convert_tensor *t, uint64_t row, uint64_t n,
                     struct quantise_loss *loss, struct err *err)
{
    struct convert_maker *m = g->maker;
    uint64_t columns = columns_of(t);
    if (t->format == FORMAT_F32)
        return region_put(&g->f32, t->payload_at + 4 * row * columns, m->weights, 4 * n * columns, err);
    quantise_rows(m, t, n, loss);
    uint64_t payload_bytes = t->payload_bytes / t->rows, scale_bytes = t->scale_bytes / t->rows;
    return region_put(&g->f32, t->scales_at + row * scale_bytes, m->scales, n * scale_bytes, err) &&
           region_put(&g->u8, t->payload_at + row * payload_bytes, m->payload, n * payload_bytes, err);
}

static bool convert_one(struct making *g, const struct convert_tensor *t, struct convert_made *made, struct err *err)
{
    struct shape shape = shape_of(t, g->maker->plan->options.block_values);
    struct quantise_loss loss = {0};
    uint64_t value_bytes = convert_source_value_bytes(t->source->dtype);
    for (uint64_t row = 0; row < shape.rows; row += shape.block_rows) {
        uint64_t n = shape.rows - row < shape.block_rows ? shape.rows - row : shape.block_rows;
        if (!read_rows(g->maker, t, row, n, err) || !check_finite(g->maker, t, row, n * shape.columns, err) ||
            !put_rows(g, t, row, n, &loss, err) ||
            !g->tick(g->tick_context, g->output, n * shape.columns * value_bytes, err))
            return false;
    }
    double relative = loss.energy > 0 ? sqrt(loss.error / loss.energy) : 0;
    if (t->format != FORMAT_F32 && (relative > made->loss_max || !made->loss_tensor[0])) {
        made->loss_max = relative;
        snprintf(made->loss_tensor, sizeof made->loss_tensor, "%s", t->name);
    }
    return !t->source_scale || g->tick(g->tick_context, g->output, t->source_scale->bytes, err);
}

static bool fill(struct making *g, struct convert_made *made, struct err *err)
{
    const struct convert_output *output = g->output;
    if (!file_write(g->f32.writer, output->header, output->header_bytes, 0, err)) return false;
    for (uint32_t i = 0; i < output->n_tensors; i++)
        if (!convert_one(g, &output->tensors[i], made, err)) return false;
    return region_flush(&g->f32, err) && region_flush(&g->u8, err);
}

/* Of what the file system gives back, not of what was meant to be written. */
static bool digest_written(struct convert_maker *m, const struct convert_output *output, const char *path,
                           struct convert_made *made, struct err *err)
{
    struct file file;
    if (!file_open(&file, m->job->alloc, m->job->fs, path, err)) return false;
    bool ok = file.identity.bytes == output->bytes ||
              err_set(err, ERR_IO, "%s: has %" PRIu64 " bytes after %" PRIu64 " were written", path,
                      file.identity.bytes, output->bytes);
    ok = ok && digest_file(made->sha256, &file, m->buffers[0], GATHER_BYTES, err);
    file_close(&file);
    return ok;
}

bool convert_maker_make(struct convert_maker *maker, const struct convert_output *output, const char *path,
                        struct convert_made *made, convert_tick_fn *tick, void *tick_context, struct err *err)
{
    struct file_writer writer;
    struct convert_made fresh = {0};
    if (!file_create(&writer, maker->job->alloc, maker->job->ws, path, err)) return false;
    struct making making = {
        .maker = maker,
        .output = output,
        .f32 = {.writer = &writer, .buffer = maker->buffers[0]},
        .u8 = {.writer = &writer, .buffer = maker->buffers[1]},
        .tick = tick,
        .tick_context = tick_context,
    };
    if (!fill(&making, &fresh, err) || !digest_written(maker, output, writer.path_tmp, &fresh, err)) {
        file_abandon(&writer);
        return false;
    }
    if (!file_commit(&writer, err)) return false;
    *made = fresh;
    return true;
}
