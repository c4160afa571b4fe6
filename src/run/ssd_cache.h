#ifndef RUN_SSD_CACHE_H
#define RUN_SSD_CACHE_H
/* States of sequences on disk: what outlives memory and restarts.
 *
 * One file per state (run/state_file.h) in a folder of its own, named by a hash of its ids, which one process at a time
 * holds. The index is made by looking at the folder: files of other models are left alone, damaged ones too, and both
 * are counted. The total size is capped; the state that was used longest ago leaves first. Writing and removing is the
 * saver's (run/state_saver.h), one state at a time; reading is done at once. Trouble with the disk never stops anybody:
 * what cannot be saved is not saved, the first failure of a row gives a warning, all are counted, and after one nothing
 * is tried for a while.
 *
 * Belongs to the engine thread. */
#include "run/state_saver.h"

struct ssd_cache;

struct ssd_settings {
    const char *dir; /* made when only its last part is missing */
    uint64_t bytes_max;
    struct state_identity identity;
    struct kv_pool *pool; /* whose states these are */
    struct file_system fs;
    struct saver_settings saver;
};

struct ssd_stats {
    uint32_t n_states, n_foreign, n_damaged;
    uint64_t bytes;
    uint64_t n_saved, n_restored, n_tokens_saved, n_tokens_restored, n_torn, n_removed, n_failed, n_too_large;
    uint64_t bytes_written, bytes_read;
    int64_t save_ns, save_ns_longest, restore_ns; /* rests not counted; the longest step of a save */
};

/* ERR_BUSY: another process holds the folder. */
bool ssd_cache_open(struct ssd_cache **cache, struct alloc *alloc, const struct ssd_settings *settings,
                    struct err *err) MUST_CHECK;
void ssd_cache_close(struct ssd_cache *cache); /* what is being saved is finished; NULL is fine */

/* How long a beginning of the ids some state has. Reads nothing. */
uint32_t ssd_cache_longest(const struct ssd_cache *cache, const uint32_t *ids, uint32_t n);

/* An empty kv takes over the longest beginning, at most n_max tokens. Returns how many came: 0 when there are none or
 * the file is of no use any more. */
uint32_t ssd_cache_restore(struct ssd_cache *cache, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t n_max);

enum ssd_save {
    SSD_BEGUN,    /* from a fork, which holds blocks until it is done */
    SSD_HAS_IT,   /* a state as long or longer has it */
    SSD_TOO_LONG, /* it would not fit the cap */
    SSD_NOT_NOW,  /* another one is being saved, or saving failed a moment ago */
};

/* Begins to save a state. Shorter ones that it covers are removed once it is there. */
enum ssd_save ssd_cache_save(struct ssd_cache *cache, const struct kv *kv, const uint32_t *ids, uint32_t n);

/* To be called now and then, with whether somebody waits for tokens: goes on with what is in hand. */
void ssd_cache_tend(struct ssd_cache *cache, bool is_busy);

/* The ids of a state that could not be saved, told once: false when there is none. Good until the next
 * call of ssd_cache_tend or ssd_cache_finish. */
bool ssd_cache_take_failed(struct ssd_cache *cache, const uint32_t **ids, uint32_t *n);

/* Waits until nothing is in hand. */
void ssd_cache_finish(struct ssd_cache *cache);

bool ssd_cache_is_saving(const struct ssd_cache *cache);
int64_t ssd_cache_retry_ns(const struct ssd_cache *cache); /* when saving is tried again after a failure */

/* Blocks that the state that is being saved holds, each counted as if nobody else held it. */
uint32_t ssd_cache_held_blocks(const struct ssd_cache *cache);

/* The warning that the latest failure deserves, once: false when there is none. */
bool ssd_cache_take_warning(struct ssd_cache *cache, struct err *warning);

struct ssd_stats ssd_cache_stats(const struct ssd_cache *cache);

#endif
