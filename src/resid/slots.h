#ifndef RESID_SLOTS_H
#define RESID_SLOTS_H
/* A fixed set of memory slots, each holding one routed expert or nothing, and the reads that fill them.
 *
 * Slots are page-aligned and allocated once. An expert is read straight into its slot; wants for one expert share one
 * read; scales are checked when they arrive, so whatever is lent is whole and sane. A leased slot, or one with a read
 * in flight, is never a victim. The states and invariants are written at the head of slots.c. Owned by the engine
 * thread. */
#include "plat/reader.h"
#include "resid/extents.h"
#include "resid/mirrors.h"
#include "resid/policy.h"

struct slots;

struct slots_settings {
    const struct inventory *inventory; /* outlives the slots, as do reader and policy */
    const struct slot_classes *classes;
    uint32_t n_slots[SLOT_CLASSES_MAX];
    struct reader *reader; /* used by nobody else: what it finishes belongs to the slots */
    struct policy *policy;
    const uint32_t *files;   /* [n_shards] the reader's id of each shard; outlives the slots */
    struct mirrors *mirrors; /* copies to read from as well; NULL: none */
    bool lends_memory;       /* let the device prepare all slots at once: they are in memory from then on */
    uint64_t piece_bytes;    /* longer runs are read in pieces of this size; a multiple of EXTENT_PAGE; 0: whole */
};

struct slots_stats {
    uint32_t n_slots, n_resident, n_leased, n_loading, n_draining, n_retired;
    uint64_t n_hits, n_misses, n_joined;            /* wants: resident, not there, already on the way */
    uint64_t n_hints, n_hint_hits, n_hints_dropped; /* loads begun for hints; of these, wanted in time; given up */
    uint64_t n_loads, n_failed_loads, n_stale_reads, n_evictions;
    uint64_t n_fallbacks;  /* reads that failed in a copy and went to the original */
    uint64_t bytes_wanted; /* weight bytes of all wants */
    uint64_t bytes_needed; /* of those, what was not there and what only a hint had brought */
    uint64_t bytes_loaded; /* landed in slots, whole pages, also in vain */
};

bool slots_new(struct slots **slots, struct alloc *alloc, const struct slots_settings *settings,
               struct err *err) MUST_CHECK;
/* No lease may be out. Waits for reads in flight. NULL is fine. */
void slots_free(struct slots *slots);

uint32_t slots_key(const struct slots *slots, uint32_t layer, uint32_t expert);

/* SLOTS_HIT and SLOTS_COMING take a lease on *slot, to be given back with slots_unpin whether the bytes came or not;
 * SLOTS_COMING may be read only after slots_poll told SLOTS_LANDED for its key. After SLOTS_FAILED the lease is gone.
 * SLOTS_NO_ROOM: nothing could make room just now; poll or unpin first. */
enum slots_answer { SLOTS_HIT, SLOTS_COMING, SLOTS_NO_ROOM };
enum slots_answer slots_want(struct slots *slots, uint32_t key, enum read_priority priority, uint32_t *slot);
void slots_unpin(struct slots *slots, uint32_t slot);

/* Whether a want would be a hit; takes nothing. */
bool slots_has(const struct slots *slots, uint32_t key);

/* Whether each expert of the layer holds a slot: it is there or being loaded, so that no hint at it would do anything.
 */
bool slots_hold_layer(const struct slots *slots, uint32_t layer);

/* Whether a hint may begin now: nothing more urgent is queued, and the reader has room to spare. */
bool slots_hint_room(const struct slots *slots);
/* Whether no read is under way. */
bool slots_are_idle(const struct slots *slots);
/* Begins to load an expert that nobody asked for yet, unless that costs something of more value. Priority: READ_HINT or
 * below. */
void slots_hint(struct slots *slots, uint32_t key, enum read_priority priority);
/* Gives up hinted loads of this layer that are neither leased nor among keys [n] (ascending). */
void slots_drop_hints(struct slots *slots, uint32_t layer, const uint32_t *keys, size_t n);

/* Keeps reads going and tells one thing that happened. SLOTS_QUIET: nothing (with wait: nothing is under way).
 * SLOTS_FREED: a slot that was being emptied can be had. */
enum slots_event { SLOTS_QUIET, SLOTS_LANDED, SLOTS_FAILED, SLOTS_FREED };
enum slots_event slots_poll(struct slots *slots, bool wait, uint32_t *key, struct err *why);

/* The weights of a leased, resident slot; good until unpin. */
void slots_view(const struct slots *slots, uint32_t slot, struct matrix part[EXPERT_PARTS]);
uint32_t slots_generation(const struct slots *slots, uint32_t slot);

/* Gives the memory of up to n slots back to the system, the least valuable first, and takes it again. Leased and
 * loading slots, and the last slot of a class, stay; with memory lent to the device, nothing goes while a read is in
 * flight. Both return how many. */
uint32_t slots_shrink(struct slots *slots, uint32_t n);
uint32_t slots_regrow(struct slots *slots, uint32_t n);

const struct slots_stats *slots_stats(const struct slots *slots);

/* Asserts every invariant; for tests and slow-assert builds. Always true. */
bool slots_check(const struct slots *slots);

#endif
