#include "run/ssd_cache.h"

#include "base/assert.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define SUFFIX_TMP SAVER_SUFFIX ".tmp"
#define RETRY_NS INT64_C(30000000000)

enum { STATES_MAX = 4096, IDS_PER_STATE_MAX = 1 << 21 };

struct state {
    struct token_list ids;
    uint64_t name; /* hash of the ids: the file's name */
    uint64_t bytes;
    int64_t last_used; /* ticks of this run; from an earlier one the file's time, which is below them all */
};

/* Names of files that are out of the index and to be removed. */
struct doomed {
    uint64_t *names; /* [n], room for STATES_MAX */
    uint32_t n;
};

struct ssd_cache {
    struct alloc *alloc;
    struct ssd_settings settings;
    char *dir;
    struct folder_lock lock;
    struct saver *saver;
    struct state *states; /* [n_states], room for STATES_MAX */
    uint32_t n_states;
    struct doomed doomed, leaving; /* leaving: the saver is at it */
    int64_t tick;

    struct kv saving_kv;       /* what is being saved: a fork */
    struct state saving;       /* without ids: only files leave */
    struct token_list unsaved; /* ids of the latest state that could not be */
    bool has_unsaved;          /* and nobody was told yet */
    int64_t retry_ns;

    struct ssd_stats stats;
    struct err warning;
    bool has_warned, has_warning;
};

static uint64_t name_of(const uint32_t *ids, uint32_t n)
{
    return XXH3_64bits(ids, n * sizeof *ids);
}

static void warn(struct ssd_cache *c, const struct err *err)
{
    if (c->has_warned) return;
    c->has_warned = c->has_warning = true;
    c->warning = *err;
    err_context(&c->warning, "the cache of states on disk; the conversation goes on without it");
}

static void failed(struct ssd_cache *c, const struct err *err)
{
    c->stats.n_failed++;
    warn(c, err);
}

bool ssd_cache_take_warning(struct ssd_cache *cache, struct err *warning)
{
    if (!cache->has_warning) return false;
    cache->has_warning = false;
    *warning = cache->warning;
    return true;
}

/* --- the index --- */

static void forget(struct ssd_cache *c, uint32_t at)
{
    c->stats.bytes -= c->states[at].bytes;
    token_list_fini(&c->states[at].ids);
    c->states[at] = c->states[--c->n_states];
}

/* Its file goes when the saver has time for it. More than can wait are left to the next start. */
static void remove_state(struct ssd_cache *c, uint32_t at)
{
    if (c->doomed.n < STATES_MAX) c->doomed.names[c->doomed.n++] = c->states[at].name;
    c->stats.n_removed++;
    forget(c, at);
}

static uint32_t used_longest_ago(const struct ssd_cache *c)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < c->n_states; i++)
        if (c->states[i].last_used < c->states[oldest].last_used) oldest = i;
    return oldest;
}

static void keep_within(struct ssd_cache *c, uint64_t bytes_coming)
{
    while (c->n_states > 0 && (c->n_states == STATES_MAX || c->stats.bytes + bytes_coming > c->settings.bytes_max))
        remove_state(c, used_longest_ago(c));
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* A state is found and removed by the name that its ids give: a copy, or one that somebody renamed, would be neither.
 */
static bool has_its_name(const struct ssd_cache *c, const struct state *state, const char *path)
{
    char own[SAVER_PATH_MAX];
    return saver_path(own, c->dir, state->name) && strcmp(own, path) == 0;
}

/* Looks at one file of the folder. Only memory that runs out is an error. */
static bool index_file(struct ssd_cache *c, const char *name, struct err *err)
{
    char path[SAVER_PATH_MAX];
    struct stat st;
    struct err why = {0};
    if (c->n_states == STATES_MAX || snprintf(path, sizeof path, "%s/%s", c->dir, name) >= (int)sizeof path)
        return true;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) return true; /* a link is nobody's state */
    if (ends_in(name, SUFFIX_TMP)) { /* of a run that was killed: nobody else writes here */
        if (!file_remove(c->alloc, c->settings.saver.ws, path, &why)) failed(c, &why);
        return true;
    }
    struct state *state = &c->states[c->n_states];
    *state = (struct state){.bytes = (uint64_t)st.st_size, .last_used = INT64_MIN / 2 + st.st_mtim.tv_sec};
    token_list_init(&state->ids, c->alloc, IDS_PER_STATE_MAX);
    bool is_read = state_file_peek(path, c->alloc, c->settings.fs, &c->settings.identity, &c->settings.pool->layout,
                                   &state->ids, &why);
    if (is_read) state->name = name_of(state->ids.ids, (uint32_t)state->ids.n);
    if (is_read && has_its_name(c, state, path)) {
        c->stats.bytes += state->bytes;
        c->n_states++;
        return true;
    }
    token_list_fini(&state->ids);
    if (why.kind == ERR_NOMEM) {
        *err = why;
        return false;
    }
    if (!is_read && strstr(why.text, "damaged"))
        c->stats.n_damaged++;
    else
        c->stats.n_foreign++;
    return true;
}

