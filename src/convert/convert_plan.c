#include "convert/convert_plan.h"

#include "base/assert.h"
#include "base/checked.h"
#include "convert/convert_layout.h"
#include "fmt/inventory.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_BYTES_MAX (UINT64_C(512) << 20)
#define COLUMNS_MAX (1u << 24) /* of a row, which is the least that is held at once */

/* The group sizes that readers look for, finest first, as they do. */
static const uint32_t group_sizes[] = {16, 32, 48, 64, 96, 128, 192, 256};
enum { GROUP_SIZES = sizeof group_sizes / sizeof *group_sizes };

/* What decides a matrix's width in bits. */
enum treatment { KEEP_F32, QUANTISE_IO, QUANTISE_EXPERT, QUANTISE_OTHER };

struct wanted {
    const char *name;
    enum convert_pass pass;
    enum treatment treatment;
    uint32_t rows, columns; /* columns 0: a vector */
};

struct role_shape {
    const char *name;
    uint32_t rows, columns;
    enum role_presence presence;
    bool is_indexer;
};

struct maker {
    struct convert_plan *plan;
    const struct config *config;
    const struct catalogue *catalogue;
    struct role_shape roles[ROLE_COUNT];
};

struct convert_options convert_options_default(void)
{
    return (struct convert_options){
        .bits = 4,
        .io_bits = 8,
        .group = 64,
        .shard_bytes = UINT64_C(5000000000),
        .block_values = 1 << 22,
        .reserve_bytes = UINT64_C(256) << 20,
    };
}

const char *convert_pass_name(enum convert_pass pass)
{
    static const char *const names[CONVERT_PASSES] = {"main", "mtp", "indexer"};
    ASSERT(pass < CONVERT_PASSES);
    return names[pass];
}

uint64_t convert_source_value_bytes(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32: return 4;
    case DTYPE_F16:
    case DTYPE_BF16: return 2;
    case DTYPE_F8_E4M3: return 1;
    default: return 0;
    }
}

static bool is_group_size(uint32_t group)
{
    for (int i = 0; i < GROUP_SIZES; i++)
        if (group_sizes[i] == group) return true;
    return group == 0;
}

static bool check_bits(const char *what, uint32_t bits, struct err *err)
{
    if (bits == 4 || bits == 8) return true;
    return err_set(err, ERR_USER, "%s: %" PRIu32 " bits cannot be made, only 4 and 8", what, bits);
}

static bool resolve_options(struct convert_options *o, struct err *err)
{
    if (o->expert_bits == 0) o->expert_bits = o->bits;
    if (!check_bits("bits", o->bits, err) || !check_bits("expert bits", o->expert_bits, err) ||
        !check_bits("io bits", o->io_bits, err))
        return false;
    if (!is_group_size(o->group))
        return err_set(err, ERR_USER,
                       "group: readers find groups of 16, 32, 48, 64, 96, 128, 192 or 256 columns, or 0 for one scale "
                       "per row, not %" PRIu32,
                       o->group);
    if (o->shard_bytes == 0 || o->block_values == 0)
        return err_set(err, ERR_USER, "the size of a shard and the number of weights held at once cannot be 0");
    if (o->passes >> CONVERT_PASSES != 0) return err_set(err, ERR_USER, "passes: unknown bits 0x%" PRIx32, o->passes);
    return true;
}

static void fill_roles(struct maker *m)
{
    const struct config *c = m->config;
    const struct role_shape roles[ROLE_COUNT] = {
#define X(role, role_name, n_rows, n_columns, when) \
    {.name = role_name, .rows = n_rows, .columns = n_columns, .presence = when},
        ROLE_LIST(X)
#undef X
    };
    memcpy(m->roles, roles, sizeof roles);
    for (int i = 0; i < ROLE_COUNT; i++) m->roles[i].is_indexer = strstr(roles[i].name, ".indexer.") != NULL;
}

