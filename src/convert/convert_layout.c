#include "convert/convert_layout.h"

#include "base/assert.h"
#include "base/buf.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES_MAX 100000000 /* what readers of the format accept */

/* One line of a header. */
struct entry {
    const char *name;
    bool is_u8;
    uint64_t bytes;
    uint64_t rows, columns; /* columns 0: one dimension */
    uint64_t *at;           /* where the offset goes */
};

static int by_dtype_and_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->is_u8 != y->is_u8) return x->is_u8 ? 1 : -1;
    return strcmp(x->name, y->name);
}

static uint32_t list_entries(struct entry *entries, struct convert_tensor *tensors, uint32_t n_tensors)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_tensors; i++) {
        struct convert_tensor *t = &tensors[i];
        if (t->format == FORMAT_F32) {
            entries[n++] = (struct entry){t->name, false, t->payload_bytes, t->rows, t->columns, &t->payload_at};
            continue;
        }
        entries[n++] = (struct entry){t->name, true, t->payload_bytes, t->payload_bytes, 0, &t->payload_at};
        entries[n++] = (struct entry){t->scales_name, false, t->scale_bytes, t->scale_bytes / 4, 0, &t->scales_at};
    }
    qsort(entries, n, sizeof *entries, by_dtype_and_name);
    return n;
}

/* Names come from the table of roles and hold nothing that JSON would have to escape. */
static bool print_entry(struct buf *json, const struct entry *e, bool is_first, uint64_t begin, struct err *err)
{
    char columns[32] = "";
    if (e->columns) snprintf(columns, sizeof columns, ",%" PRIu64, e->columns);
    return buf_printf(
        json, err, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 "%s],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        is_first ? "{" : ",", e->name, e->is_u8 ? "U8" : "F32", e->rows, columns, begin, begin + e->bytes);
}

static bool print_header(struct buf *json, const struct entry *entries, uint32_t n, struct err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!print_entry(json, &entries[i], i == 0, at, err)) return false;
        at += entries[i].bytes;
    }
    if (!buf_add_char(json, '}', err)) return false;
    while (json->bytes % 8 != 0)
        if (!buf_add_char(json, ' ', err)) return false;
    return true;
}

static bool keep_header(struct convert_output *output, struct arena *arena, const struct buf *json, struct err *err)
{
    unsigned char *header = arena_get(arena, 8 + json->bytes, err);
    if (!header) return false;
    for (int i = 0; i < 8; i++) header[i] = (unsigned char)((uint64_t)json->bytes >> 8 * i);
    memcpy(header + 8, json->data, json->bytes);
    output->header = (const char *)header;
    output->header_bytes = 8 + json->bytes;
    return true;
}

static bool finish_output(struct convert_plan *plan, struct convert_output *output, struct convert_tensor *tensors,
                          struct err *err)
{
    struct buf json;
    buf_init(&json, plan->alloc, HEADER_BYTES_MAX);
    struct entry *entries = alloc_get_array(plan->alloc, 2 * (uint64_t)output->n_tensors, sizeof *entries, err);
    bool ok = entries != NULL;
    if (ok) {
        uint32_t n = list_entries(entries, tensors, output->n_tensors);
        ok = print_header(&json, entries, n, err) && keep_header(output, &plan->arena, &json, err);
        uint64_t at = output->header_bytes;
        for (uint32_t i = 0; i < n && ok; i++) {
            *entries[i].at = at;
            at += entries[i].bytes;
        }
        output->bytes = at;
    }
    for (uint32_t i = 0; i < output->n_tensors; i++) {
        output->source_bytes += tensors[i].source->bytes;
        if (tensors[i].source_scale) output->source_bytes += tensors[i].source_scale->bytes;
    }
    alloc_put(plan->alloc, entries);
    buf_fini(&json);
    return ok;
}

/* How many tensors from here on must stay in one shard: the three matrices of an expert, or one of anything else. They
 * are neighbours, because they are sorted by name. */
static uint32_t unit_tensors(const struct convert_tensor *tensors, uint32_t n)
{
    const char *name = tensors[0].name, *experts = strstr(name, ".mlp.experts.");
    if (!experts) return 1;
    const char *end = strchr(experts + strlen(".mlp.experts."), '.');
    ASSERT(end);
    uint32_t count = 1;
    while (count < n && tensors[count].pass == tensors[0].pass &&
           strncmp(tensors[count].name, name, (size_t)(end - name) + 1) == 0)
        count++;
    return count;
}

static uint64_t data_bytes(const struct convert_tensor *tensors, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes += tensors[i].payload_bytes + tensors[i].scale_bytes;
    return bytes;
}

/* Cuts greedily. Called twice: with outputs NULL it only counts. */
static uint32_t cut(const struct convert_plan *plan, struct convert_output *outputs)
{
    uint32_t n_outputs = 0, first = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->n_tensors;) {
        uint32_t unit = unit_tensors(&plan->tensors[i], plan->n_tensors - i);
        uint64_t more = data_bytes(&plan->tensors[i], unit);
        if (i > first &&
            (plan->tensors[i].pass != plan->tensors[first].pass || bytes + more > plan->options.shard_bytes)) {
            if (outputs) outputs[n_outputs].n_tensors = i - first;
            n_outputs++;
            first = i;
            bytes = 0;
        }
        bytes += more;
        i += unit;
    }
    if (outputs) outputs[n_outputs].n_tensors = plan->n_tensors - first;
    return n_outputs + 1;
}

bool convert_layout(struct convert_plan *plan, struct err *err)
{
    static const char *const families[CONVERT_PASSES] = {"out", "out-mtp", "out-idx"};
    ASSERT(plan->n_tensors > 0);
    plan->n_outputs = cut(plan, NULL);
    plan->outputs = arena_get_array(&plan->arena, plan->n_outputs, sizeof *plan->outputs, err);
    if (!plan->outputs) return false;
    cut(plan, plan->outputs);
    uint32_t first = 0, number = 0;
    for (uint32_t i = 0; i < plan->n_outputs; i++) {
        struct convert_output *output = &plan->outputs[i];
        output->tensors = &plan->tensors[first];
        output->pass = output->tensors[0].pass;
        if (i > 0 && output->pass != plan->outputs[i - 1].pass) number = 0;
        snprintf(output->name, sizeof output->name, "%s-%05" PRIu32 ".safetensors", families[output->pass], number++);
        if (!finish_output(plan, output, &plan->tensors[first], err)) return false;
        first += output->n_tensors;
    }
    return true;
}