static bool index_folder(struct ssd_cache *c, struct err *err)
{
    DIR *dir = opendir(c->dir);
    bool ok = true;
    if (!dir) return err_set(err, ERR_IO, "%s: cannot be listed: %s", c->dir, strerror(errno));
    for (const struct dirent *entry; ok && (entry = readdir(dir)) != NULL;)
        if (ends_in(entry->d_name, SAVER_SUFFIX) || ends_in(entry->d_name, SUFFIX_TMP))
            ok = index_file(c, entry->d_name, err);
    closedir(dir);
    return ok;
}

bool ssd_cache_open(struct ssd_cache **cache, struct alloc *alloc, const struct ssd_settings *settings, struct err *err)
{
    struct ssd_cache *c = alloc_get(alloc, sizeof *c, err);
    struct write_system ws = settings->saver.ws;
    if (!c) return false;
    c->alloc = alloc;
    c->settings = *settings;
    c->dir = alloc_text(alloc, settings->dir, err);
    c->states = alloc_get_array(alloc, STATES_MAX, sizeof *c->states, err);
    c->doomed.names = alloc_get_array(alloc, STATES_MAX, sizeof *c->doomed.names, err);
    c->leaving.names = alloc_get_array(alloc, STATES_MAX, sizeof *c->leaving.names, err);
    if (!c->dir || !c->states || !c->doomed.names || !c->leaving.names) goto fail;
    if (ws.ops->mkdir(ws.context, c->dir, 0700) != 0 && errno != EEXIST) {
        err_set(err, ERR_IO, "%s: cannot make this folder: %s", c->dir, strerror(errno));
        goto fail;
    }
    if (!folder_lock(&c->lock, ws, c->dir, err)) goto fail;
    if (!index_folder(c, err)) goto fail;
    if (!saver_new(&c->saver, alloc, &settings->saver, err)) goto fail;
    keep_within(c, 0);
    *cache = c;
    return true;
fail:
    ssd_cache_close(c);
    return false;
}

void ssd_cache_close(struct ssd_cache *cache)
{
    struct ssd_cache *c = cache;
    if (!c) return;
    if (c->saver) ssd_cache_finish(c);
    saver_free(c->saver);
    token_list_fini(&c->saving.ids);
    token_list_fini(&c->unsaved);
    while (c->n_states > 0) forget(c, c->n_states - 1);
    folder_unlock(&c->lock);
    alloc_put(c->alloc, c->leaving.names);
    alloc_put(c->alloc, c->doomed.names);
    alloc_put(c->alloc, c->states);
    alloc_put(c->alloc, c->dir);
    alloc_put(c->alloc, c);
}

/* --- use --- */

static uint32_t common(const struct state *state, const uint32_t *ids, uint32_t n)
{
    uint32_t i = 0, end = state->ids.n < n ? (uint32_t)state->ids.n : n;
    while (i < end && state->ids.ids[i] == ids[i]) i++;
    return i;
}

static uint32_t find(const struct ssd_cache *c, const uint32_t *ids, uint32_t n, uint32_t *at)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < c->n_states; i++) {
        uint32_t k = common(&c->states[i], ids, n);
        if (k <= best) continue;
        best = k;
        *at = i;
    }
    return best;
}

uint32_t ssd_cache_longest(const struct ssd_cache *cache, const uint32_t *ids, uint32_t n)
{
    uint32_t at = 0;
    return find(cache, ids, n, &at);
}

uint32_t ssd_cache_restore(struct ssd_cache *cache, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t n_max)
{
    struct ssd_cache *c = cache;
    char path[SAVER_PATH_MAX];
    struct err err = {0};
    bool is_torn;
    uint32_t at = 0, k = find(c, ids, n < n_max ? n : n_max, &at);
    if (k == 0) return 0;
    struct state *state = &c->states[at];
    int64_t begin = clock_now_ns(c->settings.saver.clock);
    if (!saver_path(path, c->dir, state->name)) return 0;
    if (!state_file_read(path, c->alloc, c->settings.fs, &c->settings.identity, kv, ids, k, &is_torn, &err)) {
        if (err.kind == ERR_NOMEM || err.kind == ERR_BUSY) return 0; /* not the file's fault */
        failed(c, &err);
        forget(c, at);
        return 0;
    }
    state->last_used = ++c->tick;
    c->stats.n_restored++;
    c->stats.n_tokens_restored += kv->n_rows;
    c->stats.bytes_read += state_file_bytes(&c->settings.pool->layout, kv->n_rows);
    c->stats.restore_ns += clock_now_ns(c->settings.saver.clock) - begin;
    if (is_torn) {
        c->stats.n_torn++;
        remove_state(c, at); /* it will be saved whole again */
    }
    return kv->n_rows;
}

/* --- saving --- */

/* Hands the saver whatever is to be removed, and the state in `saving`, if there is one. */
static void begin_order(struct ssd_cache *c)
{
    struct doomed doomed = c->doomed;
    c->doomed = c->leaving;
    c->doomed.n = 0;
    c->leaving = doomed;
    bool writes = c->saving.ids.n > 0;
    const struct saver_order order = {.dir = c->dir,
                                      .removes = c->leaving.names,
                                      .n_removes = c->leaving.n,
                                      .kv = writes ? &c->saving_kv : NULL,
                                      .ids = c->saving.ids.ids,
                                      .n = (uint32_t)c->saving.ids.n,
                                      .name = c->saving.name,
                                      .identity = c->settings.identity};
    saver_begin(c->saver, &order);
}

