#include "resid/streamer.h"

#include "base/assert.h"
#include "base/checked.h"
#include "fmt/dequantise.h"
#include "resid/sane.h"
#include "resid/spine.h"
#include <inttypes.h>
#include <string.h>

enum {
    DEMAND_MAX = 16, /* of one want; the rest of a long sweep queues behind everybody's demand */
    RETRIES_MAX = 3, /* of an embedding row that could not be read */
};
#define PAUSE_NS INT64_C(10000000)
#define LOOK_NS INT64_C(20000000) /* that looking after reads may take before what is computed goes on */
#define NO_TOKEN UINT32_MAX

/* A wanted expert: WAITING for a slot, COMING from disk, READY to be handed out; GONE when it was or never will be. */
enum entry_state { ENTRY_WAITING, ENTRY_COMING, ENTRY_READY, ENTRY_GONE };

struct entry {
    uint32_t key, slot;
    enum entry_state state;
};

struct streamer {
    struct weights weights;
    struct alloc *alloc;
    struct streamer_settings with;
    const struct inventory *inventory;
    struct slots *slots;

    struct entry *entries;      /* [n_experts]: the want */
    uint32_t *keys;             /* [n_experts] scratch */
    uint32_t n_entries, n_left; /* n_left: not yet handed out */
    uint32_t *hints;            /* [n_experts] keys that were hinted at, in order, and how far they were begun */
    uint32_t n_hints, n_sure_hints, next_hint;
    int64_t *hinted_ns; /* [n_experts] when a hint's read of this layer began, 0: none did */
    uint32_t hinted_layer;
    uint32_t *preload; /* keys to be loaded when there is nothing else to do */
    uint32_t n_preload, next_preload;
    uint32_t layer;
    enum want_order order;
    bool has_failed; /* an expert of this want cannot be had, for the reason below */
    struct err why;

    unsigned char *row;    /* one stored row and its scales */
    uint32_t *kept_tokens; /* [embedding_rows_kept] */
    float *kept_rows;      /* [embedding_rows_kept][hidden] */
    struct streamer_stats stats;
};

static struct streamer *streamer_of(struct weights *weights)
{
    return (struct streamer *)weights;
}

static struct entry *entry_of(struct streamer *s, uint32_t key)
{
    for (uint32_t i = 0; i < s->n_entries; i++)
        if (s->entries[i].key == key && s->entries[i].state == ENTRY_COMING) return &s->entries[i];
    return NULL;
}

/* What happened on disk, as far as this want is concerned. False when nothing happened. */
static bool absorb(struct streamer *s, bool wait)
{
    uint32_t key = 0;
    struct err why = {0};
    enum slots_event event = slots_poll(s->slots, wait, &key, &why);
    struct entry *entry = event == SLOTS_LANDED || event == SLOTS_FAILED ? entry_of(s, key) : NULL;
    if (entry && event == SLOTS_LANDED) entry->state = ENTRY_READY;
    if (entry && event == SLOTS_FAILED) { /* its lease is gone */
        entry->state = ENTRY_GONE;
        if (!s->has_failed) s->why = why;
        s->has_failed = true;
    }
    return event != SLOTS_QUIET;
}

static enum slots_answer ask_for(struct streamer *s, struct entry *e, enum read_priority priority)
{
    const struct slots_stats *stats = slots_stats(s->slots);
    uint32_t n_experts = s->inventory->config->n_experts;
    uint64_t n_hint_hits = stats->n_hint_hits;
    enum slots_answer answer = slots_want(s->slots, e->key, priority, &e->slot);
    bool was_hinted = stats->n_hint_hits > n_hint_hits && e->key / n_experts == s->hinted_layer;
    if (was_hinted && s->hinted_ns[e->key % n_experts] > 0)
        s->stats.lead_ns += clock_now_ns(s->with.clock) - s->hinted_ns[e->key % n_experts];
    return answer;
}

