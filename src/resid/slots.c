/* States of a slot, and the function that makes each transition:
 *
 *   EMPTY ---- begin_load ----> LOADING ---- arrive (last piece, scales sane) ----> RESIDENT
 *     ^                            |                                                   |
 *     |<---- arrive (last) -- DRAINING <-- abandon (a piece failed, a hint given up)   |
 *     |<------------------------------------------------------------------ evict ------|
 *     |<---- slots_regrow --- RETIRED <--- slots_shrink --- EMPTY
 *
 * "Leased" is LOADING or RESIDENT with a lease count above zero.
 *
 *  1. slot_of[key] = s exactly when slot s holds that key, and then s is LOADING or RESIDENT. A key has at most one
 * slot.
 *  2. A slot has leases only while it is LOADING or RESIDENT.
 *  3. reads_out counts the slot's requests that the reader has not reported. It is above zero exactly while the slot is
 *     LOADING or DRAINING: memory with a read in flight is never reused, lent or given back.
 *  4. Only a RESIDENT slot without leases can be evicted.
 *  5. Bytes are lent only from RESIDENT slots; a slot becomes RESIDENT only when every piece landed whole and all
 * scales are finite and above zero.
 *  6. The generation grows when a load begins and when it is abandoned. It travels in every read's tag and every lease:
 *     a report whose generation is not the slot's is counted off (3) and otherwise dropped.
 *  7. A slot's class never changes, and an expert lies in a slot of its own class.
 *  8. The policy's admitted keys are exactly the keys of LOADING and RESIDENT slots.
 *  9. The counters n_resident, n_leased, n_loading, n_draining and n_retired equal what the slots say. */
#include "resid/slots.h"

#include "base/assert.h"
#include "plat/pages.h"
#include "resid/sane.h"
#include <inttypes.h>
#include <string.h>

#define NO_SLOT UINT32_MAX
#define NO_KEY UINT32_MAX

enum slot_state { SLOT_EMPTY, SLOT_LOADING, SLOT_RESIDENT, SLOT_DRAINING, SLOT_RETIRED };

struct slot {
    unsigned char *memory; /* [slot_bytes of its class] */
    uint32_t key;
    uint32_t generation;
    uint32_t leases;
    uint16_t reads_out;
    uint8_t state; /* enum slot_state */
    uint8_t class;
    bool is_hinted; /* loaded for a hint and not wanted yet */
};

struct slots {
    struct alloc *alloc;
    struct slots_settings with;
    struct slot_classes classes;
    struct slot *slots; /* [n_slots], class by class */
    uint32_t class_first[SLOT_CLASSES_MAX + 1];
    uint32_t *slot_of; /* [n_keys] */
    uint32_t n_keys;
    uint32_t *candidates; /* [2 * n_slots] scratch of choose_victim: slots, then their keys */
    unsigned char *memory;
    uint64_t memory_bytes;
    uint32_t pieces_max; /* reads of one load, at most */
    bool is_lent;
    struct slots_stats stats;
};

static const struct weight_source *sources_of(const struct slots *s, uint32_t key)
{
    uint32_t n_experts = s->with.inventory->config->n_experts;
    const struct layer_sources *layer = &s->with.inventory->layers[key / n_experts];
    ASSERT(layer->experts);
    return layer->experts[key % n_experts];
}

/* Every expert passed through here without an error when its class was found. */
static void extents_of(const struct slots *s, uint32_t key, struct extents *out)
{
    bool ok = extents_find(out, sources_of(s, key), NULL);
    ASSERT(ok);
}

static bool map_memory(struct slots *s, struct err *err)
{
    for (uint32_t c = 0; c < s->classes.n; c++) s->memory_bytes += s->with.n_slots[c] * s->classes.of[c].slot_bytes;
    s->memory = pages_get(s->alloc, s->memory_bytes, err);
    if (s->memory) return true;
    return err_context(err, "%" PRIu32 " expert slots", s->stats.n_slots);
}

static void place_slots(struct slots *s)
{
    unsigned char *at = s->memory;
    uint32_t i = 0;
    for (uint32_t c = 0; c < s->classes.n; c++) {
        s->class_first[c] = i;
        for (uint32_t k = 0; k < s->with.n_slots[c]; k++, i++, at += s->classes.of[c].slot_bytes)
            s->slots[i] = (struct slot){.memory = at, .key = NO_KEY, .class = (uint8_t)c};
    }
    s->class_first[s->classes.n] = i;
}