enum ssd_save ssd_cache_save(struct ssd_cache *cache, const struct kv *kv, const uint32_t *ids, uint32_t n)
{
    struct ssd_cache *c = cache;
    struct err err = {0};
    uint32_t at = 0;
    uint64_t bytes = state_file_bytes(&c->settings.pool->layout, n);
    ASSERT(n > 0);
    if (find(c, ids, n, &at) == n) {
        c->states[at].last_used = ++c->tick;
        return SSD_HAS_IT;
    }
    if (bytes > c->settings.bytes_max) {
        if (c->stats.n_too_large++ > 0) return SSD_TOO_LONG;
        err_set(&err, ERR_USER,
                "%s: a state of %" PRIu32 " tokens takes %" PRIu64 " bytes and the cap is %" PRIu64
                "; give a larger --ssd-cache-max",
                c->dir, n, bytes, c->settings.bytes_max);
        warn(c, &err);
        return SSD_TOO_LONG;
    }
    if (saver_is_busy(c->saver) || clock_now_ns(c->settings.saver.clock) < c->retry_ns) return SSD_NOT_NOW;
    token_list_fini(&c->saving.ids);
    c->saving = (struct state){.name = name_of(ids, n), .bytes = bytes, .last_used = ++c->tick};
    token_list_init(&c->saving.ids, c->alloc, IDS_PER_STATE_MAX);
    kv_init(&c->saving_kv, kv->pool);
    if (!token_list_add(&c->saving.ids, ids, n, &err) || !kv_fork(&c->saving_kv, kv, n, &err)) {
        kv_fini(&c->saving_kv);
        token_list_fini(&c->saving.ids);
        return SSD_NOT_NOW;
    }
    keep_within(c, bytes);
    begin_order(c);
    return SSD_BEGUN;
}

/* States that the new one covers say nothing more. */
static void remove_covered(struct ssd_cache *c, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < c->n_states;)
        if (c->states[i].ids.n < n && common(&c->states[i], ids, n) == c->states[i].ids.n)
            remove_state(c, i);
        else
            i++;
}

static void take_result(struct ssd_cache *c, const struct saver_result *r)
{
    struct state *state = &c->saving;
    uint32_t n = (uint32_t)state->ids.n;
    if (r->n_not_removed) failed(c, &r->not_removed);
    kv_fini(&c->saving_kv);
    if (n == 0) return;
    c->stats.save_ns += r->ns;
    if (r->ns_longest > c->stats.save_ns_longest) c->stats.save_ns_longest = r->ns_longest;
    if (!r->ok) {
        failed(c, &r->err);
        token_list_fini(&c->unsaved);
        c->unsaved = state->ids;
        c->has_unsaved = true;
        *state = (struct state){0};
        c->retry_ns = clock_now_ns(c->settings.saver.clock) + RETRY_NS;
        return;
    }
    c->has_warned = false; /* it works again: the next failure is news */
    c->stats.n_saved++;
    c->stats.n_tokens_saved += n;
    c->stats.bytes_written += r->bytes;
    remove_covered(c, state->ids.ids, n);
    ASSERT(c->n_states < STATES_MAX); /* a place was kept for it */
    c->stats.bytes += state->bytes;
    c->states[c->n_states++] = *state;
    *state = (struct state){0};
}

/* Takes what is done, and sends files away. */
static void collect(struct ssd_cache *c)
{
    struct saver_result result;
    if (saver_take(c->saver, &result)) take_result(c, &result);
    if (saver_is_busy(c->saver) || c->doomed.n == 0) return;
    begin_order(c);
}

void ssd_cache_tend(struct ssd_cache *cache, bool is_busy)
{
    saver_set_restful(cache->saver, is_busy);
    saver_poll(cache->saver);
    collect(cache);
}

void ssd_cache_finish(struct ssd_cache *cache)
{
    do {
        saver_finish(cache->saver);
        collect(cache);
    } while (saver_is_busy(cache->saver));
}

bool ssd_cache_take_failed(struct ssd_cache *cache, const uint32_t **ids, uint32_t *n)
{
    if (!cache->has_unsaved) return false;
    cache->has_unsaved = false;
    *ids = cache->unsaved.ids;
    *n = (uint32_t)cache->unsaved.n;
    return true;
}

bool ssd_cache_is_saving(const struct ssd_cache *cache)
{
    return saver_is_busy(cache->saver);
}

int64_t ssd_cache_retry_ns(const struct ssd_cache *cache)
{
    return cache->retry_ns;
}

uint32_t ssd_cache_held_blocks(const struct ssd_cache *cache)
{
    return cache->saving_kv.n_blocks;
}

struct ssd_stats ssd_cache_stats(const struct ssd_cache *cache)
{
    struct ssd_stats stats = cache->stats;
    stats.n_states = cache->n_states;
    return stats;
}
