#include "fmt/inventory.h"

#include "base/assert.h"
#include "base/checked.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 512 };

#define ARENA_BYTES_MAX (UINT64_C(1) << 30)

struct role_row {
    const char *name;
    uint32_t rows, columns; /* columns 0: a vector */
    enum role_presence presence;
};

static const char *const model_names[MODEL_ROLE_COUNT] = {
    [MODEL_EMBED] = "model.embed_tokens.weight",
    [MODEL_FINAL_NORM] = "model.norm.weight",
    [MODEL_HEAD] = "lm_head.weight",
};

static const char *const part_names[EXPERT_PARTS] = {
    [EXPERT_GATE] = "gate_proj",
    [EXPERT_UP] = "up_proj",
    [EXPERT_DOWN] = "down_proj",
};

static void fill_roles(const struct config *c, struct role_row out[ROLE_COUNT])
{
    const struct role_row rows[ROLE_COUNT] = {
#define X(role, name, rows, columns, presence) [ROLE_##role] = {name, rows, columns, presence},
        ROLE_LIST(X)
#undef X
    };
    memcpy(out, rows, sizeof rows);
}

/* What a builder carries through the catalogue. */
struct builder {
    struct inventory *inventory;
    const struct catalogue *catalogue;
    const struct config *config;
    struct role_row roles[ROLE_COUNT];
};

/* --- one tensor --- */

static const char *path_of(const struct builder *b, const struct tensor *tensor)
{
    return b->catalogue->shards[tensor->shard].file.path;
}

static bool has_shape(const struct tensor *t, uint32_t rows, uint32_t columns)
{
    if (columns == 0) return t->rank == 1 && t->shape[0] == rows;
    return t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns;
}

static bool refuse_shape(const struct builder *b, const struct tensor *t, uint32_t rows, uint32_t columns,
                         struct err *err)
{
    char found[160] = "", wanted[64];
    size_t used = 0;
    for (uint32_t d = 0; d < t->rank && used < sizeof found; d++)
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%" PRIu64, d ? ", " : "", t->shape[d]);
    if (columns == 0)
        snprintf(wanted, sizeof wanted, "%" PRIu32, rows);
    else
        snprintf(wanted, sizeof wanted, "%" PRIu32 ", %" PRIu32, rows, columns);
    return err_set(err, ERR_DATA, "%s: tensor '%s' has shape [%s], config.json asks for [%s]", path_of(b, t), t->name,
                   found, wanted);
}

/* Norms, biases and the router are never quantised. */
static bool resolve_float(const struct builder *b, const struct tensor *t, uint32_t rows, uint32_t columns,
                          struct weight_source *out, struct err *err)
{
    switch (t->dtype) {
    case DTYPE_F32: out->format = FORMAT_F32; break;
    case DTYPE_F16: out->format = FORMAT_F16; break;
    case DTYPE_BF16: out->format = FORMAT_BF16; break;
    default:
        return err_set(err, ERR_DATA, "%s: tensor '%s' is %s, it must be F32 (a checkpoint may have BF16 or F16)",
                       path_of(b, t), t->name, dtype_name(t->dtype));
    }
    if (!has_shape(t, rows, columns)) return refuse_shape(b, t, rows, columns, err);
    out->payload = t;
    return true;
}

static bool resolve_packed(const struct builder *b, const struct tensor *t, struct weight_source *out, struct err *err)
{
    char name[NAME_MAX_BYTES + 8];
    snprintf(name, sizeof name, "%s.qs", t->name);
    const struct tensor *scales = catalogue_find(b->catalogue, name);
    if (!scales) {
        snprintf(name, sizeof name, "%s_scale", t->name);
        if (catalogue_find(b->catalogue, name))
            return err_set(err, ERR_DATA, "%s: tensor '%s' is packed U8 with '%s' (NVFP4), which weir does not read",
                           path_of(b, t), t->name, name);
        return err_set(err, ERR_DATA, "%s: tensor '%s' is U8, but its scales '%s.qs' are missing", path_of(b, t),
                       t->name, t->name);
    }
    if (scales->dtype != DTYPE_F32)
        return err_set(err, ERR_DATA, "%s: tensor '%s' is %s, scales must be F32", path_of(b, scales), name,
                       dtype_name(scales->dtype));
    if (!format_resolve(&out->format, &out->group, out->rows, out->columns, t->bytes, scales->bytes,
                        catalogue_stamp(b->catalogue, t->name), err))
        return err_context(err, "%s: tensor '%s'", path_of(b, t), t->name);
    out->payload = t;
    out->scales = scales;
    return true;
}