static uint32_t pieces_max_of(const struct slots *s)
{
    uint32_t most = 1;
    for (uint32_t c = 0; c < s->classes.n; c++) {
        const struct slot_class *k = &s->classes.of[c];
        uint64_t n = k->n_runs_max;
        if (s->with.piece_bytes) n += k->slot_bytes / s->with.piece_bytes;
        if (n > most) most = (uint32_t)n;
    }
    return most;
}

bool slots_new(struct slots **out, struct alloc *alloc, const struct slots_settings *settings, struct err *err)
{
    const struct inventory *inventory = settings->inventory;
    ASSERT(settings->piece_bytes % EXTENT_PAGE == 0);
    struct slots *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    *s = (struct slots){.alloc = alloc, .with = *settings, .classes = *settings->classes};
    s->with.classes = &s->classes;
    for (uint32_t c = 0; c < s->classes.n; c++) {
        ASSERT(settings->n_slots[c] > 0);
        s->stats.n_slots += settings->n_slots[c];
    }
    s->n_keys = (inventory->config->n_layers + 1) * inventory->config->n_experts;
    s->pieces_max = pieces_max_of(s);
    ASSERT(s->pieces_max <= UINT16_MAX);
    ASSERT(s->pieces_max <= reader_room(settings->reader));

    s->slots = alloc_get_array(alloc, s->stats.n_slots, sizeof *s->slots, err);
    if (!s->slots) goto fail;
    s->candidates = alloc_get_array(alloc, 2 * (uint64_t)s->stats.n_slots, sizeof *s->candidates, err);
    if (!s->candidates) goto fail;
    s->slot_of = alloc_get_array(alloc, s->n_keys, sizeof *s->slot_of, err);
    if (!s->slot_of) goto fail;
    for (uint32_t key = 0; key < s->n_keys; key++) s->slot_of[key] = NO_SLOT;
    if (!map_memory(s, err)) goto fail;
    place_slots(s);
    s->is_lent = settings->lends_memory && reader_lend_memory(settings->reader, s->memory, s->memory_bytes, NULL);
    *out = s;
    return true;
fail:
    slots_free(s);
    return false;
}

static void forget_key(struct slots *s, struct slot *slot)
{
    policy_on_evict(s->with.policy, slot->key);
    s->slot_of[slot->key] = NO_SLOT;
    slot->key = NO_KEY;
    slot->is_hinted = false;
}

static uint64_t tag_of(const struct slots *s, const struct slot *slot)
{
    return (uint64_t)slot->generation << 32 | (uint32_t)(slot - s->slots);
}

/* LOADING -> DRAINING: nobody gets these bytes; the memory stays untouchable until the last read has reported. */
static void abandon(struct slots *s, struct slot *slot)
{
    ASSERT(slot->state == SLOT_LOADING);
    uint64_t tag = tag_of(s, slot);
    if (slot->leases > 0) s->stats.n_leased--;
    slot->leases = 0;
    slot->state = SLOT_DRAINING;
    slot->generation++;
    s->stats.n_loading--;
    s->stats.n_draining++;
    forget_key(s, slot);
    reader_cancel(s->with.reader, tag);
}

void slots_free(struct slots *s)
{
    if (!s) return;
    uint32_t key;
    for (uint32_t i = 0; s->memory && i < s->stats.n_slots; i++) {
        ASSERT(s->slots[i].leases == 0);
        if (s->slots[i].state == SLOT_LOADING) abandon(s, &s->slots[i]);
    }
    while (s->stats.n_draining > 0) (void)slots_poll(s, true, &key, NULL);
    if (s->is_lent) reader_withdraw_memory(s->with.reader);
    pages_put(s->alloc, s->memory, s->memory_bytes);
    alloc_put(s->alloc, s->slot_of);
    alloc_put(s->alloc, s->candidates);
    alloc_put(s->alloc, s->slots);
    alloc_put(s->alloc, s);
}

uint32_t slots_key(const struct slots *s, uint32_t layer, uint32_t expert)
{
    uint32_t n_experts = s->with.inventory->config->n_experts;
    ASSERT(layer <= s->with.inventory->config->n_layers);
    ASSERT(expert < n_experts);
    return layer * n_experts + expert;
}

static struct slot *find_empty(struct slots *s, uint32_t c)
{
    for (uint32_t i = s->class_first[c]; i < s->class_first[c + 1]; i++)
        if (s->slots[i].state == SLOT_EMPTY) return &s->slots[i];
    return NULL;
}