static bool layer_has(const struct maker *m, uint32_t layer, const struct role_shape *role)
{
    const struct config *c = m->config;
    bool is_mtp = layer == c->n_layers;
    switch (role->presence) {
    case PRESENT_ALWAYS: return true;
    case PRESENT_BIAS: return c->attention_bias;
    case PRESENT_FULL: return is_mtp ? m->plan->options.keep_mtp_indexer : c->is_full[layer];
    case PRESENT_DENSE: return !is_mtp && !c->is_sparse[layer];
    case PRESENT_SPARSE: return is_mtp || c->is_sparse[layer];
    case PRESENT_MTP: return is_mtp;
    }
    return false;
}

static enum convert_pass pass_of(const struct maker *m, uint32_t layer, const struct role_shape *role)
{
    if (role->is_indexer) return CONVERT_INDEXER;
    return layer == m->config->n_layers ? CONVERT_MTP : CONVERT_MAIN;
}

static void role_name(char *out, size_t room, uint32_t layer, const char *role)
{
    snprintf(out, room, "model.layers.%" PRIu32 ".%s", layer, role);
}

static bool source_has_pass(const struct maker *m, enum convert_pass pass)
{
    const struct config *c = m->config;
    if (pass == CONVERT_MAIN) return true; /* what is missing of it gets named later */
    if (pass == CONVERT_MTP && !c->declares_mtp) return false;
    uint32_t first = pass == CONVERT_MTP ? c->n_layers : 0, end = pass == CONVERT_MTP ? c->n_layers + 1 : c->n_layers;
    for (uint32_t layer = first; layer < end; layer++) {
        for (int i = 0; i < ROLE_COUNT; i++) {
            char name[256];
            role_name(name, sizeof name, layer, m->roles[i].name);
            if (pass_of(m, layer, &m->roles[i]) == pass && layer_has(m, layer, &m->roles[i]) &&
                catalogue_find(m->catalogue, name))
                return true;
        }
    }
    return false;
}

static bool choose_passes(struct maker *m, struct err *err)
{
    struct convert_options *o = &m->plan->options;
    uint32_t asked = o->passes, has = 0;
    for (enum convert_pass pass = 0; pass < CONVERT_PASSES; pass++) has |= (uint32_t)source_has_pass(m, pass) << pass;
    if (asked >> CONVERT_MTP & 1 && !(has >> CONVERT_MTP & 1))
        return err_set(err, ERR_DATA, "%s: no MTP layer to convert (%s)", m->catalogue->dir,
                       m->config->declares_mtp ? "config.json declares one, but no shard holds a tensor of it"
                                               : "config.json does not declare one: num_nextn_predict_layers");
    if (asked >> CONVERT_INDEXER & 1 && !(has >> CONVERT_INDEXER & 1))
        return err_set(err, ERR_DATA, "%s: no shard holds an indexer tensor of a full layer", m->catalogue->dir);
    o->passes = asked ? asked : has;
    if (o->keep_mtp_indexer && !(o->passes >> CONVERT_INDEXER & 1))
        return err_set(err, ERR_USER, "the MTP layer's own indexer is kept by the indexer pass, which is not selected");
    return true;
}

/* Widths follow the pass first: a draft head or an indexer below 8 bits does not work. */
static uint32_t bits_of(const struct convert_options *o, const struct wanted *w)
{
    if (w->treatment == QUANTISE_IO) return o->io_bits;
    if (w->pass != CONVERT_MAIN) return 8;
    return w->treatment == QUANTISE_EXPERT ? o->expert_bits : o->bits;
}

static void choose_format(struct convert_tensor *t, uint32_t bits, uint32_t group)
{
    t->group = 0;
    if (bits == 8) {
        t->format = FORMAT_INT8_ROW;
    } else if (group == 0 || group >= t->columns) { /* one group is the row: the same bytes */
        t->format = FORMAT_INT4_ROW;
    } else {
        t->format = FORMAT_INT4_GROUPED;
        t->group = group;
    }
    t->payload_bytes = t->rows * format_row_bytes(t->format, t->columns);
    t->scale_bytes = 4 * format_scales(t->format, t->rows, t->columns, t->group);
}

/* A reader only sees sizes: what it would take this tensor for must be what it is. */
static bool is_unambiguous(const struct convert_tensor *t, enum weight_format *format, uint32_t *group)
{
    struct err ignored = {0};
    *format = FORMAT_COUNT;
    *group = 0;
    return format_resolve(format, group, t->rows, t->columns, t->payload_bytes, t->scale_bytes, NULL, &ignored) &&
           *format == t->format && *group == t->group;
}