/* Starts misses, in ascending order, until there is no room. */
static void start_misses(struct streamer *s)
{
    for (uint32_t i = 0; i < s->n_entries; i++) {
        struct entry *e = &s->entries[i];
        if (e->state != ENTRY_WAITING) continue;
        enum read_priority priority = i < DEMAND_MAX ? READ_DEMAND : READ_SWEEP;
        enum slots_answer answer = ask_for(s, e, priority);
        if (answer == SLOTS_NO_ROOM) return;
        e->state = answer == SLOTS_HIT ? ENTRY_READY : ENTRY_COMING;
    }
}

static void start_hint(struct streamer *s, uint32_t key, bool is_sure)
{
    uint64_t n_hints = slots_stats(s->slots)->n_hints;
    slots_hint(s->slots, key, is_sure ? READ_HINT : READ_GUESS);
    if (slots_stats(s->slots)->n_hints > n_hints)
        s->hinted_ns[key % s->inventory->config->n_experts] = clock_now_ns(s->with.clock);
}

/* Hints wait until everything that is wanted has been begun and taken up by the device; those that are not sure, until
 * the device has nothing to do at all. */
static void start_hints(struct streamer *s)
{
    for (uint32_t i = 0; i < s->n_entries; i++)
        if (s->entries[i].state == ENTRY_WAITING) return;
    for (; s->next_hint < s->n_hints; s->next_hint++) {
        bool is_sure = s->next_hint < s->n_sure_hints;
        if (!(is_sure ? slots_hint_room(s->slots) : slots_are_idle(s->slots))) return;
        start_hint(s, s->hints[s->next_hint], is_sure);
    }
    for (; s->next_preload < s->n_preload; s->next_preload++) {
        if (!slots_hint_room(s->slots)) return;
        slots_hint(s->slots, s->preload[s->next_preload], READ_HINT);
    }
}

/* Memory that is touched for the first time can make a read slower to begin than it is to land. Reads would then land
 * for as long as there are any, and whoever called would be away for seconds. */
static void keep_going(struct streamer *s)
{
    int64_t since_ns = clock_now_ns(s->with.clock);
    while (absorb(s, false))
        if (clock_now_ns(s->with.clock) - since_ns >= LOOK_NS) return;
    start_misses(s);
    (void)absorb(s, false); /* hands the new reads to the device */
    if (s->next_hint == s->n_hints && s->next_preload == s->n_preload) return;
    start_hints(s);
    (void)absorb(s, false);
}

static void drop(struct streamer *s)
{
    for (uint32_t i = 0; i < s->n_entries; i++) {
        struct entry *e = &s->entries[i];
        if (e->state == ENTRY_COMING || e->state == ENTRY_READY) slots_unpin(s->slots, e->slot);
    }
    s->n_entries = s->n_left = 0;
    s->has_failed = false;
}

static void drop_want(struct weights *weights)
{
    drop(streamer_of(weights));
}

static bool want(struct weights *weights, uint32_t layer, const uint32_t *ids, size_t n, enum want_order order,
                 struct err *err)
{
    struct streamer *s = streamer_of(weights);
    uint32_t n_hits = 0;
    (void)err; /* whatever fails, fails in next */
    ASSERT(n <= s->inventory->config->n_experts);
    ASSERT(s->inventory->layers[layer].experts);
    drop(s);
    if (layer <= s->layer) policy_on_turn(s->with.slots.policy);
    s->layer = layer;
    s->order = order;
    s->stats.n_wants++;
    for (size_t i = 0; i < n; i++) {
        ASSERT(i == 0 || ids[i] > ids[i - 1]);
        s->keys[i] = slots_key(s->slots, layer, ids[i]);
        s->entries[i] = (struct entry){.key = s->keys[i]};
    }
    s->n_entries = s->n_left = (uint32_t)n;
    s->n_hints = s->next_hint = 0; /* what was not begun by now comes as demand or not at all */
    slots_drop_hints(s->slots, layer, s->keys, n);
    /* All hits first: their leases keep a miss of the same want from pushing them out. */
    for (size_t i = 0; i < n; i++) {
        struct entry *e = &s->entries[i];
        if (!slots_has(s->slots, e->key)) continue;
        enum slots_answer answer = ask_for(s, e, READ_DEMAND);
        ASSERT(answer == SLOTS_HIT);
        e->state = ENTRY_READY;
        n_hits++;
    }
    if (s->with.regret && n > 0) regret_add(s->with.regret, s->keys, (uint32_t)n, (uint32_t)n - n_hits);
    keep_going(s);
    return true;
}

