#ifndef RUN_KNOWN_STATES_H
#define RUN_KNOWN_STATES_H
/* What is known of sequences that are over, for prompts that begin like one of them: prefixes in memory and, where
 * there is a folder for it, states on disk. And who may take how many blocks of state.
 *
 * A prefix that nobody has used for a while goes to disk too, as does the one that would leave memory next when memory
 * for prefixes runs short; what leaves before it could be saved is lost. A save holds the blocks that it reads.
 *
 * Invariant: what sequences that run may come to hold (known_reserve) and what a save holds fit the pool together. So a
 * sequence that runs always gets its blocks, if need be those of prefixes.
 *
 * Belongs to the engine thread. */
#include "run/prefix_cache.h"
#include "run/ssd_cache.h"

struct known_states {
    struct kv_pool *pool;
    struct prefix_cache *prefixes;
    struct ssd_cache *ssd; /* NULL: none; borrowed */
    struct clock clock;
    int64_t demote_idle_ns;
    uint32_t n_reserved; /* blocks */
    bool is_waited_for;  /* somebody waits for blocks that a save holds */
};

struct known_settings {
    struct kv_pool *pool;
    uint32_t prefix_blocks_max;
    struct ssd_cache *ssd;
    struct clock clock;
    int64_t demote_idle_ns;
};

bool known_init(struct known_states *known, struct alloc *alloc, const struct known_settings *settings,
                struct err *err) MUST_CHECK;

/* Everything that is not on disk yet is saved first, where there is a disk. Safe twice and on a zeroed one. */
void known_fini(struct known_states *known);

/* Blocks for a sequence that is about to run: false when they are not to be had now. Given back with known_release.
 * With may_wait, a save that holds blocks is waited for. */
bool known_reserve(struct known_states *known, uint32_t n_blocks, bool may_wait) MUST_CHECK;
void known_release(struct known_states *known, uint32_t n_blocks);

/* Nobody waits for blocks any more: whoever known_reserve refused has left. */
void known_await_nobody(struct known_states *known);

/* An empty kv takes over the longest beginning of the ids that is known, at most n_max tokens: from memory, or from
 * disk where that has a block more. Returns how many. */
uint32_t known_take(struct known_states *known, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t n_max);

/* Keeps the state of the n ids of `kv`, which stays the caller's. */
void known_keep(struct known_states *known, const struct kv *kv, const uint32_t *ids, uint32_t n);

/* Prefixes make way until n_blocks more can be taken from the pool. */
void known_make_room(struct known_states *known, uint32_t n_blocks);

/* To be called after every pass, and when known_due_ns says so: saves what is due. */
void known_tend(struct known_states *known, bool is_busy);

/* When there will be something to do that nobody has to ask for; INT64_MAX: never. The end of a save is told by the
 * saver's wake. */
int64_t known_due_ns(const struct known_states *known);

#endif
