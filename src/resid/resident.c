#include "resid/resident.h"

#include "base/assert.h"
#include "base/checked.h"
#include "fmt/dequantise.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 16 }; /* of a narrow payload that is on its way to f32 */

struct resident {
    struct weights weights;
    struct spine spine;
    struct alloc *alloc;
    const struct inventory *inventory;
    struct arena arena; /* all weights */
    unsigned char *piece;
    struct matrix embed;
    struct matrix (**experts)[EXPERT_PARTS]; /* [n_layers + 1] of [n_experts]; NULL in a dense layer */

    /* The want in progress: ids[n_given .. n_wanted-1] are still to come. */
    uint32_t layer;
    uint32_t *ids;
    size_t n_wanted, n_given;
    uint64_t n_leases;
};

/* --- reading --- */

static bool refuse_value(const struct resident *r, const struct tensor *t, uint64_t index, float value,
                         const char *what, struct err *err)
{
    return err_set(err, ERR_DATA, "%s: tensor '%s': value %" PRIu64 " is %g, %s",
                   r->inventory->catalogue->shards[t->shard].file.path, t->name, index, (double)value, what);
}

static bool check_finite(const struct resident *r, const struct tensor *t, const float *values, uint64_t n,
                         uint64_t first, struct err *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(values[i])) return refuse_value(r, t, first + i, values[i], "it must be finite", err);
    return true;
}

static bool load_scales(struct resident *r, const struct tensor *t, const float **out, struct err *err)
{
    uint64_t n = t->bytes / sizeof(float);
    float *scales = arena_get(&r->arena, t->bytes, err);
    if (!scales || !catalogue_read(r->inventory->catalogue, t, 0, scales, t->bytes, err)) return false;
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(scales[i]) || scales[i] <= 0)
            return refuse_value(r, t, i, scales[i], "a scale must be finite and above zero", err);
    *out = scales;
    return true;
}

static bool load_packed(struct resident *r, const struct weight_source *source, struct matrix *out, struct err *err)
{
    void *payload = arena_get(&r->arena, source->payload->bytes, err);
    if (!payload) return false;
    out->payload = payload;
    return catalogue_read(r->inventory->catalogue, source->payload, 0, payload, source->payload->bytes, err);
}

/* Piece by piece, so that no second copy of a matrix exists at any time. */
static bool narrow_to_f32(struct resident *r, const struct weight_source *source, float *out, struct err *err)
{
    const struct tensor *t = source->payload;
    uint64_t element_bytes = format_row_bytes(source->format, 1);
    for (uint64_t at = 0; at < t->bytes;) {
        uint64_t bytes = t->bytes - at < PIECE_BYTES ? t->bytes - at : PIECE_BYTES, n = bytes / element_bytes;
        if (!catalogue_read(r->inventory->catalogue, t, at, r->piece, bytes, err)) return false;
        if (source->format == FORMAT_F16)
            float_from_f16(out, r->piece, n);
        else if (source->format == FORMAT_BF16)
            float_from_bf16(out, r->piece, n);
        else
            float_from_e4m3(out, r->piece, n);
        if (!check_finite(r, t, out, n, at / element_bytes, err)) return false;
        at += bytes;
        out += n;
    }
    return true;
}

static void scale_blocks(float *values, uint32_t rows, uint32_t columns, const float *scales)
{
    enum { BLOCK = 128 };
    uint64_t blocks = div_up(columns, BLOCK);
    for (uint32_t o = 0; o < rows; o++)
        for (uint32_t i = 0; i < columns; i++)
            values[(uint64_t)o * columns + i] *= scales[o / BLOCK * blocks + i / BLOCK];
}

static bool load_float(struct resident *r, const struct weight_source *source, struct matrix *out, struct err *err)
{
    const struct tensor *t = source->payload;
    uint64_t n = (uint64_t)source->rows * source->columns;
    float *values = arena_get_array(&r->arena, n, sizeof *values, err);
    if (!values) return false;
    out->payload = values;
    out->format = FORMAT_F32;
    if (source->format != FORMAT_F32) return narrow_to_f32(r, source, values, err);
    if (!catalogue_read(r->inventory->catalogue, t, 0, values, t->bytes, err)) return false;
    return check_finite(r, t, values, n, 0, err);
}

static bool load(struct resident *r, const struct weight_source *source, struct matrix *out, struct err *err)
{
    *out = (struct matrix){
        .format = source->format, .rows = source->rows, .columns = source->columns, .group = source->group};
    switch (source->format) {
    case FORMAT_F32:
    case FORMAT_F16:
    case FORMAT_BF16: return load_float(r, source, out, err);
    case FORMAT_FP8_BLOCK: {
        const float *scales;
        if (!load_scales(r, source->scales, &scales, err) || !load_float(r, source, out, err)) return false;
        float *values = (float *)out->payload; /* still ours alone */
        scale_blocks(values, out->rows, out->columns, scales);
        return check_finite(r, source->payload, values, (uint64_t)out->rows * out->columns, 0, err);
    }
    case FORMAT_INT8_ROW:
    case FORMAT_INT4_ROW:
    case FORMAT_INT4_GROUPED:
    case FORMAT_INT2_ROW:
    case FORMAT_INT3_G64: return load_scales(r, source->scales, &out->scales, err) && load_packed(r, source, out, err);
    case FORMAT_COUNT: break;
    }
    ASSERT(false);
    return false;
}

