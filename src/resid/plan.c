#include "resid/plan.h"

#include "base/assert.h"
#include "base/checked.h"
#include "base/units.h"
#include "model/forward.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum {
    CHUNK_MIN = 16,
    BLOCK_OVERHEAD = 256,     /* of one allocation, with its pointer */
    TENSOR_BYTES = 192,       /* of the catalogue, for one tensor: entry, name, shape */
    TOKEN_BYTES = 400,        /* of the tokenizer, for one token: text, merges, tables */
    THREAD_BYTES = 512 << 10, /* stack that is really touched, thread-local memory of the C library */
    REQUEST_BYTES = 256,      /* of the reader, its device and the kernel's rings */
};
#define RUNTIME_BYTES (96 * MIB) /* program, libraries, server, buffers of connections */

/* Everything the lines are computed from; one line's change gives another plan. */
struct draft {
    struct plan *plan;
    const struct inventory *inventory;
    const struct config *config;
    struct plan_request want;
    struct spine_bytes spine;
    uint64_t kv_block_bytes;
};

PRINTF_LIKE(4, 5)
static void add(struct plan *plan, const char *name, uint64_t bytes, const char *format, ...)
{
    ASSERT(plan->n_items < PLAN_ITEMS_MAX);
    struct plan_item *item = &plan->items[plan->n_items++];
    va_list args;
    va_start(args, format);
    item->name = name;
    item->bytes = bytes;
    vsnprintf(item->derivation, sizeof item->derivation, format, args);
    va_end(args);
    plan->used_bytes += bytes;
}

static bool has_mtp(const struct draft *d)
{
    return d->want.spine.with_mtp && d->inventory->mtp == CAPABILITY_PRESENT;
}

static bool has_dsa(const struct draft *d)
{
    return d->want.spine.with_dsa && d->inventory->dsa == CAPABILITY_PRESENT;
}

static void add_weights(struct draft *d)
{
    uint64_t weights = d->spine.main + d->spine.indexers + d->spine.mtp;
    add(d->plan, "spine", d->spine.main,
        "attention, norms, routers, dense and shared experts of %" PRIu32
        " layers, and the head; embedding rows are read on demand",
        d->config->n_layers);
    if (has_mtp(d)) add(d->plan, "MTP layer", d->spine.mtp, "its attention, shared expert and projections");
    if (has_dsa(d)) add(d->plan, "indexers", d->spine.indexers, "of the layers that select positions");
    add(d->plan, "page ends", d->spine.page_bytes - weights, "weights are kept in the pages they were read in");
}

