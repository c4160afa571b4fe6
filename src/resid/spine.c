#include "resid/spine.h"

#include "base/assert.h"
#include "plat/pages.h"
#include "resid/extents.h"
#include "resid/sane.h"
#include <inttypes.h>
#include <string.h>

/* One weight of the spine: where it comes from, and which matrix shows it. */
struct part {
    const struct weight_source *source;
    struct matrix *matrix;
    uint64_t payload_at, scales_at;
};

struct spine_store {
    struct alloc *alloc;
    struct spine spine;
    struct part *parts; /* [n_parts], while loading */
    struct extent_run *runs;
    struct extent_item *items;
    uint32_t n_parts, n_items, n_runs;
    unsigned char *pages;
    uint64_t page_bytes;
};

static bool is_index_role(int role)
{
    return role >= ROLE_INDEX_Q && role <= ROLE_INDEX_K_NORM_BIAS;
}

static bool is_chosen(const struct inventory *inventory, struct spine_choice choice, uint32_t layer, int role)
{
    bool has_dsa = choice.with_dsa && inventory->dsa == CAPABILITY_PRESENT;
    bool has_mtp = choice.with_mtp && inventory->mtp == CAPABILITY_PRESENT;
    if (!inventory->layers[layer].role[role].payload) return false;
    if (layer == inventory->config->n_layers && !has_mtp) return false;
    return has_dsa || !is_index_role(role);
}

bool spine_format_is_native(enum weight_format format)
{
    return format != FORMAT_F16 && format != FORMAT_BF16 && format != FORMAT_FP8_BLOCK;
}

static bool add_part(struct spine_store *s, const struct weight_source *source, struct matrix *matrix, struct err *err)
{
    if (!spine_format_is_native(source->format))
        return err_set(err, ERR_DATA,
                       "%s: stored as %s, as in a checkpoint; streaming needs a container (weir convert makes one)",
                       source->payload->name, format_name(source->format));
    bool is_float = source->format == FORMAT_F32;
    if ((is_float && source->payload->offset % sizeof(float)) ||
        (source->scales && source->scales->offset % sizeof(float)))
        return err_set(err, ERR_DATA, "%s: begins where four-byte numbers are not aligned",
                       is_float ? source->payload->name : source->scales->name);
    struct part *p = &s->parts[s->n_parts++];
    *p = (struct part){.source = source, .matrix = matrix};
    s->items[s->n_items++] = (struct extent_item){source->payload, &p->payload_at};
    if (source->scales) s->items[s->n_items++] = (struct extent_item){source->scales, &p->scales_at};
    return true;
}

/* Lists what belongs to the spine and places it. */
static bool lay_out(struct spine_store *s, const struct inventory *inventory, struct spine_choice choice,
                    struct err *err)
{
    uint32_t n_layers = inventory->config->n_layers + 1;
    uint64_t parts_max = (uint64_t)n_layers * ROLE_COUNT + MODEL_ROLE_COUNT;
    s->spine.blocks = alloc_get_array(s->alloc, n_layers, sizeof *s->spine.blocks, err);
    if (!s->spine.blocks) return false;
    s->parts = alloc_get_array(s->alloc, parts_max, sizeof *s->parts, err);
    if (!s->parts) return false;
    s->items = alloc_get_array(s->alloc, 2 * parts_max, sizeof *s->items, err);
    if (!s->items) return false;
    s->runs = alloc_get_array(s->alloc, 2 * parts_max, sizeof *s->runs, err);
    if (!s->runs) return false;

    if (!add_part(s, &inventory->model[MODEL_FINAL_NORM], &s->spine.final_norm, err)) return false;
    if (!add_part(s, &inventory->model[MODEL_HEAD], &s->spine.head, err)) return false;
    for (uint32_t layer = 0; layer < n_layers; layer++)
        for (int role = 0; role < ROLE_COUNT; role++)
            if (is_chosen(inventory, choice, layer, role) &&
                !add_part(s, &inventory->layers[layer].role[role], &s->spine.blocks[layer].role[role], err))
                return false;
    s->n_runs = extents_place(s->items, s->n_items, s->runs);
    s->page_bytes = s->runs[s->n_runs - 1].at + s->runs[s->n_runs - 1].bytes;
    s->spine.has_dsa = choice.with_dsa && inventory->dsa == CAPABILITY_PRESENT;
    s->spine.has_mtp = choice.with_mtp && inventory->mtp == CAPABILITY_PRESENT;
    s->spine.mtp_has_indexer = s->spine.has_mtp && s->spine.has_dsa && inventory->mtp_has_indexer;
    return true;
}

static void forget_layout(struct spine_store *s)
{
    alloc_put(s->alloc, s->runs);
    alloc_put(s->alloc, s->items);
    alloc_put(s->alloc, s->parts);
    s->runs = NULL;
    s->items = NULL;
    s->parts = NULL;
}

static struct spine_store *store_new(struct alloc *alloc, const struct inventory *inventory, struct spine_choice choice,
                                     struct err *err)
{
    struct spine_store *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return NULL;
    s->alloc = alloc;
    if (!lay_out(s, inventory, choice, err)) goto fail;
    return s;
fail:
    spine_free(s);
    return NULL;
}

void spine_free(struct spine_store *s)
{
    if (!s) return;
    forget_layout(s);
    pages_put(s->alloc, s->pages, s->page_bytes);
    alloc_put(s->alloc, s->spine.blocks);
    alloc_put(s->alloc, s);
}