static bool resolve_fp8(const struct builder *b, const struct tensor *t, struct weight_source *out, struct err *err)
{
    enum { BLOCK = 128 };
    char name[NAME_MAX_BYTES + 16];
    snprintf(name, sizeof name, "%s_scale_inv", t->name);
    const struct tensor *scales = catalogue_find(b->catalogue, name);
    if (!has_shape(t, out->rows, out->columns)) return refuse_shape(b, t, out->rows, out->columns, err);
    if (!scales)
        return err_set(err, ERR_DATA, "%s: tensor '%s' is F8_E4M3, but its scales '%s' are missing", path_of(b, t),
                       t->name, name);
    if (scales->dtype != DTYPE_F32)
        return err_set(err, ERR_DATA, "%s: tensor '%s' is %s, scales must be F32", path_of(b, scales), name,
                       dtype_name(scales->dtype));
    uint32_t rows = (uint32_t)div_up(out->rows, BLOCK), columns = (uint32_t)div_up(out->columns, BLOCK);
    if (!has_shape(scales, rows, columns)) return refuse_shape(b, scales, rows, columns, err);
    out->format = FORMAT_FP8_BLOCK;
    out->payload = t;
    out->scales = scales;
    return true;
}

/* Fills *out from the tensor of this name, which must be there. On failure *out stays absent. */
static bool resolve(const struct builder *b, const char *name, uint32_t rows, uint32_t columns, bool is_float,
                    struct weight_source *out, struct err *err)
{
    const struct tensor *t = catalogue_find(b->catalogue, name);
    *out = (struct weight_source){.rows = rows, .columns = columns ? columns : 1};
    if (!t) {
        char hint[512];
        catalogue_explain_missing(b->catalogue, name, hint, sizeof hint);
        return err_set(err, ERR_DATA,
                       "%s: tensor '%s' is missing; %" PRIu32 " shards with %" PRIu32 " tensors were indexed%s",
                       b->catalogue->dir, name, b->catalogue->n_shards, b->catalogue->n_tensors, hint);
    }
    if (is_float || columns == 0) return resolve_float(b, t, rows, columns, out, err);
    switch (t->dtype) {
    case DTYPE_U8: return resolve_packed(b, t, out, err);
    case DTYPE_F8_E4M3: return resolve_fp8(b, t, out, err);
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16: return resolve_float(b, t, rows, columns, out, err);
    default:
        return err_set(err, ERR_DATA, "%s: tensor '%s' is %s; weights are U8 with scales, F8_E4M3, BF16, F16 or F32",
                       path_of(b, t), name, dtype_name(t->dtype));
    }
}

static bool resolve_role(const struct builder *b, uint32_t layer, enum role role, struct err *err)
{
    char name[NAME_MAX_BYTES];
    const struct role_row *row = &b->roles[role];
    snprintf(name, sizeof name, "model.layers.%" PRIu32 ".%s", layer, row->name);
    return resolve(b, name, row->rows, row->columns, role == ROLE_ROUTER, &b->inventory->layers[layer].role[role], err);
}

/* --- one layer --- */

static bool resolve_experts(const struct builder *b, uint32_t layer, struct err *err)
{
    const struct config *c = b->config;
    struct layer_sources *sources = &b->inventory->layers[layer];
    for (uint32_t e = 0; e < c->n_experts; e++) {
        for (int p = 0; p < EXPERT_PARTS; p++) {
            char name[NAME_MAX_BYTES];
            bool is_down = p == EXPERT_DOWN;
            snprintf(name, sizeof name, "model.layers.%" PRIu32 ".mlp.experts.%" PRIu32 ".%s.weight", layer, e,
                     part_names[p]);
            if (!resolve(b, name, is_down ? c->hidden : c->expert_inner, is_down ? c->expert_inner : c->hidden, false,
                         &sources->experts[e][p], err))
                return false;
        }
    }
    return true;
}

/* Which roles a layer must have; its indexer is looked at on its own. */
static bool needs_role(const struct config *c, uint32_t layer, enum role_presence presence)
{
    switch (presence) {
    case PRESENT_ALWAYS: return true;
    case PRESENT_BIAS: return c->attention_bias;
    case PRESENT_DENSE: return !c->is_sparse[layer];
    case PRESENT_SPARSE: return c->is_sparse[layer];
    case PRESENT_MTP: return layer == c->n_layers;
    case PRESENT_FULL: break;
    }
    return false;
}

/* The experts' array must have been made for a sparse layer. */
static bool resolve_layer(const struct builder *b, uint32_t layer, struct err *err)
{
    for (int r = 0; r < ROLE_COUNT; r++)
        if (needs_role(b->config, layer, b->roles[r].presence) && !resolve_role(b, layer, (enum role)r, err))
            return false;
    return !b->config->is_sparse[layer] || resolve_experts(b, layer, err);
}