/* The slot that the policy would give up for `incoming`, or NULL when none may be. */
static struct slot *find_victim(struct slots *s, uint32_t c, uint32_t incoming)
{
    uint32_t *places = s->candidates, *keys = s->candidates + s->stats.n_slots;
    size_t n = 0;
    for (uint32_t i = s->class_first[c]; i < s->class_first[c + 1]; i++) {
        if (s->slots[i].state != SLOT_RESIDENT || s->slots[i].leases > 0) continue;
        places[n] = i;
        keys[n++] = s->slots[i].key;
    }
    return n > 0 ? &s->slots[places[policy_choose_victim(s->with.policy, keys, n, incoming)]] : NULL;
}

static void evict(struct slots *s, struct slot *slot)
{
    ASSERT(slot->state == SLOT_RESIDENT); /* invariant 4 */
    ASSERT(slot->leases == 0);
    ASSERT(slot->reads_out == 0);
    if (slot->is_hinted) s->stats.n_hints_dropped++;
    forget_key(s, slot);
    slot->state = SLOT_EMPTY;
    s->stats.n_resident--;
    s->stats.n_evictions++;
}

static void submit_run(struct slots *s, struct slot *slot, const struct extent_run *run, enum read_priority priority)
{
    uint64_t piece = s->with.piece_bytes ? s->with.piece_bytes : run->bytes;
    for (uint64_t at = 0; at < run->bytes; at += piece) {
        uint64_t bytes = run->bytes - at < piece ? run->bytes - at : piece;
        uint64_t needed = run->bytes_needed > at ? run->bytes_needed - at : 0;
        uint32_t file =
            s->with.mirrors ? mirrors_choose(s->with.mirrors, run->shard, run->offset + at) : s->with.files[run->shard];
        struct read_request ask = {.file = file,
                                   .priority = priority,
                                   .offset = run->offset + at,
                                   .bytes = bytes,
                                   .bytes_needed = needed < bytes ? needed : bytes,
                                   .buffer = slot->memory + run->at + at,
                                   .tag = tag_of(s, slot)};
        bool ok = reader_submit(s->with.reader, &ask, NULL);
        ASSERT(ok); /* room was looked at before */
        slot->reads_out++;
    }
}

/* EMPTY -> LOADING */
static void begin_load(struct slots *s, struct slot *slot, uint32_t key, enum read_priority priority)
{
    struct extents x;
    ASSERT(slot->state == SLOT_EMPTY);
    ASSERT(s->slot_of[key] == NO_SLOT);
    extents_of(s, key, &x);
    ASSERT(x.slot_bytes <= s->classes.of[slot->class].slot_bytes);
    slot->state = SLOT_LOADING;
    slot->key = key;
    slot->generation++;
    s->slot_of[key] = (uint32_t)(slot - s->slots);
    s->stats.n_loading++;
    s->stats.n_loads++;
    policy_on_admit(s->with.policy, key);
    for (uint32_t i = 0; i < x.n_runs; i++) submit_run(s, slot, &x.runs[i], priority);
}

static uint32_t class_of_key(const struct slots *s, uint32_t key, uint64_t *weight_bytes)
{
    struct extents x;
    extents_of(s, key, &x);
    *weight_bytes = x.weight_bytes;
    return slot_class_of(&s->classes, x.slot_bytes);
}

/* When leases hold everything else, a load that nobody waits for gives way; its slot comes later, as SLOTS_FREED. */
static void give_up_one_hint(struct slots *s, uint32_t c)
{
    for (uint32_t i = s->class_first[c]; i < s->class_first[c + 1]; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->state != SLOT_LOADING || slot->leases > 0) continue;
        if (slot->is_hinted) s->stats.n_hints_dropped++;
        abandon(s, slot);
        return;
    }
}

enum slots_answer slots_want(struct slots *s, uint32_t key, enum read_priority priority, uint32_t *out)
{
    ASSERT(key < s->n_keys);
    uint64_t weight_bytes;
    uint32_t c = class_of_key(s, key, &weight_bytes), held = s->slot_of[key];
    struct slot *slot = held == NO_SLOT ? NULL : &s->slots[held];
    enum slots_answer answer = slot && slot->state == SLOT_RESIDENT ? SLOTS_HIT : SLOTS_COMING;

