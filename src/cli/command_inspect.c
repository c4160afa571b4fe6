/* weir inspect: what a model folder holds, from its headers alone. */
#include "base/units.h"
#include "cli/commands.h"
#include "fmt/inventory.h"
#include "fmt/json_text.h"
#include "fmt/template_check.h"
#include <inttypes.h>
#include <string.h>

#define TEXT_BYTES_MAX (UINT64_C(1) << 20) /* of one line or one JSON value */

enum part {
    PART_EMBEDDING,
    PART_HEAD,
    PART_ATTENTION,
    PART_DENSE,
    PART_ROUTERS,
    PART_SHARED,
    PART_EXPERTS,
    PART_NORMS,
    PART_INDEXERS,
    PART_MTP,
    PART_MTP_EXPERTS,
    PART_COUNT
};

static const char *const part_names[PART_COUNT] = {
    [PART_EMBEDDING] = "embedding",     [PART_HEAD] = "output head",
    [PART_ATTENTION] = "attention",     [PART_DENSE] = "dense MLPs",
    [PART_ROUTERS] = "routers",         [PART_SHARED] = "shared experts",
    [PART_EXPERTS] = "routed experts",  [PART_NORMS] = "norms",
    [PART_INDEXERS] = "indexers",       [PART_MTP] = "MTP layer",
    [PART_MTP_EXPERTS] = "MTP experts",
};

struct tally {
    uint32_t n, by_format[FORMAT_COUNT];
    uint64_t bytes;
};

struct inspection {
    struct command_context *context;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct template_report chat_template;
    struct tally parts[PART_COUNT], all;
    struct buf text;
};

/* --- sums --- */

static enum part part_of(enum role role)
{
    switch (role) {
    case ROLE_INPUT_NORM:
    case ROLE_POST_NORM:
    case ROLE_Q_A_NORM:
    case ROLE_KV_A_NORM: return PART_NORMS;
    case ROLE_INDEX_Q:
    case ROLE_INDEX_K:
    case ROLE_INDEX_HEAD_WEIGHTS:
    case ROLE_INDEX_K_NORM:
    case ROLE_INDEX_K_NORM_BIAS: return PART_INDEXERS;
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN: return PART_DENSE;
    case ROLE_ROUTER:
    case ROLE_ROUTER_BIAS: return PART_ROUTERS;
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
    case ROLE_SHARED_DOWN: return PART_SHARED;
    default: return PART_ATTENTION;
    }
}

static void add(struct tally *tally, const struct weight_source *source)
{
    if (!source->payload) return;
    tally->n++;
    tally->by_format[source->format]++;
    tally->bytes += weight_source_bytes(source);
}

static void count(struct inspection *x, enum part part, const struct weight_source *source)
{
    add(&x->parts[part], source);
    add(&x->all, source);
}

static void count_all(struct inspection *x)
{
    const struct inventory *v = &x->inventory;
    count(x, PART_EMBEDDING, &v->model[MODEL_EMBED]);
    count(x, PART_HEAD, &v->model[MODEL_HEAD]);
    count(x, PART_NORMS, &v->model[MODEL_FINAL_NORM]);
    for (uint32_t l = 0; l <= x->config.n_layers; l++) {
        bool is_mtp = l == x->config.n_layers;
        const struct layer_sources *layer = &v->layers[l];
        for (int r = 0; r < ROLE_COUNT; r++) count(x, is_mtp ? PART_MTP : part_of((enum role)r), &layer->role[r]);
        if (!layer->experts) continue;
        for (uint32_t e = 0; e < x->config.n_experts; e++)
            for (int p = 0; p < EXPERT_PARTS; p++)
                count(x, is_mtp ? PART_MTP_EXPERTS : PART_EXPERTS, &layer->experts[e][p]);
    }
}

/* --- for people --- */