static bool make_experts(const struct builder *b, uint32_t layer, struct err *err)
{
    struct layer_sources *sources = &b->inventory->layers[layer];
    sources->experts = arena_get_array(&b->inventory->arena, b->config->n_experts, sizeof *sources->experts, err);
    return sources->experts;
}

static bool resolve_core(const struct builder *b, struct err *err)
{
    const struct config *c = b->config;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (c->is_sparse[l] && !make_experts(b, l, err)) return false;
        if (!resolve_layer(b, l, err)) return false;
    }
    for (int m = 0; m < MODEL_ROLE_COUNT; m++) {
        bool is_vector = m == MODEL_FINAL_NORM;
        if (!resolve(b, model_names[m], is_vector ? c->hidden : c->vocab, is_vector ? 0 : c->hidden, false,
                     &b->inventory->model[m], err))
            return false;
    }
    return true;
}

/* --- capabilities --- */

static bool resolve_indexer(const struct builder *b, uint32_t layer, struct err *err)
{
    for (int r = 0; r < ROLE_COUNT; r++)
        if (b->roles[r].presence == PRESENT_FULL && !resolve_role(b, layer, (enum role)r, err)) return false;
    return true;
}

static void drop_indexer(const struct builder *b, uint32_t layer)
{
    for (int r = 0; r < ROLE_COUNT; r++)
        if (b->roles[r].presence == PRESENT_FULL) b->inventory->layers[layer].role[r] = (struct weight_source){0};
}

static uint32_t count_indexer(const struct builder *b, uint32_t layer)
{
    uint32_t n = 0;
    for (int r = 0; r < ROLE_COUNT; r++) {
        char name[NAME_MAX_BYTES];
        if (b->roles[r].presence != PRESENT_FULL) continue;
        snprintf(name, sizeof name, "model.layers.%" PRIu32 ".%s", layer, b->roles[r].name);
        n += catalogue_find(b->catalogue, name) != NULL;
    }
    return n;
}

/* Sets a reason that has a fixed part and, when the folder shows which shards are missing, their names. */
static void explain_absence(const struct builder *b, const char *tensor, char *reason, size_t room)
{
    char hint[512];
    size_t used = strlen(reason);
    if (catalogue_explain_missing(b->catalogue, tensor, hint, sizeof hint))
        snprintf(reason + used, room - used, "%s", hint);
}

static void find_dsa(const struct builder *b)
{
    struct inventory *inventory = b->inventory;
    const struct config *c = b->config;
    struct err err = {0};
    uint32_t n_found = 0, n_full = 0;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        if (!c->is_full[l]) continue;
        n_found += count_indexer(b, l);
        n_full++;
    }
    if (n_found == 0) {
        snprintf(inventory->dsa_reason, sizeof inventory->dsa_reason,
                 "no indexer tensors for the %" PRIu32 " full layers; attention is dense at every length", n_full);
        explain_absence(b, "model.layers.0.self_attn.indexer.wq_b.weight", inventory->dsa_reason,
                        sizeof inventory->dsa_reason);
        return;
    }
    inventory->dsa = CAPABILITY_PRESENT;
    for (uint32_t l = 0; l < c->n_layers && inventory->dsa == CAPABILITY_PRESENT; l++)
        if (c->is_full[l] && !resolve_indexer(b, l, &err)) inventory->dsa = CAPABILITY_REFUSED;
    if (inventory->dsa == CAPABILITY_PRESENT) {
        inventory->n_full_indexers = n_full;
        return;
    }
    for (uint32_t l = 0; l < c->n_layers; l++) drop_indexer(b, l);
    snprintf(inventory->dsa_reason, sizeof inventory->dsa_reason, "%.500s", err.text);
}

/* Tensors of the MTP layer but for its indexer. */
static uint32_t count_mtp(const struct builder *b)
{
    char prefix[64];
    uint32_t n = 0;
    size_t bytes = (size_t)snprintf(prefix, sizeof prefix, "model.layers.%" PRIu32 ".", b->config->n_layers);
    for (uint32_t i = 0; i < b->catalogue->n_tensors; i++) {
        const char *name = b->catalogue->tensors[i].name;
        n += strncmp(name, prefix, bytes) == 0 && !strstr(name, ".indexer.");
    }
    return n;
}