static bool group_works(const struct convert_plan *plan, uint32_t group)
{
    for (uint32_t i = 0; i < plan->n_tensors; i++) {
        struct convert_tensor t = plan->tensors[i];
        enum weight_format format;
        uint32_t seen_group;
        if (t.format != FORMAT_INT4_GROUPED && t.format != FORMAT_INT4_ROW) continue;
        choose_format(&t, 4, group);
        if (!is_unambiguous(&t, &format, &seen_group)) return false;
    }
    return true;
}

static bool refuse_ambiguous(const struct convert_plan *plan, const struct convert_tensor *t, enum weight_format format,
                             uint32_t group, struct err *err)
{
    char read_as[64] = "nothing it knows", advice[64] = "";
    if (format < FORMAT_COUNT && group)
        snprintf(read_as, sizeof read_as, "%s %" PRIu32, format_name(format), group);
    else if (format < FORMAT_COUNT)
        snprintf(read_as, sizeof read_as, "%s", format_name(format));
    for (int i = GROUP_SIZES - 1; i >= 0 && !advice[0]; i--)
        if (group_sizes[i] < plan->options.group && group_works(plan, group_sizes[i]))
            snprintf(advice, sizeof advice, "; --group %" PRIu32 " is unambiguous", group_sizes[i]);
    if (!advice[0] && group_works(plan, 0)) snprintf(advice, sizeof advice, "; --group 0 is unambiguous");
    return err_set(err, ERR_USER,
                   "%s [%" PRIu32 ", %" PRIu32 "] as %s with group %" PRIu32
                   " has the sizes of another format: a reader would take it for %s%s",
                   t->name, t->rows, t->columns, format_name(t->format), t->group, read_as, advice);
}

static bool check_ambiguity(const struct convert_plan *plan, struct err *err)
{
    for (uint32_t i = 0; i < plan->n_tensors; i++) {
        const struct convert_tensor *t = &plan->tensors[i];
        enum weight_format format;
        uint32_t group;
        if (t->format != FORMAT_F32 && !is_unambiguous(t, &format, &group))
            return refuse_ambiguous(plan, t, format, group, err);
    }
    return true;
}

static bool has_shape(const struct tensor *t, uint64_t rows, uint64_t columns)
{
    if (columns == 0) return t->rank == 1 && t->shape[0] == rows;
    return t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns;
}

static void shape_text(char *out, size_t room, const struct tensor *t)
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < t->rank && used + 24 < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
}

static bool check_shape(const struct maker *m, const struct tensor *t, uint64_t rows, uint64_t columns, struct err *err)
{
    if (has_shape(t, rows, columns)) return true;
    char found[256], wanted[64];
    shape_text(found, sizeof found, t);
    snprintf(wanted, sizeof wanted, columns ? "%" PRIu64 ", %" PRIu64 : "%" PRIu64, rows, columns);
    return err_set(err, ERR_DATA, "%s/%s: %s has shape [%s], config.json asks for [%s]", m->catalogue->dir,
                   m->catalogue->shards[t->shard].name, t->name, found, wanted);
}

/* FP8 goes with one multiplier per 128 x 128 block, and nothing else does. */
static bool find_block_scales(struct maker *m, struct convert_tensor *out, const struct wanted *w, struct err *err)
{
    char name[300];
    snprintf(name, sizeof name, "%s_scale_inv", w->name);
    const struct tensor *scale = catalogue_find(m->catalogue, name);
    const char *shard = m->catalogue->shards[out->source->shard].name;
    bool is_fp8 = out->source->dtype == DTYPE_F8_E4M3;
    if (!is_fp8 && !scale) return true;
    if (!is_fp8)
        return err_set(err, ERR_DATA, "%s/%s: %s is no FP8 tensor, yet %s exists: one of them is wrong",
                       m->catalogue->dir, shard, w->name, name);
    if (!scale)
        return err_set(err, ERR_DATA, "%s/%s: %s is FP8, but its factors %s are in no shard", m->catalogue->dir, shard,
                       w->name, name);
    if (w->columns == 0)
        return err_set(err, ERR_DATA, "%s/%s: %s is an FP8 vector; FP8 is read for matrices only", m->catalogue->dir,
                       shard, w->name);
    if (scale->dtype != DTYPE_F32)
        return err_set(err, ERR_DATA, "%s/%s: %s is not F32, as factors of FP8 tensors must be", m->catalogue->dir,
                       m->catalogue->shards[scale->shard].name, name);
    out->source_scale = scale;
    return check_shape(m, scale, div_up(w->rows, CONVERT_FP8_BLOCK), div_up(w->columns, CONVERT_FP8_BLOCK), err);
}