static void print_model(const struct inspection *x)
{
    const struct config *c = &x->config;
    FILE *out = x->context->out;
    char bytes[UNITS_TEXT_MAX];
    uint32_t n_sparse = 0, n_full = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        n_sparse += c->is_sparse[l];
        n_full += c->is_full[l];
    }
    fprintf(out, "folder        %s\n", x->catalogue.dir);
    fprintf(out,
            "model         glm_moe_dsa, %" PRIu32 " layers (%" PRIu32 " dense, %" PRIu32 " with experts; %" PRIu32
            " full, %" PRIu32 " shared)\n",
            c->n_layers, c->n_layers - n_sparse, n_sparse, n_full, c->n_layers - n_full);
    fprintf(out,
            "              hidden %" PRIu32 ", vocabulary %" PRIu32 ", %" PRIu32 " experts per layer, %" PRIu32
            " of them per token\n",
            c->hidden, c->vocab, c->n_experts, c->n_experts_per_token);
    fprintf(out, "files         %" PRIu32 " shard%s, %" PRIu32 " tensors, %s in use\n", x->catalogue.n_shards,
            x->catalogue.n_shards == 1 ? "" : "s", x->catalogue.n_tensors,
            units_format_bytes(bytes, x->inventory.bytes));
    fprintf(out, "identity      ");
    for (size_t i = 0; i < sizeof x->catalogue.identity; i++) fprintf(out, "%02x", x->catalogue.identity[i]);
    fprintf(out, "\n\n");
}

static void print_parts(const struct inspection *x)
{
    FILE *out = x->context->out;
    char bytes[UNITS_TEXT_MAX];
    fprintf(out, "%-16s %9s %12s  %s\n", "weights", "number", "size", "formats");
    for (int p = 0; p < PART_COUNT; p++) {
        const struct tally *t = &x->parts[p];
        const char *comma = "";
        bool is_mixed = false;
        if (t->n == 0) continue;
        fprintf(out, "%-16s %9" PRIu32 " %12s  ", part_names[p], t->n, units_format_bytes(bytes, t->bytes));
        for (int f = 0; f < FORMAT_COUNT; f++) is_mixed |= t->by_format[f] != 0 && t->by_format[f] != t->n;
        for (int f = 0; f < FORMAT_COUNT; f++) {
            if (t->by_format[f] == 0) continue;
            fprintf(out, "%s%s", comma, format_name((enum weight_format)f));
            if (is_mixed) fprintf(out, " (%" PRIu32 ")", t->by_format[f]);
            comma = ", ";
        }
        fprintf(out, "\n");
    }
    fprintf(out, "\n%" PRIu32 " quantised matrices, %" PRIu32 " routed experts, %" PRIu32 " indexers\n\n",
            x->inventory.n_quantised, x->inventory.n_routed_experts, x->inventory.n_full_indexers);
}

static void print_capability(FILE *out, const char *name, enum capability capability, const char *present,
                             const char *reason)
{
    static const char *const words[] = {
        [CAPABILITY_ABSENT] = "absent", [CAPABILITY_PRESENT] = "present", [CAPABILITY_REFUSED] = "refused"};
    fprintf(out, "%-13s %s%s%s\n", name, words[capability], reason[0] || present[0] ? ": " : "",
            reason[0] ? reason : present);
}

static void print_capabilities(const struct inspection *x)
{
    const struct inventory *v = &x->inventory;
    FILE *out = x->context->out;
    print_capability(out, "core", CAPABILITY_PRESENT, "every tensor is there and has the right size", "");
    print_capability(out, "DSA", v->dsa, v->dsa == CAPABILITY_PRESENT ? "every full layer has its indexer" : "",
                     v->dsa_reason);
    print_capability(out, "MTP", v->mtp,
                     v->mtp != CAPABILITY_PRESENT ? ""
                     : v->mtp_has_indexer         ? "with an indexer of its own"
                                                  : "without an indexer of its own",
                     v->mtp_reason);
    fprintf(out, "chat template %s\n", x->chat_template.text);
    if (x->catalogue.n_ignored_files > 0)
        fprintf(out, "ignored       %" PRIu32 " safetensors file%s of no known family, such as %s\n",
                x->catalogue.n_ignored_files, x->catalogue.n_ignored_files == 1 ? "" : "s", x->catalogue.ignored_file);
    if (v->n_ignored > 0)
        fprintf(out, "ignored       %" PRIu32 " tensor%s that no part of the model uses, such as %s\n", v->n_ignored,
                v->n_ignored == 1 ? "" : "s", v->ignored_tensor);
}