/* The entry that may be handed out, or the one that everybody waits for: the first in ascending order; in any order the
 * first that is ready, or else just one of those to come. */
static struct entry *front(struct streamer *s)
{
    struct entry *first = NULL;
    for (uint32_t i = 0; i < s->n_entries; i++) {
        struct entry *e = &s->entries[i];
        if (e->state == ENTRY_GONE) continue;
        if (!first) first = e;
        if (s->order == ORDER_ASCENDING || e->state == ENTRY_READY) return e;
    }
    return first;
}

static void hand_out(struct streamer *s, struct entry *e, struct lease *out)
{
    uint32_t n_experts = s->inventory->config->n_experts;
    ASSERT(e->state == ENTRY_READY);
    e->state = ENTRY_GONE;
    s->n_left--;
    s->stats.n_handed_out++;
    *out = (struct lease){.layer = e->key / n_experts, .expert = e->key % n_experts};
    out->ticket = (uint64_t)slots_generation(s->slots, e->slot) << 32 | e->slot;
    slots_view(s->slots, e->slot, out->part);
}

/* In ascending order, experts further back must not keep the first one from a slot: the last of them gives way. One
 * that is still on its way is waited for instead, because its slot could not be had before that anyway. */
static bool give_way(struct streamer *s, const struct entry *first)
{
    if (s->order != ORDER_ASCENDING || first->state != ENTRY_WAITING) return false;
    for (struct entry *e = s->entries + s->n_entries; e-- > first + 1;) {
        if (e->state != ENTRY_READY) continue;
        slots_unpin(s->slots, e->slot);
        e->state = ENTRY_WAITING;
        s->stats.n_gave_way++;
        return true;
    }
    return false;
}

static bool fail_want(struct streamer *s, struct lease *out, struct err *err)
{
    if (err) *err = s->why;
    *out = (struct lease){0};
    drop(s);
    return false;
}

/* Waits until the front entry is ready or the want has failed. */
static void wait_for_front(struct streamer *s)
{
    int64_t since_ns = clock_now_ns(s->with.clock);
    for (;;) {
        struct entry *e = front(s);
        if (s->has_failed || e->state == ENTRY_READY) break;
        if (!give_way(s, e) && !absorb(s, true)) { /* nothing is on its way, and nothing could be started */
            err_set(&s->why, ERR_FIT,
                    "%" PRIu32 " experts are in use and no slot is left for another of layer %" PRIu32
                    "; a larger memory budget gives more slots",
                    slots_stats(s->slots)->n_leased, s->layer);
            s->has_failed = true;
        }
        start_misses(s);
        start_hints(s);
    }
    s->stats.waited_ns += clock_now_ns(s->with.clock) - since_ns;
}

static bool next(struct weights *weights, struct lease *out, struct err *err)
{
    struct streamer *s = streamer_of(weights);
    ASSERT(s->n_left > 0);
    keep_going(s);
    if (!s->has_failed && front(s)->state != ENTRY_READY) wait_for_front(s);
    if (s->has_failed) return fail_want(s, out, err);
    hand_out(s, front(s), out);
    return true;
}

static void unpin(struct weights *weights, struct lease *lease)
{
    struct streamer *s = streamer_of(weights);
    uint32_t slot = (uint32_t)lease->ticket;
    ASSERT(slots_generation(s->slots, slot) == lease->ticket >> 32); /* given back twice, or never lent */
    slots_unpin(s->slots, slot);
    *lease = (struct lease){0};
    keep_going(s);
}

static void tend(struct weights *weights)
{
    keep_going(streamer_of(weights));
}

static bool lacks(const struct weights *weights, uint32_t layer)
{
    const struct streamer *s = (const struct streamer *)weights;
    return s->inventory->layers[layer].experts && !slots_hold_layer(s->slots, layer);
}