static bool missing(const struct maker *m, const struct wanted *w, struct err *err)
{
    unsigned layer;
    int n = 0;
    if (sscanf(w->name, "model.layers.%u.mlp.experts.%n", &layer, &n) == 1 && n > 0) {
        char fused[256];
        snprintf(fused, sizeof fused, "%.*sgate_up_proj", n, w->name);
        if (catalogue_find(m->catalogue, fused))
            return err_set(
                err, ERR_DATA,
                "%s: %s holds all experts of a layer in one tensor, which is not supported; a checkpoint with "
                "one gate_proj, up_proj and down_proj per expert is",
                m->catalogue->dir, fused);
    }
    char hint[512];
    catalogue_explain_missing(m->catalogue, w->name, hint, sizeof hint);
    return err_set(
        err, ERR_DATA,
        "%s: tensor %s is missing, which the %s pass needs; %" PRIu32 " shards with %" PRIu32 " tensors were found%s",
        m->catalogue->dir, w->name, convert_pass_name(w->pass), m->catalogue->n_shards, m->catalogue->n_tensors, hint);
}

static bool add(struct maker *m, const struct wanted *w, struct err *err)
{
    struct convert_plan *plan = m->plan;
    if (!(plan->options.passes >> w->pass & 1)) return true;
    const struct tensor *source = catalogue_find(m->catalogue, w->name);
    if (!source) return missing(m, w, err);
    ASSERT(plan->n_tensors < m->catalogue->n_tensors); /* every wanted name is another tensor */
    struct convert_tensor *t = &plan->tensors[plan->n_tensors++];
    *t = (struct convert_tensor){
        .name = source->name, .source = source, .pass = w->pass, .rows = w->rows, .columns = w->columns};
    if (convert_source_value_bytes(source->dtype) == 0)
        return err_set(err, ERR_DATA, "%s/%s: %s is %s; F32, F16, BF16 and F8_E4M3 can be converted", m->catalogue->dir,
                       m->catalogue->shards[source->shard].name, w->name, dtype_name(source->dtype));
    if (!check_shape(m, source, w->rows, w->columns, err) || !find_block_scales(m, t, w, err)) return false;
    if (w->columns > COLUMNS_MAX)
        return err_set(err, ERR_DATA, "%s: rows of %" PRIu32 " values are longer than the limit of %u", w->name,
                       w->columns, COLUMNS_MAX);
    if (w->treatment == KEEP_F32) {
        t->format = FORMAT_F32;
        t->payload_bytes = UINT64_C(4) * w->rows * (w->columns ? w->columns : 1);
        return true;
    }
    choose_format(t, bits_of(&plan->options, w), plan->options.group);
    size_t n = strlen(t->name);
    char *scales_name = arena_get(&plan->arena, n + 4, err);
    if (!scales_name) return false;
    snprintf(scales_name, n + 4, "%s.qs", t->name);
    t->scales_name = scales_name;
    return true;
}

static bool add_experts(struct maker *m, uint32_t layer, struct err *err)
{
    const struct config *c = m->config;
    static const char *const parts[EXPERT_PARTS] = {"gate_proj", "up_proj", "down_proj"};
    for (uint32_t expert = 0; expert < c->n_experts; expert++) {
        for (int part = 0; part < EXPERT_PARTS; part++) {
            char name[256];
            snprintf(name, sizeof name, "model.layers.%" PRIu32 ".mlp.experts.%" PRIu32 ".%s.weight", layer, expert,
                     parts[part]);
            bool is_down = part == EXPERT_DOWN;
            struct wanted w = {
                .name = name,
                .pass = layer == c->n_layers ? CONVERT_MTP : CONVERT_MAIN,
                .treatment = QUANTISE_EXPERT,
                .rows = is_down ? c->hidden : c->expert_inner,
                .columns = is_down ? c->expert_inner : c->hidden,
            };
            if (!add(m, &w, err)) return false;
        }
    }
    return true;
}