/* One line: name, format as stored, shape, bytes, file and offset, separated by tabs. */
static void print_tensor(const struct inspection *x, uint32_t index)
{
    const struct tensor *t = &x->catalogue.tensors[index];
    FILE *out = x->context->out;
    fprintf(out, "%s\t%s\t[", t->name, dtype_name(t->dtype));
    for (uint32_t d = 0; d < t->rank; d++) fprintf(out, "%s%" PRIu64, d ? "," : "", t->shape[d]);
    fprintf(out, "]\t%" PRIu64 "\t%s\t%" PRIu64 "%s\n", t->bytes, x->catalogue.shards[t->shard].name, t->offset,
            x->inventory.is_used[index] ? "" : "\tignored");
}

static void print_text(const struct inspection *x)
{
    print_model(x);
    print_parts(x);
    print_capabilities(x);
    if (!x->context->settings->tensors) return;
    fprintf(x->context->out, "\n");
    for (uint32_t i = 0; i < x->catalogue.n_tensors; i++) print_tensor(x, i);
}

/* --- for programs --- */

static bool add_text(struct buf *out, const char *key, const char *value, struct err *err)
{
    if (!buf_printf(out, err, ", \"%s\": ", key)) return false;
    if (!value || !value[0]) return buf_add_text(out, "null", err);
    return json_text_add_string(out, value, strlen(value), err);
}

static bool add_formats(struct inspection *x, struct err *err)
{
    const char *comma = "";
    if (!buf_add_text(&x->text, ", \"formats\": {", err)) return false;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (x->all.by_format[f] == 0) continue;
        if (!buf_printf(&x->text, err, "%s\"%s\": %" PRIu32, comma, format_name((enum weight_format)f),
                        x->all.by_format[f]))
            return false;
        comma = ", ";
    }
    return buf_add_text(&x->text, "}", err);
}

static const char *const template_words[] = {[TEMPLATE_ABSENT] = "absent",
                                             [TEMPLATE_KNOWN] = "known",
                                             [TEMPLATE_ALIKE] = "alike",
                                             [TEMPLATE_DIFFERS] = "differs"};

static bool add_summary(struct inspection *x, struct err *err)
{
    const struct inventory *v = &x->inventory;
    struct buf *out = &x->text;
    if (!buf_printf(out, err,
                    "{\"tensors\": %" PRIu32 ", \"quantised\": %" PRIu32 ", \"routed_experts\": %" PRIu32
                    ", \"full_indexers\": %" PRIu32 ", \"dsa\": %s, \"mtp\": %s",
                    x->catalogue.n_tensors, v->n_quantised, v->n_routed_experts, v->n_full_indexers,
                    v->dsa == CAPABILITY_PRESENT ? "true" : "false", v->mtp == CAPABILITY_PRESENT ? "true" : "false"))
        return false;
    if (!add_formats(x, err)) return false;
    if (!buf_printf(out, err, ", \"bytes\": %" PRIu64 ", \"identity\": \"", v->bytes)) return false;
    for (size_t i = 0; i < sizeof x->catalogue.identity; i++)
        if (!buf_printf(out, err, "%02x", x->catalogue.identity[i])) return false;
    if (!buf_printf(out, err,
                    "\", \"shards\": %" PRIu32 ", \"layers\": %" PRIu32 ", \"dsa_refused\": %s, \"mtp_refused\": %s"
                    ", \"mtp_degraded\": %s, \"mtp_indexer\": %s, \"ignored_tensors\": %" PRIu32
                    ", \"ignored_files\": %" PRIu32,
                    x->catalogue.n_shards, x->config.n_layers, v->dsa == CAPABILITY_REFUSED ? "true" : "false",
                    v->mtp == CAPABILITY_REFUSED ? "true" : "false", v->mtp_is_degraded ? "true" : "false",
                    v->mtp_has_indexer ? "true" : "false", v->n_ignored, x->catalogue.n_ignored_files))
        return false;
    return add_text(out, "dsa_reason", v->dsa_reason, err) && add_text(out, "mtp_reason", v->mtp_reason, err) &&
           add_text(out, "chat_template", template_words[x->chat_template.kind], err) &&
           add_text(out, "chat_template_reason", x->chat_template.text, err);
}