static void add_state(struct draft *d)
{
    struct kv_layout layout;
    bool mtp_keys = has_mtp(d) && has_dsa(d) && d->inventory->mtp_has_indexer;
    kv_layout_init(&layout, d->config, d->want.kv_storage, has_dsa(d), has_mtp(d), mtp_keys);
    uint64_t blocks = div_up((uint64_t)d->want.context_tokens + 1 + d->want.n_drafts, KV_BLOCK_ROWS);
    uint64_t block_bytes = layout.block_bytes + BLOCK_OVERHEAD;
    d->plan->kv_blocks = (uint32_t)(blocks * d->want.n_sequences);
    d->kv_block_bytes = block_bytes;
    add(d->plan, "sequence state", blocks * block_bytes * d->want.n_sequences,
        "%" PRIu32 " sequences x %" PRIu64 " blocks of %d tokens x %" PRIu64 " bytes (%" PRIu64 " a token, %s)",
        d->want.n_sequences, blocks, KV_BLOCK_ROWS, block_bytes, layout.block_bytes / KV_BLOCK_ROWS,
        kv_codec_of(d->want.kv_storage)->name);
    if (d->want.drafting_bytes > 0)
        add(d->plan, "drafting", d->want.drafting_bytes * d->want.n_sequences,
            "%" PRIu32 " sequences x %" PRIu64 " bytes: what drafts are made from", d->want.n_sequences,
            d->want.drafting_bytes);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What a forward pass takes for so many rows, by the table that it takes it by. */
static struct forward_scratch scratch_for(const struct draft *d, uint64_t rows, uint64_t logit_rows)
{
    const struct forward_options options = {.rows_max = (uint32_t)rows,
                                            .logit_rows_max = (uint32_t)logit_rows,
                                            .positions_max = d->want.context_tokens,
                                            .kv_storage = d->want.kv_storage};
    return forward_scratch_of(d->config, &options, has_mtp(d));
}

/* The longest chunk whose scratch takes a sixteenth of what the fixed lines leave: the rest is worth more as slots. */
static uint32_t choose_chunk(const struct draft *d, uint64_t left_bytes)
{
    uint32_t chunk = PLAN_CHUNK_MAX;
    if (d->want.prefill_chunk) return d->want.prefill_chunk;
    while (chunk > CHUNK_MIN &&
           (chunk > d->want.context_tokens || scratch_for(d, chunk, 1).pass_bytes > left_bytes / 16))
        chunk /= 2;
    return chunk;
}

static void add_scratch(struct draft *d)
{
    const struct config *c = d->config;
    struct plan *plan = d->plan;
    uint64_t left = plan->budget_bytes > plan->used_bytes ? plan->budget_bytes - plan->used_bytes : 0;
    uint64_t decode_rows = (uint64_t)d->want.n_sequences * (1 + d->want.n_drafts);
    plan->prefill_chunk = choose_chunk(d, left);
    plan->logit_rows = (uint32_t)decode_rows;
    uint64_t rows = plan->prefill_chunk + decode_rows; /* decode rows ride along in a prefill pass */
    plan->pass_rows = (uint32_t)rows;
    struct forward_scratch scratch = scratch_for(d, rows, decode_rows);
    add(plan, "scratch of a pass", scratch.pass_bytes,
        "%" PRIu64 " rows, of which %" PRIu32 " of a prompt, %" PRIu64 " bytes for each", rows, plan->prefill_chunk,
        scratch.pass_bytes / rows);
    add(plan, "logits", scratch.logits_bytes + c->vocab * 2 * sizeof(float),
        "%" PRIu64 " rows x %" PRIu32 " floats, and a sampler's copy", decode_rows, c->vocab);
    uint64_t thread = scratch.thread_bytes + THREAD_BYTES;
    add(plan, "threads", d->want.n_threads * thread, "%u x %" PRIu64 " bytes: scores of a whole context, and a stack",
        d->want.n_threads, thread);
}

static void add_overhead(struct draft *d)
{
    const struct config *c = d->config;
    uint64_t tensors = d->inventory->catalogue->n_tensors;
    uint64_t sources = ((uint64_t)c->n_layers + 1) *
                       (sizeof(struct layer_sources) + c->n_experts * EXPERT_PARTS * sizeof(struct weight_source));
    uint64_t tokenizer =
        d->want.tokenizer_bytes == PLAN_AUTO ? (uint64_t)c->vocab * TOKEN_BYTES : d->want.tokenizer_bytes;
    add(d->plan, "tokenizer", tokenizer, "%" PRIu32 " tokens", c->vocab);
    add(d->plan, "catalogue", tensors * TENSOR_BYTES + sources, "%" PRIu64 " tensors x %d bytes, and who is what",
        tensors, TENSOR_BYTES);
    add(d->plan, "reading",
        (uint64_t)d->want.requests_max * REQUEST_BYTES +
            (uint64_t)d->want.embedding_rows_kept * c->hidden * sizeof(float),
        "%" PRIu32 " requests, %" PRIu32 " embedding rows kept", d->want.requests_max, d->want.embedding_rows_kept);
    add(d->plan, "program", RUNTIME_BYTES, "code, libraries, connections");
    uint64_t cache = d->want.prompt_cache_bytes;
    if (cache == PLAN_AUTO) cache = d->plan->budget_bytes / 64 < 8 * GIB ? d->plan->budget_bytes / 64 : 8 * GIB;
    d->plan->prompt_cache_blocks = (uint32_t)(cache / d->kv_block_bytes);
    add(d->plan, "prompt cache", cache, d->want.prompt_cache_bytes == PLAN_AUTO ? "a 64th of the budget" : "as asked");
    uint64_t safety = larger(d->plan->budget_bytes / 64, 128 * MIB);
    add(d->plan, "safety", safety,
        "a 64th of the budget, at least 128 MiB: page tables, fragments, what is not foreseen");
}

static void fill(struct draft *d)
{
    struct plan *plan = d->plan;
    plan->n_items = 0;
    plan->used_bytes = 0;
    add_weights(d);
    add_state(d);
    add_overhead(d);
    add_scratch(d);
}

/* One slot for each size of expert: a step goes in waves then, but it goes. */
static uint64_t least_slot_bytes(const struct slot_classes *classes)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < classes->n; c++) bytes += classes->of[c].slot_bytes;
    return bytes;
}