static bool add_layer(struct maker *m, uint32_t layer, struct err *err)
{
    for (int i = 0; i < ROLE_COUNT; i++) {
        const struct role_shape *role = &m->roles[i];
        if (!layer_has(m, layer, role)) continue;
        char name[256];
        role_name(name, sizeof name, layer, role->name);
        bool keep = role->columns == 0 || i == ROLE_ROUTER;
        struct wanted w = {
            .name = name,
            .pass = pass_of(m, layer, role),
            .treatment = keep ? KEEP_F32 : QUANTISE_OTHER,
            .rows = role->rows,
            .columns = role->columns,
        };
        if (!add(m, &w, err)) return false;
    }
    bool has_experts = layer == m->config->n_layers || m->config->is_sparse[layer];
    return !has_experts || add_experts(m, layer, err);
}

static bool add_all(struct maker *m, struct err *err)
{
    const struct config *c = m->config;
    const struct wanted outside[] = {
        {"model.embed_tokens.weight", CONVERT_MAIN, QUANTISE_IO, c->vocab, c->hidden},
        {"model.norm.weight", CONVERT_MAIN, KEEP_F32, c->hidden, 0},
        {"lm_head.weight", CONVERT_MAIN, QUANTISE_IO, c->vocab, c->hidden},
    };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (!add(m, &outside[i], err)) return false;
    uint32_t end = c->n_layers;
    if (m->plan->options.passes >> CONVERT_MTP & 1 || m->plan->options.keep_mtp_indexer) end++;
    for (uint32_t layer = 0; layer < end; layer++)
        if (!add_layer(m, layer, err)) return false;
    return true;
}

static int by_pass_and_name(const void *a, const void *b)
{
    const struct convert_tensor *x = a, *y = b;
    if (x->pass != y->pass) return x->pass < y->pass ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Marks what is used and tells about the rest: an extra tensor is no reason to stop, but must not vanish silently. */
static bool count_unused(struct maker *m, struct err *err)
{
    struct convert_plan *plan = m->plan;
    const struct catalogue *catalogue = m->catalogue;
    bool *used = arena_get(&plan->arena, catalogue->n_tensors, err);
    if (!used) return false;
    for (uint32_t i = 0; i < plan->n_tensors; i++) {
        used[plan->tensors[i].source - catalogue->tensors] = true;
        if (plan->tensors[i].source_scale) used[plan->tensors[i].source_scale - catalogue->tensors] = true;
    }
    for (uint32_t i = 0; i < catalogue->n_tensors; i++) {
        if (used[i]) continue;
        if (plan->n_unused++ == 0) plan->unused = catalogue->tensors[i].name;
    }
    return true;
}

bool convert_plan_make(struct convert_plan *plan, struct alloc *alloc, const struct convert_options *options,
                       const struct config *config, const struct catalogue *catalogue, struct err *err)
{
    *plan = (struct convert_plan){.options = *options, .alloc = alloc};
    struct maker m = {.plan = plan, .config = config, .catalogue = catalogue};
    arena_init(&plan->arena, alloc, PLAN_BYTES_MAX);
    fill_roles(&m);
    if (!resolve_options(&plan->options, err) || !choose_passes(&m, err)) goto fail;
    plan->tensors = arena_get_array(&plan->arena, catalogue->n_tensors, sizeof *plan->tensors, err);
    if (!plan->tensors || !add_all(&m, err) || !check_ambiguity(plan, err)) goto fail;
    qsort(plan->tensors, plan->n_tensors, sizeof *plan->tensors, by_pass_and_name);
    if (!count_unused(&m, err) || !convert_layout(plan, err)) goto fail;
    return true;
fail:
    convert_plan_fini(plan);
    return false;
}

void convert_plan_fini(struct convert_plan *plan)
{
    arena_fini(&plan->arena);
    plan->tensors = NULL;
    plan->outputs = NULL;
    plan->n_tensors = plan->n_outputs = 0;
}
