#ifndef RUN_PREFIX_CACHE_H
#define RUN_PREFIX_CACHE_H
/* States of sequences that are over, kept because the next prompt may begin like one of them.
 *
 * An entry is a sequence's ids and its state, held by shared blocks. A prompt takes over the longest common beginning
 * of any entry, to the token. The state of a token depends on the tokens before it only, so what is taken over equals
 * what would have been computed, bit for bit. Bounded in blocks; the entry with the least tokens saved per block that
 * it alone holds leaves first, the older one on a tie; one that is on disk too leaves before any that is not.
 *
 * Belongs to the engine thread. */
#include "model/kv.h"
#include "plat/clock.h"

struct prefix_cache;

struct prefix_stats {
    uint64_t n_hits, n_misses, n_tokens_saved;
    uint32_t n_entries, n_blocks; /* blocks: each counted once per entry that holds it */
};

/* Told of a state that was never saved to disk and is about to leave for want of room. */
typedef void prefix_leave_fn(void *context, const struct kv *kv, const uint32_t *ids, uint32_t n);

/* Room for n_blocks_max blocks over all entries; 0: keeps nothing. on_leave may be NULL. */
bool prefix_cache_new(struct prefix_cache **cache, struct alloc *alloc, uint32_t n_blocks_max, struct clock clock,
                      prefix_leave_fn *on_leave, void *context, struct err *err) MUST_CHECK;
void prefix_cache_free(struct prefix_cache *cache); /* NULL is fine */

/* An empty `kv` takes over the longest known beginning of the ids, at most n_max tokens of it. Returns how many. */
uint32_t prefix_cache_take(struct prefix_cache *cache, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t n_max);

/* Keeps the state of the n ids of `kv` (n <= kv->n_rows), which stays the caller's. An entry that it covers makes way
 * for it. Memory that cannot be had is no error: then it is not kept. */
void prefix_cache_keep(struct prefix_cache *cache, const struct kv *kv, const uint32_t *ids, uint32_t n);

/* An entry that is not on disk. Good until the next call that changes the cache. */
struct prefix_view {
    const struct kv *kv;
    const uint32_t *ids; /* [n] */
    uint32_t n;
    int64_t used_ns; /* when it was used last */
};

/* The one of them that was used longest ago; false: none. */
bool prefix_cache_unsaved(const struct prefix_cache *cache, struct prefix_view *view);

/* The entry that would leave next, if that is one of them and the cache is nearly full. */
bool prefix_cache_at_risk(const struct prefix_cache *cache, struct prefix_view *view);

/* The entry of exactly these ids, if there is one, is on disk, or is not. */
void prefix_cache_mark(struct prefix_cache *cache, const uint32_t *ids, uint32_t n, bool is_saved);

/* Lets the least valuable entry go, for somebody who needs blocks. False when there is none. */
bool prefix_cache_give_up_one(struct prefix_cache *cache);

struct prefix_stats prefix_cache_stats(const struct prefix_cache *cache);

#endif
