#include "run/known_states.h"

#include "base/assert.h"

static uint32_t held(const struct known_states *k)
{
    return k->ssd ? ssd_cache_held_blocks(k->ssd) : 0;
}

static uint32_t unreserved(const struct known_states *k)
{
    ASSERT(k->n_reserved <= k->pool->n_blocks_max - held(k));
    return k->pool->n_blocks_max - held(k) - k->n_reserved;
}

/* True when the view needs no more saving, or is being saved. */
static bool save(struct known_states *k, const struct prefix_view *view)
{
    if (view->kv->n_blocks > unreserved(k)) return false;
    if (ssd_cache_save(k->ssd, view->kv, view->ids, view->n) == SSD_NOT_NOW) return false;
    prefix_cache_mark(k->prefixes, view->ids, view->n, true);
    return true;
}

static void see_leaving(void *context, const struct kv *kv, const uint32_t *ids, uint32_t n)
{
    struct known_states *k = context;
    if (k->ssd && kv->n_blocks <= unreserved(k)) ssd_cache_save(k->ssd, kv, ids, n);
}

bool known_init(struct known_states *known, struct alloc *alloc, const struct known_settings *settings, struct err *err)
{
    *known = (struct known_states){.pool = settings->pool,
                                   .ssd = settings->ssd,
                                   .clock = settings->clock,
                                   .demote_idle_ns = settings->demote_idle_ns};
    return prefix_cache_new(&known->prefixes, alloc, settings->prefix_blocks_max, settings->clock, see_leaving, known,
                            err);
}

void known_fini(struct known_states *known)
{
    struct known_states *k = known;
    struct prefix_view view;
    if (k->ssd && k->prefixes) {
        ssd_cache_finish(k->ssd);
        known_tend(k, false); /* a save that failed is tried again, if it may be */
        while (prefix_cache_unsaved(k->prefixes, &view) && save(k, &view)) ssd_cache_finish(k->ssd);
        ssd_cache_finish(k->ssd);
    }
    prefix_cache_free(k->prefixes);
    *k = (struct known_states){0};
}

bool known_reserve(struct known_states *known, uint32_t n_blocks, bool may_wait)
{
    if (n_blocks > unreserved(known) && may_wait && known->ssd) ssd_cache_finish(known->ssd);
    known->is_waited_for = n_blocks > unreserved(known);
    if (known->is_waited_for) return false;
    known->n_reserved += n_blocks;
    return true;
}

void known_release(struct known_states *known, uint32_t n_blocks)
{
    ASSERT(known->n_reserved >= n_blocks);
    known->n_reserved -= n_blocks;
}

void known_await_nobody(struct known_states *known)
{
    known->is_waited_for = false;
}

uint32_t known_take(struct known_states *known, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t n_max)
{
    struct known_states *k = known;
    uint32_t n_cached = prefix_cache_take(k->prefixes, kv, ids, n, n_max);
    if (!k->ssd) return n_cached;
    uint32_t n_saved = ssd_cache_longest(k->ssd, ids, n < n_max ? n : n_max);
    if (n_saved < n_cached + KV_BLOCK_ROWS && (n_cached > 0 || n_saved == 0)) return n_cached;
    kv_truncate(kv, 0);
    known_make_room(k, kv_blocks_for(n_saved));
    uint32_t n_restored = ssd_cache_restore(k->ssd, kv, ids, n, n_max);
    if (n_restored > n_cached) return n_restored;
    kv_truncate(kv, 0);
    return prefix_cache_take(k->prefixes, kv, ids, n, n_max);
}

void known_keep(struct known_states *known, const struct kv *kv, const uint32_t *ids, uint32_t n)
{
    prefix_cache_keep(known->prefixes, kv, ids, n);
}

void known_make_room(struct known_states *known, uint32_t n_blocks)
{
    const struct kv_pool *pool = known->pool;
    while (pool->n_blocks_max - pool->n_blocks < n_blocks)
        if (!prefix_cache_give_up_one(known->prefixes)) break;
}

void known_tend(struct known_states *known, bool is_busy)
{
    struct known_states *k = known;
    struct prefix_view view;
    const uint32_t *ids;
    uint32_t n;
    if (!k->ssd) return;
    ssd_cache_tend(k->ssd, is_busy && !k->is_waited_for);
    if (ssd_cache_take_failed(k->ssd, &ids, &n)) prefix_cache_mark(k->prefixes, ids, n, false);
    if (ssd_cache_is_saving(k->ssd) || k->is_waited_for) return;
    bool is_idle =
        prefix_cache_unsaved(k->prefixes, &view) && clock_now_ns(k->clock) - view.used_ns >= k->demote_idle_ns;
    if (is_idle || prefix_cache_at_risk(k->prefixes, &view)) save(k, &view);
}

int64_t known_due_ns(const struct known_states *known)
{
    struct prefix_view view;
    if (!known->ssd || ssd_cache_is_saving(known->ssd) || !prefix_cache_unsaved(known->prefixes, &view))
        return INT64_MAX;
    int64_t idle_ns = view.used_ns + known->demote_idle_ns, retry_ns = ssd_cache_retry_ns(known->ssd);
    return idle_ns > retry_ns ? idle_ns : retry_ns;
}