static bool load_layer(struct resident *r, uint32_t layer, struct err *err)
{
    const struct layer_sources *sources = &r->inventory->layers[layer];
    uint32_t n_experts = r->inventory->config->n_experts;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (sources->role[role].payload && !load(r, &sources->role[role], &r->spine.blocks[layer].role[role], err))
            return false;
    if (!sources->experts) return true;
    r->experts[layer] = arena_get_array(&r->arena, n_experts, sizeof *r->experts[layer], err);
    if (!r->experts[layer]) return false;
    for (uint32_t e = 0; e < n_experts; e++)
        for (int p = 0; p < EXPERT_PARTS; p++)
            if (!load(r, &sources->experts[e][p], &r->experts[layer][e][p], err)) return false;
    return true;
}

static bool load_all(struct resident *r, struct err *err)
{
    const struct inventory *inventory = r->inventory;
    uint64_t n_layers = (uint64_t)inventory->config->n_layers + 1;
    r->piece = arena_get(&r->arena, PIECE_BYTES, err);
    if (!r->piece) return false;
    r->ids = arena_get_array(&r->arena, inventory->config->n_experts, sizeof *r->ids, err);
    if (!r->ids) return false;
    r->spine.blocks = arena_get_array(&r->arena, n_layers, sizeof *r->spine.blocks, err);
    if (!r->spine.blocks) return false;
    r->experts = arena_get_array(&r->arena, n_layers, sizeof *r->experts, err);
    if (!r->experts) return false;
    if (!load(r, &inventory->model[MODEL_EMBED], &r->embed, err)) return false;
    if (!load(r, &inventory->model[MODEL_FINAL_NORM], &r->spine.final_norm, err)) return false;
    if (!load(r, &inventory->model[MODEL_HEAD], &r->spine.head, err)) return false;
    for (uint32_t l = 0; l < n_layers; l++)
        if (!load_layer(r, l, err)) return false;
    r->spine.has_dsa = inventory->dsa == CAPABILITY_PRESENT;
    r->spine.has_mtp = inventory->mtp == CAPABILITY_PRESENT;
    r->spine.mtp_has_indexer = inventory->mtp_has_indexer;
    return true;
}

/* --- the seam --- */

static struct resident *of(struct weights *weights)
{
    return (struct resident *)weights; /* its first member */
}

static bool resident_want(struct weights *weights, uint32_t layer, const uint32_t *ids, size_t n, enum want_order order,
                          struct err *err)
{
    (void)order, (void)err; /* ascending always, which is any order too */
    struct resident *r = of(weights);
    ASSERT(layer <= r->inventory->config->n_layers);
    ASSERT(r->experts[layer]);
    ASSERT(n <= r->inventory->config->n_experts);
    ASSERT(r->n_given == r->n_wanted); /* one want at a time */
    for (size_t i = 0; i < n; i++) {
        ASSERT(ids[i] < r->inventory->config->n_experts);
        ASSERT(i == 0 || ids[i - 1] < ids[i]);
        r->ids[i] = ids[i];
    }
    r->layer = layer;
    r->n_wanted = n;
    r->n_given = 0;
    return true;
}

static bool resident_next(struct weights *weights, struct lease *out, struct err *err)
{
    (void)err;
    struct resident *r = of(weights);
    ASSERT(r->n_given < r->n_wanted);
    uint32_t expert = r->ids[r->n_given++];
    *out = (struct lease){.layer = r->layer, .expert = expert};
    memcpy(out->part, r->experts[r->layer][expert], sizeof out->part);
    r->n_leases++;
    return true;
}

static void resident_drop(struct weights *weights)
{
    struct resident *r = of(weights);
    r->n_wanted = r->n_given;
}

static void resident_unpin(struct weights *weights, struct lease *lease)
{
    struct resident *r = of(weights);
    ASSERT(r->n_leases > 0);
    r->n_leases--;
    *lease = (struct lease){0};
}

static bool resident_lacks(const struct weights *weights, uint32_t layer)
{
    (void)weights, (void)layer;
    return false;
}

static void resident_hint(struct weights *weights, uint32_t layer, const uint32_t *ids, size_t n_sure, size_t n)
{
    (void)weights, (void)layer, (void)ids, (void)n_sure, (void)n; /* everything is here already */
}

static void resident_tend(struct weights *weights)
{
    (void)weights;
}

static bool resident_embed(struct weights *weights, const uint32_t *tokens, size_t n, float *out, struct err *err)
{
    (void)err;
    const struct resident *r = of(weights);
    for (size_t i = 0; i < n; i++) {
        ASSERT(tokens[i] < r->embed.rows);
        dequantise_row(out + i * r->embed.columns, &r->embed, tokens[i]);
    }
    return true;
}

bool resident_open(struct resident **resident, struct alloc *alloc, struct file_system fs,
                   const struct inventory *inventory, struct err *err)
{
    static const struct weights_ops ops = {resident_want,  resident_next, resident_unpin, resident_drop,
                                           resident_lacks, resident_hint, resident_tend,  resident_embed};
    (void)fs;
    struct resident *r = alloc_get(alloc, sizeof *r, err);
    *resident = NULL;
    if (!r) return false;
    r->alloc = alloc;
    r->inventory = inventory;
    r->weights = (struct weights){.ops = &ops, .spine = &r->spine};
    arena_init(&r->arena, alloc, UINT64_MAX / 2);
    if (!load_all(r, err)) goto fail;
    *resident = r;
    return true;
fail:
    resident_close(r);
    return false;
}

void resident_close(struct resident *resident)
{
    if (!resident) return;
    ASSERT(resident->n_leases == 0);
    arena_fini(&resident->arena);
    alloc_put(resident->alloc, resident);
}

struct weights *resident_weights(struct resident *resident)
{
    return &resident->weights;
}