static bool add_tensor(struct inspection *x, uint32_t index, struct err *err)
{
    const struct tensor *t = &x->catalogue.tensors[index];
    struct buf *out = &x->text;
    if (!buf_printf(out, err, "%s\n{\"name\": ", index ? "," : "")) return false;
    if (!json_text_add_string(out, t->name, strlen(t->name), err)) return false;
    if (!buf_printf(out, err, ", \"dtype\": \"%s\", \"shape\": [", dtype_name(t->dtype))) return false;
    for (uint32_t d = 0; d < t->rank; d++)
        if (!buf_printf(out, err, "%s%" PRIu64, d ? ", " : "", t->shape[d])) return false;
    if (!buf_printf(out, err, "], \"bytes\": %" PRIu64 ", \"offset\": %" PRIu64 ", \"used\": %s", t->bytes, t->offset,
                    x->inventory.is_used[index] ? "true" : "false"))
        return false;
    return add_text(out, "file", x->catalogue.shards[t->shard].name, err) && buf_add_text(out, "}", err);
}

static void flush_text(struct inspection *x)
{
    fwrite(x->text.data, 1, x->text.bytes, x->context->out);
    buf_clear(&x->text);
}

/* One object, written as it grows: the list of tensors can be long. */
static bool print_json(struct inspection *x, struct err *err)
{
    if (!add_summary(x, err)) return false;
    if (x->context->settings->tensors) {
        if (!buf_add_text(&x->text, ", \"tensor_list\": [", err)) return false;
        for (uint32_t i = 0; i < x->catalogue.n_tensors; i++) {
            if (!add_tensor(x, i, err)) return false;
            flush_text(x);
        }
        if (!buf_add_text(&x->text, "]", err)) return false;
    }
    if (!buf_add_text(&x->text, "}\n", err)) return false;
    flush_text(x);
    return true;
}

static bool open_headers(struct inspection *x, struct err *err)
{
    struct command_context *context = x->context;
    const char *dir = context->operands[0];
    return config_read(&x->config, context->alloc, context->fs, dir, err) &&
           catalogue_open(&x->catalogue, context->alloc, context->fs, dir, err) &&
           inventory_build(&x->inventory, context->alloc, &x->config, &x->catalogue, err) &&
           template_check(&x->chat_template, context->alloc, context->fs, dir, err);
}

/* A capability that is there in part is damage, although the core would run. */
static bool check_whole(const struct inspection *x, struct err *err)
{
    const struct inventory *v = &x->inventory;
    if (v->dsa == CAPABILITY_REFUSED) return err_set(err, ERR_DATA, "DSA is incomplete: %s", v->dsa_reason);
    if (v->mtp == CAPABILITY_REFUSED) return err_set(err, ERR_DATA, "MTP is incomplete: %s", v->mtp_reason);
    return true;
}

int command_inspect(struct command_context *context)
{
    struct err err = {0};
    struct inspection x = {.context = context};
    buf_init(&x.text, context->alloc, TEXT_BYTES_MAX);
    bool ok = open_headers(&x, &err);
    if (ok) {
        count_all(&x);
        if (context->settings->json)
            ok = print_json(&x, &err);
        else
            print_text(&x);
    }
    if (ok) ok = check_whole(&x, &err);
    buf_fini(&x.text);
    inventory_fini(&x.inventory);
    catalogue_close(&x.catalogue);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