/* A row scale set by one half of eh_proj flushes the other half to zero at four bits: the drafts are then noise. */
static void find_degraded(const struct builder *b)
{
    struct inventory *inventory = b->inventory;
    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct weight_source *source = &inventory->layers[b->config->n_layers].role[r];
        if (!source->payload || b->roles[r].columns == 0) continue;
        if (source->format != FORMAT_INT4_ROW && source->format != FORMAT_INT4_GROUPED &&
            source->format != FORMAT_INT2_ROW && source->format != FORMAT_INT3_G64)
            continue;
        inventory->mtp_is_degraded = true;
        snprintf(inventory->mtp_reason, sizeof inventory->mtp_reason,
                 "degraded: %s is %s, dense MTP matrices need int8 or better; few drafts will be accepted",
                 b->roles[r].name, format_name(source->format));
    }
}

static bool find_mtp(const struct builder *b, struct err *err)
{
    struct inventory *inventory = b->inventory;
    uint32_t layer = b->config->n_layers, n = count_mtp(b);
    size_t room = sizeof inventory->mtp_reason;
    struct err why = {0};
    if (!b->config->declares_mtp) {
        snprintf(inventory->mtp_reason, room, "config.json does not declare one MTP layer (num_nextn_predict_layers)%s",
                 n > 0 ? "; the tensors of that layer are ignored" : "");
        return true;
    }
    if (n == 0) {
        char name[NAME_MAX_BYTES];
        snprintf(name, sizeof name, "model.layers.%" PRIu32 ".eh_proj.weight", layer);
        snprintf(inventory->mtp_reason, room, "no tensors of the MTP layer %" PRIu32 "; drafting with it is off",
                 layer);
        explain_absence(b, name, inventory->mtp_reason, room);
        return true;
    }
    if (!make_experts(b, layer, err)) return false;
    if (!resolve_layer(b, layer, &why)) {
        inventory->mtp = CAPABILITY_REFUSED;
        inventory->layers[layer] = (struct layer_sources){0};
        snprintf(inventory->mtp_reason, room, "%.500s", why.text);
        return true;
    }
    inventory->mtp = CAPABILITY_PRESENT;
    find_degraded(b);
    if (count_indexer(b, layer) == 0 || inventory->dsa != CAPABILITY_PRESENT) return true;
    inventory->mtp_has_indexer = resolve_indexer(b, layer, &why);
    if (inventory->mtp_has_indexer) return true;
    drop_indexer(b, layer);
    if (!inventory->mtp_reason[0])
        snprintf(inventory->mtp_reason, room, "its own indexer is ignored, so it attends densely: %.400s", why.text);
    return true;
}

/* --- what should not be there --- */

static bool take_number(const char **text, uint32_t *out)
{
    uint32_t n = 0;
    const char *p = *text;
    if (*p < '0' || *p > '9') return false;
    for (; *p >= '0' && *p <= '9'; p++) n = n > UINT32_MAX / 100 ? n : n * 10 + (uint32_t)(*p - '0');
    *text = p;
    *out = n;
    return true;
}

static bool skip_text(const char **text, const char *what)
{
    size_t n = strlen(what);
    if (strncmp(*text, what, n) != 0) return false;
    *text += n;
    return true;
}

/* Layers and experts that the config knows nothing of belong to another model. */
static bool check_numbers(const struct builder *b, const struct tensor *t, struct err *err)
{
    const char *name = t->name;
    uint32_t layer, expert;
    if (!skip_text(&name, "model.layers.") || !take_number(&name, &layer)) return true;
    if (layer > b->config->n_layers)
        return err_set(err, ERR_DATA,
                       "%s: tensor '%s' is of a layer that config.json does not have (%" PRIu32 " layers)",
                       path_of(b, t), t->name, b->config->n_layers);
    if (!skip_text(&name, ".mlp.experts.") || !take_number(&name, &expert)) return true;
    if (expert >= b->config->n_experts)
        return err_set(err, ERR_DATA,
                       "%s: tensor '%s' is of an expert that config.json does not have (%" PRIu32 " experts)",
                       path_of(b, t), t->name, b->config->n_experts);
    return true;
}

/* Scales whose weight is missing or of a kind that has none. */
static bool check_scales(const struct builder *b, const struct tensor *t, const char *suffix, enum dtype dtype,
                         struct err *err)
{
    char name[NAME_MAX_BYTES];
    size_t n = strlen(t->name), cut = strlen(suffix);
    if (n <= cut || n - cut >= sizeof name || strcmp(t->name + n - cut, suffix) != 0) return true;
    memcpy(name, t->name, n - cut);
    name[n - cut] = 0;
    const struct tensor *weight = catalogue_find(b->catalogue, name);
    if (!weight)
        return err_set(err, ERR_DATA, "%s: tensor '%s' are scales, but their weight '%s' is missing", path_of(b, t),
                       t->name, name);
    if (weight->dtype == dtype) return true;
    return err_set(err, ERR_DATA, "%s: tensor '%s' are scales, but their weight is %s and not %s", path_of(b, t),
                   t->name, dtype_name(weight->dtype), dtype_name(dtype));
}