static void hint(struct weights *weights, uint32_t layer, const uint32_t *ids, size_t n_sure, size_t n)
{
    struct streamer *s = streamer_of(weights);
    if (!s->inventory->layers[layer].experts) return;
    uint32_t n_experts = s->inventory->config->n_experts;
    ASSERT(n <= n_experts);
    if (layer != s->hinted_layer) memset(s->hinted_ns, 0, n_experts * sizeof *s->hinted_ns);
    s->hinted_layer = layer;
    for (size_t i = 0; i < n; i++) s->hints[i] = slots_key(s->slots, layer, ids[i]);
    s->n_hints = (uint32_t)n;
    s->n_sure_hints = (uint32_t)n_sure;
    s->next_hint = 0;
    keep_going(s);
}

/* Like the reader's, for the few reads that do not go through it. */
static bool read_patiently(struct streamer *s, const struct tensor *t, void *buffer, uint64_t bytes, uint64_t offset,
                           struct err *err)
{
    const struct file *file = &s->inventory->catalogue->shards[t->shard].file;
    for (int i = 0;; i++) {
        struct err why = {0};
        if (file_read(file, buffer, bytes, t->offset + offset, &why)) return true;
        if (why.kind == ERR_IO && i < RETRIES_MAX) {
            clock_sleep_ns(s->with.clock, PAUSE_NS << (2 * i));
            continue;
        }
        if (err) *err = why;
        return err_context(err, "%s", t->name);
    }
}

static bool read_row(struct streamer *s, uint32_t token, float *out, struct err *err)
{
    const struct weight_source *e = &s->inventory->model[MODEL_EMBED];
    uint64_t row_bytes = e->payload->bytes / e->rows, bad;
    if (!read_patiently(s, e->payload, s->row, row_bytes, token * row_bytes, err)) return false;
    float *scales = (float *)(void *)(s->row + round_up(row_bytes, 64)); /* behind the row, aligned */
    if (e->scales) {
        uint64_t scale_bytes = e->scales->bytes / e->rows;
        if (!read_patiently(s, e->scales, scales, scale_bytes, token * scale_bytes, err)) return false;
        if (!floats_are_sane(scales, scale_bytes / sizeof *scales, true, &bad))
            return err_set(err, ERR_DATA, "%s: the scale of row %" PRIu32 " is %g; the file is damaged",
                           e->scales->name, token, (double)scales[bad]);
    }
    struct matrix row = {
        .format = e->format, .rows = 1, .columns = e->columns, .group = e->group, .payload = s->row, .scales = scales};
    dequantise_row(out, &row, 0);
    if (!floats_are_sane(out, e->columns, false, &bad))
        return err_set(err, ERR_DATA, "%s: row %" PRIu32 " is not finite; the file is damaged", e->payload->name,
                       token);
    s->stats.n_rows_read++;
    return true;
}

static bool embed(struct weights *weights, const uint32_t *tokens, size_t n, float *out, struct err *err)
{
    struct streamer *s = streamer_of(weights);
    uint64_t width = s->inventory->config->hidden;
    for (size_t i = 0; i < n; i++) {
        ASSERT(tokens[i] < s->inventory->config->vocab);
        uint32_t place = tokens[i] % s->with.embedding_rows_kept;
        float *kept = s->kept_rows + place * width;
        if (s->kept_tokens[place] != tokens[i]) {
            s->kept_tokens[place] = NO_TOKEN;
            if (!read_row(s, tokens[i], kept, err)) return false;
            s->kept_tokens[place] = tokens[i];
        }
        memcpy(out + i * width, kept, width * sizeof *kept);
    }
    return true;
}