static bool fits(struct draft *d)
{
    fill(d);
    return d->plan->used_bytes + least_slot_bytes(&d->plan->classes) <= d->plan->budget_bytes;
}

/* The largest context that fits when everything else stays, or 0. */
static uint32_t context_that_fits(const struct draft *d)
{
    uint32_t low = 0, high = d->want.context_tokens;
    struct plan scratch = *d->plan;
    struct draft other = *d;
    other.plan = &scratch;
    while (low + KV_BLOCK_ROWS < high) {
        other.want.context_tokens = low + (high - low) / 2;
        if (fits(&other))
            low = other.want.context_tokens;
        else
            high = other.want.context_tokens;
    }
    return round_down(low, KV_BLOCK_ROWS);
}

/* In tenths of a GiB, upwards. The budget appears in some lines, so the answer is tried and raised until it holds. */
static uint64_t budget_that_fits(const struct draft *d)
{
    struct plan scratch = *d->plan;
    struct draft other = *d;
    other.plan = &scratch;
    uint64_t tenths = div_up((scratch.used_bytes + least_slot_bytes(&scratch.classes)) * 10, GIB);
    for (int i = 0; i < 1000; i++, tenths++) {
        scratch.budget_bytes = tenths * GIB / 10;
        if (fits(&other)) break;
    }
    return tenths;
}

static bool refuse(struct draft *d, struct err *err)
{
    char budget[UNITS_TEXT_MAX], need[UNITS_TEXT_MAX], context_text[64] = "";
    uint64_t least = d->plan->used_bytes + least_slot_bytes(&d->plan->classes), tenths = budget_that_fits(d);
    uint32_t context = context_that_fits(d);
    if (context >= KV_BLOCK_ROWS) snprintf(context_text, sizeof context_text, " or --context-length %" PRIu32, context);
    return err_set(err, ERR_FIT,
                   "needs at least %s to run, and the budget is %s (%s): use --ram-budget %" PRIu64 ".%" PRIu64 "GiB%s",
                   units_format_bytes(need, least), units_format_bytes(budget, d->plan->budget_bytes),
                   d->plan->budget_source, tenths / 10, tenths % 10, context_text);
}

static bool choose_budget(struct plan *plan, const struct plan_request *want, struct err *err)
{
    const struct memory_fact *least = want->facts ? memory_facts_least(want->facts) : NULL;
    char asked[UNITS_TEXT_MAX], there[UNITS_TEXT_MAX];
    if (want->budget_bytes != PLAN_AUTO) {
        plan->budget_bytes = want->budget_bytes;
        snprintf(plan->budget_source, sizeof plan->budget_source, "as asked");
        if (!least || want->budget_bytes <= least->bytes) return true;
        return err_set(err, ERR_FIT, "a budget of %s was asked for, and only %s are there (%s)",
                       units_format_bytes(asked, want->budget_bytes), units_format_bytes(there, least->bytes),
                       least->source);
    }
    if (!least)
        return err_set(err, ERR_USER,
                       "cannot find out how much memory this machine has (%s): state it with --ram-budget",
                       want->facts ? want->facts->physical.source : "no machine was looked at");
    uint64_t reserve = larger(least->bytes / 20, 512 * MIB);
    plan->budget_bytes = least->bytes > reserve ? least->bytes - reserve : 0;
    snprintf(plan->budget_source, sizeof plan->budget_source, "%s, less a reserve of a 20th or 512 MiB", least->source);
    return true;
}

/* The one line that is as large as somebody says: looked at by itself, because a sum with it could wrap. */
static bool check_cache(const struct plan *plan, const struct plan_request *want, struct err *err)
{
    char asked[UNITS_TEXT_MAX], budget[UNITS_TEXT_MAX];
    if (want->prompt_cache_bytes == PLAN_AUTO || want->prompt_cache_bytes <= plan->budget_bytes) return true;
    return err_set(err, ERR_FIT,
                   "a prompt cache of %s was asked for, and the whole budget is %s (%s): use a smaller --prompt-cache",
                   units_format_bytes(asked, want->prompt_cache_bytes), units_format_bytes(budget, plan->budget_bytes),
                   plan->budget_source);
}

