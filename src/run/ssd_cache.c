#include "run/ssd_cache.h"

#include "base/assert.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define SUFFIX ".weirkv"

enum { STATES_MAX = 4096, IDS_PER_STATE_MAX = 1 << 21, PATH_BYTES_MAX = 4096 };

struct state {
    struct token_list ids;
    uint64_t name; /* hash of the ids: the file's name */
    uint64_t bytes;
    int64_t last_used; /* ticks of this run; from an earlier one the file's time, which is below them all */
};

struct ssd_cache {
    struct alloc *alloc;
    struct ssd_settings settings;
    char *dir;
    struct state *states; /* [n_states], room for STATES_MAX */
    uint32_t n_states;
    int64_t tick;
    struct ssd_stats stats;
    struct err warning;
    bool has_warned, has_warning;
};

static const char *path_of(const struct ssd_cache *c, uint64_t name, char path[PATH_BYTES_MAX])
{
    snprintf(path, PATH_BYTES_MAX, "%s/%016" PRIx64 SUFFIX, c->dir, name);
    return path;
}

static uint64_t name_of(const uint32_t *ids, uint32_t n)
{
    return XXH3_64bits(ids, n * sizeof *ids);
}

static void failed(struct ssd_cache *c, const struct err *err)
{
    c->stats.n_failed++;
    if (c->has_warned) return;
    c->has_warned = c->has_warning = true;
    c->warning = *err;
    err_context(&c->warning, "the cache of states on disk; the conversation goes on without it");
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

static void remove_state(struct ssd_cache *c, uint32_t at)
{
    char path[PATH_BYTES_MAX];
    struct err err = {0};
    if (!file_remove(c->alloc, c->settings.ws, path_of(c, c->states[at].name, path), &err)) failed(c, &err);
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

static bool has_suffix(const char *name)
{
    size_t n = strlen(name), m = strlen(SUFFIX);
    return n > m && strcmp(name + n - m, SUFFIX) == 0;
}

/* Looks at one file of the folder. Only memory that runs out is an error. */
static bool index_file(struct ssd_cache *c, const char *name, struct err *err)
{
    char path[PATH_BYTES_MAX];
    struct stat st;
    struct err why = {0};
    if (c->n_states == STATES_MAX || snprintf(path, sizeof path, "%s/%s", c->dir, name) >= (int)sizeof path)
        return true;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) return true; /* a link is nobody's state */
    struct state *state = &c->states[c->n_states];
    *state = (struct state){.bytes = (uint64_t)st.st_size, .last_used = INT64_MIN / 2 + st.st_mtim.tv_sec};
    token_list_init(&state->ids, c->alloc, IDS_PER_STATE_MAX);
    if (state_file_peek(path, c->alloc, c->settings.fs, &c->settings.identity, c->settings.layout, &state->ids, &why)) {
        state->name = name_of(state->ids.ids, (uint32_t)state->ids.n);
        c->stats.bytes += state->bytes;
        c->n_states++;
        return true;
    }
    token_list_fini(&state->ids);
    if (why.kind == ERR_NOMEM) {
        *err = why;
        return false;
    }
    if (strstr(why.text, "damaged"))
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
        if (has_suffix(entry->d_name)) ok = index_file(c, entry->d_name, err);
    closedir(dir);
    return ok;
}

bool ssd_cache_open(struct ssd_cache **cache, struct alloc *alloc, const struct ssd_settings *settings, struct err *err)
{
    struct ssd_cache *c = alloc_get(alloc, sizeof *c, err);
    if (!c) return false;
    c->alloc = alloc;
    c->settings = *settings;
    c->dir = alloc_text(alloc, settings->dir, err);
    c->states = alloc_get_array(alloc, STATES_MAX, sizeof *c->states, err);
    if (!c->dir || !c->states) goto fail;
    if (settings->ws.ops->mkdir(settings->ws.context, c->dir, 0700) != 0 && errno != EEXIST) {
        err_set(err, ERR_IO, "%s: cannot make this folder: %s", c->dir, strerror(errno));
        goto fail;
    }
    if (!index_folder(c, err)) goto fail;
    keep_within(c, 0);
    *cache = c;
    return true;
fail:
    ssd_cache_close(c);
    return false;
}

void ssd_cache_close(struct ssd_cache *cache)
{
    if (!cache) return;
    while (cache->n_states > 0) forget(cache, cache->n_states - 1);
    alloc_put(cache->alloc, cache->states);
    alloc_put(cache->alloc, cache->dir);
    alloc_put(cache->alloc, cache);
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
    char path[PATH_BYTES_MAX];
    struct err err = {0};
    bool is_torn;
    uint32_t at = 0, k = find(cache, ids, n < n_max ? n : n_max, &at);
    if (k == 0) return 0;
    struct state *state = &cache->states[at];
    if (!state_file_read(path_of(cache, state->name, path), cache->alloc, cache->settings.fs, &cache->settings.identity,
                         kv, k, &is_torn, &err)) {
        if (err.kind == ERR_NOMEM || err.kind == ERR_BUSY) return 0; /* not the file's fault */
        failed(cache, &err);
        forget(cache, at);
        return 0;
    }
    state->last_used = ++cache->tick;
    cache->stats.n_restored++;
    cache->stats.n_tokens_restored += kv->n_rows;
    if (is_torn) {
        cache->stats.n_torn++;
        remove_state(cache, at); /* it will be saved whole again */
    }
    return kv->n_rows;
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

void ssd_cache_save(struct ssd_cache *cache, const struct kv *kv, const uint32_t *ids, uint32_t n)
{
    struct ssd_cache *c = cache;
    char path[PATH_BYTES_MAX];
    struct err err = {0};
    uint32_t at = 0;
    uint64_t bytes = kv_blocks_for(n) * (kv->pool->layout.block_bytes + 24) + n * sizeof *ids + 128;
    if (n == 0 || bytes > c->settings.bytes_max) return;
    if (find(c, ids, n, &at) == n) { /* a state that is as long or longer has it all */
        c->states[at].last_used = ++c->tick;
        return;
    }
    keep_within(c, bytes);
    struct state state = {.name = name_of(ids, n), .bytes = bytes, .last_used = ++c->tick};
    token_list_init(&state.ids, c->alloc, IDS_PER_STATE_MAX);
    if (!token_list_add(&state.ids, ids, n, &err) ||
        !state_file_write(path_of(c, state.name, path), c->alloc, c->settings.ws, &c->settings.identity, kv, ids, n,
                          &err)) {
        token_list_fini(&state.ids);
        failed(c, &err);
        return;
    }
    c->has_warned = false; /* it works again: the next failure is news */
    c->stats.n_saved++;
    c->stats.bytes_written += bytes;
    remove_covered(c, ids, n);
    c->states[c->n_states++] = state;
    c->stats.bytes += bytes;
}

struct ssd_stats ssd_cache_stats(const struct ssd_cache *cache)
{
    struct ssd_stats stats = cache->stats;
    stats.n_states = cache->n_states;
    return stats;
}