    if (!slot) {
        if (reader_room(s->with.reader) < s->pieces_max) return SLOTS_NO_ROOM;
        slot = find_empty(s, c);
        if (!slot && (slot = find_victim(s, c, key))) evict(s, slot);
        if (!slot) {
            give_up_one_hint(s, c);
            return SLOTS_NO_ROOM;
        }
        begin_load(s, slot, key, priority);
        s->stats.n_misses++;
    } else if (answer == SLOTS_HIT) {
        s->stats.n_hits++;
    } else {
        reader_reprioritise(s->with.reader, tag_of(s, slot), priority);
        s->stats.n_joined++;
    }
    if (slot->is_hinted) s->stats.n_hint_hits++;
    if (slot->is_hinted || held == NO_SLOT) s->stats.bytes_needed += weight_bytes;
    slot->is_hinted = false;
    s->stats.bytes_wanted += weight_bytes;
    policy_on_touch(s->with.policy, key);
    if (slot->leases++ == 0) s->stats.n_leased++;
    *out = (uint32_t)(slot - s->slots);
    return answer;
}

void slots_unpin(struct slots *s, uint32_t i)
{
    ASSERT(i < s->stats.n_slots);
    struct slot *slot = &s->slots[i];
    ASSERT(slot->leases > 0);
    if (--slot->leases == 0) s->stats.n_leased--;
}

bool slots_has(const struct slots *s, uint32_t key)
{
    ASSERT(key < s->n_keys);
    return s->slot_of[key] != NO_SLOT && s->slots[s->slot_of[key]].state == SLOT_RESIDENT;
}

bool slots_hold_layer(const struct slots *s, uint32_t layer)
{
    const uint32_t *slot_of = s->slot_of + slots_key(s, layer, 0);
    uint32_t expert = 0, n_experts = s->with.inventory->config->n_experts;
    while (expert < n_experts && slot_of[expert] != NO_SLOT) expert++;
    return expert == n_experts;
}

bool slots_hint_room(const struct slots *s)
{
    return !reader_has_queued(s->with.reader, READ_SWEEP) && reader_room(s->with.reader) >= 2 * s->pieces_max;
}

bool slots_are_idle(const struct slots *s)
{
    return reader_outstanding(s->with.reader) == 0;
}

void slots_hint(struct slots *s, uint32_t key, enum read_priority priority)
{
    ASSERT(priority >= READ_HINT);
    ASSERT(key < s->n_keys);
    uint64_t weight_bytes;
    if (s->slot_of[key] != NO_SLOT || !slots_hint_room(s)) return;
    uint32_t c = class_of_key(s, key, &weight_bytes);
    struct slot *slot = find_empty(s, c);
    if (!slot) {
        slot = find_victim(s, c, key);
        if (!slot || !policy_prefers(s->with.policy, key, slot->key)) return;
        evict(s, slot);
    }
    begin_load(s, slot, key, priority);
    slot->is_hinted = true;
    s->stats.n_hints++;
}

static bool is_among(uint32_t key, const uint32_t *keys, size_t n)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (keys[middle] == key) return true;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

void slots_drop_hints(struct slots *s, uint32_t layer, const uint32_t *keys, size_t n)
{
    uint32_t n_experts = s->with.inventory->config->n_experts;
    if (s->stats.n_loading == 0) return;
    for (uint32_t i = 0; i < s->stats.n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->state != SLOT_LOADING || !slot->is_hinted || slot->leases > 0) continue;
        if (slot->key / n_experts != layer || is_among(slot->key, keys, n)) continue;
        s->stats.n_hints_dropped++;
        abandon(s, slot);
    }
}

static bool check_scales(const struct slots *s, const struct slot *slot, struct err *err)
{
    struct extents x;
    const struct weight_source *parts = sources_of(s, slot->key);
    extents_of(s, slot->key, &x);
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct tensor *t = parts[part].scales;
        const float *scales = (const float *)(const void *)(slot->memory + x.scales_at[part]);
        uint64_t bad;
        if (!t || floats_are_sane(scales, t->bytes / sizeof *scales, true, &bad)) continue;
        return err_set(err, ERR_DATA,
                       "%s: %s: scale %" PRIu64 " is %g, a scale is finite and above zero; the file is damaged",
                       s->with.inventory->catalogue->shards[t->shard].file.path, t->name, bad, (double)scales[bad]);
    }
    return true;
}

