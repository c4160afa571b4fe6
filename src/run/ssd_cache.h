#ifndef RUN_SSD_CACHE_H
#define RUN_SSD_CACHE_H
/* States of sequences on disk: what outlives memory and restarts.
 *
 * One file per state (run/state_file.h) in a folder of its own, named by a hash of its ids. The index is made by
 * looking at the folder: files of other models are left alone, damaged ones too, and both are counted. The total size
 * is capped; the state that was used longest ago leaves first. Trouble with the disk never stops anybody: what cannot
 * be saved is not saved, the first failure of a row gives a warning, and all are counted.
 *
 * Belongs to the engine thread. */
#include "run/state_file.h"

struct ssd_cache;

struct ssd_settings {
    const char *dir; /* made when only its last part is missing */
    uint64_t bytes_max;
    struct state_identity identity;
    const struct kv_layout *layout;
    struct file_system fs;
    struct write_system ws;
};

struct ssd_stats {
    uint32_t n_states, n_foreign, n_damaged;
    uint64_t bytes;
    uint64_t n_saved, n_restored, n_tokens_restored, n_torn, n_removed, n_failed;
    uint64_t bytes_written;
};

bool ssd_cache_open(struct ssd_cache **cache, struct alloc *alloc, const struct ssd_settings *settings,
                    struct err *err) MUST_CHECK;
void ssd_cache_close(struct ssd_cache *cache); /* NULL is fine */

/* How long a beginning of the ids some state has. Reads nothing. */
uint32_t ssd_cache_longest(const struct ssd_cache *cache, const uint32_t *ids, uint32_t n);

/* An empty kv takes over the longest beginning, at most n_max tokens. Returns how many came: 0 when there are none or
 * the file is of no use any more. */
uint32_t ssd_cache_restore(struct ssd_cache *cache, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t n_max);

/* Saves a state unless a longer one has it already; shorter ones that it covers are removed once it is there. */
void ssd_cache_save(struct ssd_cache *cache, const struct kv *kv, const uint32_t *ids, uint32_t n);

/* The warning that the latest failure deserves, once: false when there is none. */
bool ssd_cache_take_warning(struct ssd_cache *cache, struct err *warning);

struct ssd_stats ssd_cache_stats(const struct ssd_cache *cache);

#endif