const struct spine *spine_of(const struct spine_store *s)
{
    return &s->spine;
}

static uint64_t source_bytes(const struct weight_source *source)
{
    return source->payload->bytes + (source->scales ? source->scales->bytes : 0);
}

bool spine_count(struct spine_bytes *bytes, struct alloc *alloc, const struct inventory *inventory,
                 struct spine_choice choice, struct err *err)
{
    struct spine_store *s = store_new(alloc, inventory, choice, err);
    if (!s) return false;
    *bytes = (struct spine_bytes){.page_bytes = s->page_bytes};
    bytes->main = source_bytes(&inventory->model[MODEL_FINAL_NORM]) + source_bytes(&inventory->model[MODEL_HEAD]);
    for (uint32_t layer = 0; layer <= inventory->config->n_layers; layer++) {
        for (int role = 0; role < ROLE_COUNT; role++) {
            if (!is_chosen(inventory, choice, layer, role)) continue;
            uint64_t *item = layer == inventory->config->n_layers ? &bytes->mtp
                             : is_index_role(role)                ? &bytes->indexers
                                                                  : &bytes->main;
            *item += source_bytes(&inventory->layers[layer].role[role]);
        }
    }
    spine_free(s);
    return true;
}

static const char *tensor_in_run(const struct spine_store *s, const struct extent_run *run, uint64_t offset)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        const struct tensor *t = s->items[i].tensor;
        if (t->shard == run->shard && offset < t->offset + t->bytes) return t->name;
    }
    return s->items[s->n_items - 1].tensor->name;
}

/* Reports of all outstanding reads; the first failure stays in err. */
static bool drain(struct spine_store *s, struct reader *reader, uint32_t down_to, struct err *err)
{
    struct read_done done;
    bool ok = true;
    while (reader_outstanding(reader) > down_to && reader_wait(reader, &done)) {
        if (!done.error || !ok) continue;
        ok = reader_explain(reader, &done, err);
        err_context(err, "%s", tensor_in_run(s, &s->runs[done.tag], done.offset + done.bytes));
    }
    return ok;
}

static bool read_runs(struct spine_store *s, struct reader *reader, const uint32_t *files, uint64_t piece_bytes,
                      struct err *err)
{
    bool ok = true;
    for (uint32_t i = 0; i < s->n_runs && ok; i++) {
        const struct extent_run *run = &s->runs[i];
        uint64_t piece = piece_bytes ? piece_bytes : run->bytes;
        for (uint64_t at = 0; at < run->bytes && ok; at += piece) {
            uint64_t bytes = run->bytes - at < piece ? run->bytes - at : piece;
            uint64_t needed = run->bytes_needed > at ? run->bytes_needed - at : 0;
            if (reader_room(reader) == 0 && !drain(s, reader, reader_outstanding(reader) / 2, err)) ok = false;
            struct read_request ask = {.file = files[run->shard],
                                       .priority = READ_SWEEP,
                                       .offset = run->offset + at,
                                       .bytes = bytes,
                                       .bytes_needed = needed < bytes ? needed : bytes,
                                       .buffer = s->pages + run->at + at,
                                       .tag = i};
            if (ok && !reader_submit(reader, &ask, err)) ok = false;
        }
    }
    if (!ok) {
        for (uint32_t i = 0; i < s->n_runs; i++) reader_cancel(reader, i);
        (void)drain(s, reader, 0, NULL);
        return false;
    }
    return drain(s, reader, 0, err);
}

static bool check_part(const struct part *p, struct err *err)
{
    const struct weight_source *source = p->source;
    uint64_t bad;
    if (source->scales && !floats_are_sane(p->matrix->scales, source->scales->bytes / sizeof(float), true, &bad))
        return err_set(err, ERR_DATA,
                       "%s: scale %" PRIu64 " is %g, a scale is finite and above zero; the file is damaged",
                       source->scales->name, bad, (double)p->matrix->scales[bad]);
    const float *values = p->matrix->payload;
    if (source->format == FORMAT_F32 && !floats_are_sane(values, source->payload->bytes / sizeof(float), false, &bad))
        return err_set(err, ERR_DATA, "%s: value %" PRIu64 " is %g, which is not finite; the file is damaged",
                       source->payload->name, bad, (double)values[bad]);
    return true;
}

static bool show_parts(struct spine_store *s, struct err *err)
{
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const struct part *p = &s->parts[i];
        const struct weight_source *source = p->source;
        *p->matrix = (struct matrix){
            .format = source->format,
            .rows = source->rows,
            .columns = source->columns,
            .group = source->group,
            .payload = s->pages + p->payload_at,
            .scales = source->scales ? (const float *)(const void *)(s->pages + p->scales_at) : NULL,
        };
        if (!check_part(p, err)) return false;
    }
    return true;
}

bool spine_load(struct spine_store **out, struct alloc *alloc, const struct inventory *inventory,
                struct spine_choice choice, struct reader *reader, const uint32_t *files, uint64_t piece_bytes,
                struct err *err)
{
    ASSERT(reader_outstanding(reader) == 0);
    struct spine_store *s = store_new(alloc, inventory, choice, err);
    if (!s) return false;
    s->pages = pages_get(alloc, s->page_bytes, err);
    if (!s->pages) goto fail;
    if (!read_runs(s, reader, files, piece_bytes, err)) goto fail;
    if (!show_parts(s, err)) goto fail;
    forget_layout(s);
    *out = s;
    return true;
fail:
    spine_free(s);
    return false;
}