/* The tensor that a failed read would have filled, for the message. */
static const char *tensor_at(const struct slots *s, uint32_t key, const struct read_done *done)
{
    const struct weight_source *parts = sources_of(s, key);
    for (int i = 0; i < EXTENT_RUNS_MAX; i++) {
        const struct tensor *t = i % 2 ? parts[i / 2].scales : parts[i / 2].payload;
        if (!t || s->with.files[t->shard] != done->file) continue;
        if (t->offset < done->offset + done->bytes_needed && done->offset + done->bytes < t->offset + t->bytes)
            return t->name;
    }
    return parts[0].payload->name;
}

/* LOADING -> RESIDENT, or EMPTY when the scales are bad. */
static enum slots_event complete(struct slots *s, struct slot *slot, struct err *why)
{
    slot->state = SLOT_RESIDENT;
    s->stats.n_loading--;
    s->stats.n_resident++;
    if (check_scales(s, slot, why)) return SLOTS_LANDED;
    if (slot->leases > 0) s->stats.n_leased--;
    slot->leases = 0;
    slot->generation++;
    evict(s, slot);
    s->stats.n_failed_loads++;
    return SLOTS_FAILED;
}

/* What could not be read from a copy is read from the original, once. */
static bool fall_back(struct slots *s, struct slot *slot, const struct read_done *done)
{
    struct extents x;
    uint32_t original;
    if (!s->with.mirrors || !mirrors_give_up(s->with.mirrors, done->file, &original)) return false;
    extents_of(s, slot->key, &x);
    for (uint32_t i = 0; i < x.n_runs; i++) {
        const struct extent_run *run = &x.runs[i];
        uint64_t at = done->offset - run->offset, piece = s->with.piece_bytes ? s->with.piece_bytes : run->bytes;
        if (s->with.files[run->shard] != original || done->offset < run->offset || at >= run->bytes) continue;
        const struct read_request ask = {.file = original,
                                         .priority = slot->leases > 0 ? READ_DEMAND : READ_HINT,
                                         .offset = done->offset,
                                         .bytes = run->bytes - at < piece ? run->bytes - at : piece,
                                         .bytes_needed = done->bytes_needed,
                                         .buffer = slot->memory + run->at + at,
                                         .tag = tag_of(s, slot)};
        bool ok = reader_submit(s->with.reader, &ask, NULL);
        ASSERT(ok); /* the failed read has just made room */
        slot->reads_out++;
        s->stats.n_fallbacks++;
        return true;
    }
    return false;
}

static enum slots_event arrive(struct slots *s, const struct read_done *done, uint32_t *key, struct err *why)
{
    uint32_t i = (uint32_t)done->tag;
    ASSERT(i < s->stats.n_slots);
    struct slot *slot = &s->slots[i];
    ASSERT(slot->reads_out > 0);
    slot->reads_out--;
    s->stats.bytes_loaded += done->bytes;
    if (slot->generation != done->tag >> 32) {
        ASSERT(slot->state == SLOT_DRAINING);
        s->stats.n_stale_reads++;
        if (slot->reads_out > 0) return SLOTS_QUIET;
        slot->state = SLOT_EMPTY;
        s->stats.n_draining--;
        return SLOTS_FREED;
    }
    ASSERT(slot->state == SLOT_LOADING);
    *key = slot->key;
    if (done->error == 0) return slot->reads_out > 0 ? SLOTS_QUIET : complete(s, slot, why);

    if (fall_back(s, slot, done)) return SLOTS_QUIET;
    reader_explain(s->with.reader, done, why);
    err_context(why, "%s", tensor_at(s, slot->key, done));
    s->stats.n_failed_loads++;
    abandon(s, slot);
    if (slot->reads_out == 0) {
        slot->state = SLOT_EMPTY;
        s->stats.n_draining--;
    }
    return SLOTS_FAILED;
}

enum slots_event slots_poll(struct slots *s, bool wait, uint32_t *key, struct err *why)
{
    struct read_done done;
    while (wait ? reader_wait(s->with.reader, &done) : reader_poll(s->with.reader, &done)) {
        enum slots_event event = arrive(s, &done, key, why);
        ASSERT_SLOW(slots_check(s));
        if (event != SLOTS_QUIET) return event;
    }
    return SLOTS_QUIET;
}

