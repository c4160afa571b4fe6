#include "resid/extents.h"

#include "base/checked.h"
#include <inttypes.h>
#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = ((const struct extent_item *)a)->tensor, *y = ((const struct extent_item *)b)->tensor;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

uint32_t extents_place(struct extent_item *items, uint32_t n, struct extent_run *runs)
{
    struct extent_run *run = NULL;
    uint32_t n_runs = 0;
    qsort(items, n, sizeof *items, by_place);
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *t = items[i].tensor;
        uint64_t end = t->offset + t->bytes;
        if (!run || run->shard != t->shard || t->offset > run->offset + run->bytes) {
            uint64_t at = run ? run->at + run->bytes : 0;
            run = &runs[n_runs++];
            *run = (struct extent_run){.shard = t->shard, .offset = round_down(t->offset, EXTENT_PAGE), .at = at};
        }
        if (end > run->offset + run->bytes_needed) run->bytes_needed = end - run->offset;
        run->bytes = round_up(run->bytes_needed, EXTENT_PAGE);
        *items[i].at = run->at + (t->offset - run->offset);
    }
    return n_runs;
}

bool extents_find(struct extents *out, const struct weight_source parts[EXPERT_PARTS], struct err *err)
{
    struct extent_item items[EXTENT_RUNS_MAX];
    uint32_t n = 0;
    *out = (struct extents){0};
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct tensor *payload = parts[part].payload, *scales = parts[part].scales;
        items[n++] = (struct extent_item){payload, &out->payload_at[part]};
        out->weight_bytes += payload->bytes;
        if (!scales) continue;
        if (scales->offset % sizeof(float) != 0)
            return err_set(err, ERR_DATA, "%s: at offset %" PRIu64 ", where four-byte numbers are not aligned",
                           scales->name, scales->offset);
        items[n++] = (struct extent_item){scales, &out->scales_at[part]};
        out->weight_bytes += scales->bytes;
    }
    out->n_runs = extents_place(items, n, out->runs);
    const struct extent_run *last = &out->runs[out->n_runs - 1];
    out->slot_bytes = last->at + last->bytes;
    return true;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = ((const struct slot_class *)a)->slot_bytes, y = ((const struct slot_class *)b)->slot_bytes;
    return (x > y) - (x < y);
}

/* Sizes up to a quarter above the smallest of their class belong to it. */
static void gather(struct slot_classes *classes, struct slot_class *sizes, uint64_t n)
{
    uint64_t smallest = 0;
    qsort(sizes, n, sizeof *sizes, by_size);
    *classes = (struct slot_classes){0};
    for (uint64_t i = 0; i < n; i++) {
        bool opens_class =
            classes->n == 0 || (sizes[i].slot_bytes > smallest + smallest / 4 && classes->n < SLOT_CLASSES_MAX);
        if (opens_class) {
            classes->n++;
            smallest = sizes[i].slot_bytes;
        }
        struct slot_class *c = &classes->of[classes->n - 1];
        c->slot_bytes = sizes[i].slot_bytes;
        c->weight_bytes += sizes[i].weight_bytes;
        c->n_experts++;
        if (sizes[i].n_runs_max > c->n_runs_max) c->n_runs_max = sizes[i].n_runs_max;
    }
}

bool slot_classes_find(struct slot_classes *classes, struct alloc *alloc, const struct inventory *inventory,
                       bool with_mtp, struct err *err)
{
    const struct config *config = inventory->config;
    uint32_t n_layers = config->n_layers + (with_mtp && inventory->mtp == CAPABILITY_PRESENT);
    uint64_t n = 0;
    struct slot_class *sizes = alloc_get_array(alloc, (uint64_t)n_layers * config->n_experts + 1, sizeof *sizes, err);
    if (!sizes) return false;
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        if (!inventory->layers[layer].experts) continue;
        for (uint32_t expert = 0; expert < config->n_experts; expert++) {
            struct extents x;
            if (!extents_find(&x, inventory->layers[layer].experts[expert], err)) goto fail;
            sizes[n++] =
                (struct slot_class){.slot_bytes = x.slot_bytes, .weight_bytes = x.weight_bytes, .n_runs_max = x.n_runs};
        }
    }
    gather(classes, sizes, n);
    alloc_put(alloc, sizes);
    return true;
fail:
    alloc_put(alloc, sizes);
    return false;
}

uint32_t slot_class_of(const struct slot_classes *classes, uint64_t slot_bytes)
{
    uint32_t c = 0;
    while (c + 1 < classes->n && classes->of[c].slot_bytes < slot_bytes) c++;
    return c;
}

uint64_t slot_classes_share(const struct slot_classes *classes, uint64_t bytes, uint32_t n_slots[SLOT_CLASSES_MAX])
{
    uint64_t least = 0, all = 0, used = 0;
    for (uint32_t c = 0; c < SLOT_CLASSES_MAX; c++) n_slots[c] = 0;
    for (uint32_t c = 0; c < classes->n; c++) {
        least += classes->of[c].slot_bytes;
        all += classes->of[c].slot_bytes * classes->of[c].n_experts;
    }
    if (bytes < least) return 0;
    /* One slot each first; of the rest, every class its part. In doubles, because only whole slots matter in the end.
     */
    double part = all > least ? (double)(bytes - least) / (double)(all - least) : 1.0;
    if (part > 1.0) part = 1.0;
    for (uint32_t c = 0; c < classes->n; c++) {
        n_slots[c] = 1 + (uint32_t)(part * (classes->of[c].n_experts - 1));
        used += n_slots[c] * classes->of[c].slot_bytes;
    }
    for (uint32_t c = 0; c < classes->n; c++) { /* what rounding left over */
        while (n_slots[c] < classes->of[c].n_experts && used + classes->of[c].slot_bytes <= bytes) {
            n_slots[c]++;
            used += classes->of[c].slot_bytes;
        }
    }
    while (used > bytes) { /* rounding in doubles could have gone the other way */
        uint32_t c = 0;
        while (n_slots[c] <= 1) c++;
        n_slots[c]--;
        used -= classes->of[c].slot_bytes;
    }
    return used;
}