/* Routing prefers some experts: a cache finds more than its share. Measured on this family with 0.7 to 50 % resident,
 * it found between its share and the curve below. */
static void predict(struct draft *d)
{
    struct plan *plan = d->plan;
    const struct config *c = d->config;
    uint64_t n_sparse = 0, expert_bytes = 0, n_experts = 0, n_slots = 0;
    for (uint32_t layer = 0; layer < c->n_layers; layer++) n_sparse += d->inventory->layers[layer].experts != NULL;
    for (uint32_t k = 0; k < plan->classes.n; k++) {
        n_experts += plan->classes.of[k].n_experts;
        n_slots += plan->n_slots[k];
    }
    const struct slot_class *main_class = &plan->classes.of[0];
    for (uint32_t k = 1; k < plan->classes.n; k++)
        if (plan->classes.of[k].n_experts > main_class->n_experts) main_class = &plan->classes.of[k];
    if (n_experts == 0 || main_class->n_experts == 0) return;
    expert_bytes = main_class->weight_bytes / main_class->n_experts;
    plan->token_bytes = n_sparse * c->n_experts_per_token * expert_bytes;
    plan->hits_low = (double)n_slots / (double)n_experts;
    plan->hits_high = 1.0 - pow(1.0 - plan->hits_low, 2.5);
    if (d->want.disk_bytes_per_s == 0) return;
    double cold = (double)d->want.disk_bytes_per_s / (double)plan->token_bytes;
    plan->rate_low = cold / fmax(1.0 - plan->hits_low, 1e-3);
    plan->rate_high = cold / fmax(1.0 - plan->hits_high, 1e-3);
    snprintf(plan->rate_derivation, sizeof plan->rate_derivation,
             "%" PRIu64 " layers x %" PRIu32 " experts x %" PRIu64 " bytes at %" PRIu64
             " bytes/s, %.1f to %.1f %% found in memory; the processor can only lower it",
             n_sparse, c->n_experts_per_token, expert_bytes, d->want.disk_bytes_per_s, 100 * plan->hits_low,
             100 * plan->hits_high);
}

static void add_slots(struct draft *d)
{
    struct plan *plan = d->plan;
    uint64_t left = plan->budget_bytes - plan->used_bytes;
    if (d->want.slots_max && plan->classes.n) { /* a cap in slots is a cap in slots of the mean size */
        uint64_t all_bytes = 0, all = 0;
        for (uint32_t c = 0; c < plan->classes.n; c++) {
            all += plan->classes.of[c].n_experts;
            all_bytes += plan->classes.of[c].n_experts * plan->classes.of[c].slot_bytes;
        }
        uint64_t cap = larger(all_bytes / all * d->want.slots_max, least_slot_bytes(&plan->classes));
        if (cap < left) left = cap;
    }
    uint64_t used = slot_classes_share(&plan->classes, left, plan->n_slots);
    for (uint32_t c = 0; c < plan->classes.n; c++) plan->n_slots_total += plan->n_slots[c];
    plan->is_thin = plan->classes.n > 0 && plan->n_slots_total < d->config->n_experts_per_token;
    add(plan, "expert slots", used, "what remains: %" PRIu32 " slots, of which %" PRIu32 " x %" PRIu64 " bytes",
        plan->n_slots_total, plan->n_slots[0], plan->classes.of[0].slot_bytes);
}

bool plan_make(struct plan *plan, struct alloc *alloc, const struct inventory *inventory,
               const struct plan_request *request, struct err *err)
{
    struct draft d = {.plan = plan, .inventory = inventory, .config = inventory->config, .want = *request};
    *plan = (struct plan){0};
    ASSERT(request->context_tokens > 0);
    ASSERT(request->n_sequences > 0);
    ASSERT(request->n_threads > 0);
    if (!choose_budget(plan, request, err) || !check_cache(plan, request, err)) return false;
    if (!spine_count(&d.spine, alloc, inventory, request->spine, err)) return false;
    if (!slot_classes_find(&plan->classes, alloc, inventory, request->spine.with_mtp, err)) return false;
    if (!fits(&d)) return refuse(&d, err);
    add_slots(&d);
    predict(&d);
    return true;
}

uint64_t plan_least_bytes(const struct plan *plan)
{
    return plan->used_bytes - plan->items[plan->n_items - 1].bytes + least_slot_bytes(&plan->classes);
}