/* A bias that the config denies would be left out of the sum without a word. */
static bool check_bias(const struct builder *b, const struct tensor *t, struct err *err)
{
    if (b->config->attention_bias || !strstr(t->name, ".self_attn.")) return true;
    for (int r = 0; r < ROLE_COUNT; r++) {
        const char *tail = strstr(t->name, b->roles[r].name);
        if (b->roles[r].presence == PRESENT_BIAS && tail && strcmp(tail, b->roles[r].name) == 0)
            return err_set(err, ERR_DATA, "%s: tensor '%s' is there, but attention_bias is false in config.json",
                           path_of(b, t), t->name);
    }
    return true;
}

static bool check_strays(const struct builder *b, struct err *err)
{
    for (uint32_t i = 0; i < b->catalogue->n_tensors; i++) {
        const struct tensor *t = &b->catalogue->tensors[i];
        if (!check_numbers(b, t, err)) return false;
        if (!check_scales(b, t, ".qs", DTYPE_U8, err)) return false;
        if (!check_scales(b, t, "_scale_inv", DTYPE_F8_E4M3, err)) return false;
        if (!check_bias(b, t, err)) return false;
    }
    return true;
}

/* --- the sums --- */

uint64_t weight_source_bytes(const struct weight_source *source)
{
    if (!source->payload) return 0;
    return source->payload->bytes + (source->scales ? source->scales->bytes : 0);
}

static void tally(struct inventory *inventory, uint8_t *is_used, const struct weight_source *source)
{
    const struct tensor *first = inventory->catalogue->tensors;
    if (!source->payload) return;
    ASSERT(!is_used[source->payload - first]); /* no tensor has two roles */
    is_used[source->payload - first] = 1;
    if (source->scales) is_used[source->scales - first] = 1;
    inventory->n_quantised += source->scales != NULL;
    inventory->bytes += weight_source_bytes(source);
}

static bool tally_all(const struct builder *b, struct err *err)
{
    struct inventory *inventory = b->inventory;
    uint8_t *is_used = arena_get(&inventory->arena, b->catalogue->n_tensors, err);
    if (!is_used) return false;
    for (int m = 0; m < MODEL_ROLE_COUNT; m++) tally(inventory, is_used, &inventory->model[m]);
    for (uint32_t l = 0; l <= b->config->n_layers; l++) {
        const struct layer_sources *layer = &inventory->layers[l];
        for (int r = 0; r < ROLE_COUNT; r++) tally(inventory, is_used, &layer->role[r]);
        if (!layer->experts) continue;
        for (uint32_t e = 0; e < b->config->n_experts; e++)
            for (int p = 0; p < EXPERT_PARTS; p++) tally(inventory, is_used, &layer->experts[e][p]);
        inventory->n_routed_experts += b->config->n_experts;
    }
    for (uint32_t i = 0; i < b->catalogue->n_tensors; i++) {
        if (is_used[i]) continue;
        inventory->n_ignored++;
        if (!inventory->ignored_tensor) inventory->ignored_tensor = b->catalogue->tensors[i].name;
    }
    inventory->is_used = is_used;
    return true;
}

bool inventory_build(struct inventory *inventory, struct alloc *alloc, const struct config *config,
                     const struct catalogue *catalogue, struct err *err)
{
    struct builder builder = {.inventory = inventory, .catalogue = catalogue, .config = config};
    *inventory = (struct inventory){.config = config, .catalogue = catalogue};
    arena_init(&inventory->arena, alloc, ARENA_BYTES_MAX);
    fill_roles(config, builder.roles);
    inventory->layers =
        arena_get_array(&inventory->arena, (uint64_t)config->n_layers + 1, sizeof *inventory->layers, err);
    if (!inventory->layers) goto fail;
    if (!resolve_core(&builder, err)) goto fail;
    if (!check_strays(&builder, err)) goto fail;
    find_dsa(&builder);
    if (!find_mtp(&builder, err)) goto fail;
    if (!tally_all(&builder, err)) goto fail;
    return true;
fail:
    inventory_fini(inventory);
    return false;
}

void inventory_fini(struct inventory *inventory)
{
    if (inventory->arena.alloc) arena_fini(&inventory->arena);
    inventory->layers = NULL;
    inventory->is_used = NULL;
}