static bool check_formats(const struct inventory *inventory, struct err *err)
{
    const struct config *config = inventory->config;
    for (uint32_t layer = 0; layer <= config->n_layers; layer++) {
        if (!inventory->layers[layer].experts) continue;
        for (uint32_t expert = 0; expert < config->n_experts; expert++)
            for (int p = 0; p < EXPERT_PARTS; p++) {
                const struct weight_source *source = &inventory->layers[layer].experts[expert][p];
                if (!spine_format_is_native(source->format))
                    return err_set(
                        err, ERR_DATA,
                        "%s: stored as in a checkpoint; streaming needs a container (weir convert makes one)",
                        source->payload->name);
            }
    }
    return true;
}

static bool make_embedding(struct streamer *s, struct err *err)
{
    const struct weight_source *e = &s->inventory->model[MODEL_EMBED];
    uint32_t kept = s->with.embedding_rows_kept;
    if (!e->payload) return true; /* a model without one is a test's */
    s->row = alloc_get(s->alloc, e->payload->bytes / e->rows + 64 + (e->scales ? e->scales->bytes / e->rows : 0), err);
    if (!s->row) return false;
    s->kept_rows = alloc_get_array(s->alloc, (uint64_t)kept * s->inventory->config->hidden, sizeof(float), err);
    if (!s->kept_rows) return false;
    s->kept_tokens = alloc_get_array(s->alloc, kept, sizeof *s->kept_tokens, err);
    if (!s->kept_tokens) return false;
    for (uint32_t i = 0; i < kept; i++) s->kept_tokens[i] = NO_TOKEN;
    return true;
}

bool streamer_new(struct weights **out, struct alloc *alloc, const struct streamer_settings *settings, struct err *err)
{
    static const struct weights_ops ops = {want, next, unpin, drop_want, lacks, hint, tend, embed};
    const struct inventory *inventory = settings->slots.inventory;
    ASSERT(settings->embedding_rows_kept > 0);
    if (!check_formats(inventory, err)) return false;
    struct streamer *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    *s = (struct streamer){.weights = {.ops = &ops, .spine = settings->spine},
                           .alloc = alloc,
                           .with = *settings,
                           .inventory = inventory,
                           .layer = inventory->config->n_layers};
    s->entries = alloc_get_array(alloc, inventory->config->n_experts, sizeof *s->entries, err);
    if (!s->entries) goto fail;
    s->keys = alloc_get_array(alloc, inventory->config->n_experts, sizeof *s->keys, err);
    if (!s->keys) goto fail;
    s->hints = alloc_get_array(alloc, inventory->config->n_experts, sizeof *s->hints, err);
    if (!s->hints) goto fail;
    s->hinted_ns = alloc_get_array(alloc, inventory->config->n_experts, sizeof *s->hinted_ns, err);
    if (!s->hinted_ns) goto fail;
    if (!make_embedding(s, err)) goto fail;
    if (!slots_new(&s->slots, alloc, &settings->slots, err)) goto fail;
    *out = &s->weights;
    return true;
fail:
    streamer_free(&s->weights);
    return false;
}

bool streamer_preload(struct weights *weights, const uint32_t *keys, uint32_t n, struct err *err)
{
    struct streamer *s = streamer_of(weights);
    ASSERT(!s->preload);
    s->preload = alloc_get_array(s->alloc, n, sizeof *s->preload, err);
    if (!s->preload) return false;
    memcpy(s->preload, keys, n * sizeof *keys);
    s->n_preload = n;
    keep_going(s);
    return true;
}

void streamer_free(struct weights *weights)
{
    if (!weights) return;
    struct streamer *s = streamer_of(weights);
    if (s->slots) drop(s);
    slots_free(s->slots);
    alloc_put(s->alloc, s->kept_tokens);
    alloc_put(s->alloc, s->kept_rows);
    alloc_put(s->alloc, s->row);
    alloc_put(s->alloc, s->preload);
    alloc_put(s->alloc, s->hinted_ns);
    alloc_put(s->alloc, s->hints);
    alloc_put(s->alloc, s->keys);
    alloc_put(s->alloc, s->entries);
    alloc_put(s->alloc, s);
}

struct slots *streamer_slots(struct weights *weights)
{
    return streamer_of(weights)->slots;
}

const struct streamer_stats *streamer_stats(const struct weights *weights)
{
    return &((const struct streamer *)weights)->stats;
}