void slots_view(const struct slots *s, uint32_t i, struct matrix part[EXPERT_PARTS])
{
    struct extents x;
    ASSERT(i < s->stats.n_slots);
    const struct slot *slot = &s->slots[i];
    ASSERT(slot->state == SLOT_RESIDENT); /* invariant 5 */
    ASSERT(slot->leases > 0);
    const struct weight_source *sources = sources_of(s, slot->key);
    extents_of(s, slot->key, &x);
    for (int p = 0; p < EXPERT_PARTS; p++)
        part[p] = (struct matrix){
            .format = sources[p].format,
            .rows = sources[p].rows,
            .columns = sources[p].columns,
            .group = sources[p].group,
            .payload = slot->memory + x.payload_at[p],
            .scales = sources[p].scales ? (const float *)(const void *)(slot->memory + x.scales_at[p]) : NULL,
        };
}

uint32_t slots_generation(const struct slots *s, uint32_t i)
{
    ASSERT(i < s->stats.n_slots);
    return s->slots[i].generation;
}

static uint32_t n_in_use(const struct slots *s, uint32_t c)
{
    uint32_t n = 0;
    for (uint32_t i = s->class_first[c]; i < s->class_first[c + 1]; i++) n += s->slots[i].state != SLOT_RETIRED;
    return n;
}

uint32_t slots_shrink(struct slots *s, uint32_t n)
{
    uint32_t n_gone = 0;
    if (n > 0 && s->is_lent) { /* registered pages would stay in memory, and reads would go to pages nobody sees */
        if (s->stats.n_loading + s->stats.n_draining > 0) return 0;
        reader_withdraw_memory(s->with.reader);
        s->is_lent = false;
    }
    for (uint32_t c = 0; c < s->classes.n; c++) {
        while (n_gone < n && n_in_use(s, c) > 1) {
            struct slot *slot = find_empty(s, c);
            if (!slot && (slot = find_victim(s, c, 0))) evict(s, slot);
            if (!slot) break;
            pages_release(slot->memory, s->classes.of[c].slot_bytes);
            slot->state = SLOT_RETIRED;
            s->stats.n_retired++;
            n_gone++;
        }
    }
    return n_gone;
}

uint32_t slots_regrow(struct slots *s, uint32_t n)
{
    uint32_t n_back = 0;
    for (uint32_t i = 0; i < s->stats.n_slots && n_back < n; i++) {
        if (s->slots[i].state != SLOT_RETIRED) continue;
        s->slots[i].state = SLOT_EMPTY;
        s->stats.n_retired--;
        n_back++;
    }
    return n_back;
}

const struct slots_stats *slots_stats(const struct slots *s)
{
    return &s->stats;
}

static void check_slot(const struct slots *s, uint32_t i)
{
    const struct slot *slot = &s->slots[i];
    bool holds = slot->state == SLOT_LOADING || slot->state == SLOT_RESIDENT;
    bool reads = slot->state == SLOT_LOADING || slot->state == SLOT_DRAINING;
    ASSERT(holds == (slot->key != NO_KEY));       /* 1 */
    ASSERT(!holds || s->slot_of[slot->key] == i); /* 1 */
    ASSERT(slot->leases == 0 || holds);           /* 2 */
    ASSERT((slot->reads_out > 0) == reads);       /* 3 */
    ASSERT(i >= s->class_first[slot->class]);     /* 7 */
    ASSERT(i < s->class_first[slot->class + 1u]); /* 7 */
}

bool slots_check(const struct slots *s)
{
    uint32_t n[SLOT_RETIRED + 1] = {0}, n_leased = 0, n_mapped = 0;
    for (uint32_t i = 0; i < s->stats.n_slots; i++) {
        check_slot(s, i);
        n[s->slots[i].state]++;
        n_leased += s->slots[i].leases > 0;
    }
    for (uint32_t key = 0; key < s->n_keys; key++) {
        if (s->slot_of[key] == NO_SLOT) continue;
        ASSERT(s->slots[s->slot_of[key]].key == key); /* 1 */
        n_mapped++;
    }
    ASSERT(n_mapped == n[SLOT_LOADING] + n[SLOT_RESIDENT]); /* 1 */
    ASSERT(n[SLOT_RESIDENT] == s->stats.n_resident);        /* 9, and the four below */
    ASSERT(n[SLOT_LOADING] == s->stats.n_loading);
    ASSERT(n[SLOT_DRAINING] == s->stats.n_draining);
    ASSERT(n[SLOT_RETIRED] == s->stats.n_retired);
    ASSERT(n_leased == s->stats.n_leased);
    return true;
}
