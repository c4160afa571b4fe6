#include "run/prefix_cache.h"

#include "base/assert.h"
#include <string.h>

/* Entries are conversations of one person or a few programs: few enough to compare one after the other. */
enum { ENTRIES_MAX = 256 };

struct entry {
    struct kv kv;
    uint32_t *ids; /* [n] */
    uint32_t n;
    uint64_t n_saved;   /* tokens that this entry has spared */
    uint64_t last_used; /* tick */
    int64_t used_ns;
    bool is_saved; /* on disk too */
};

struct prefix_cache {
    struct alloc *alloc;
    struct clock clock;
    prefix_leave_fn *on_leave;
    void *context;
    uint32_t n_blocks_max, n_entries;
    uint64_t tick;
    struct prefix_stats stats;
    struct entry entries[ENTRIES_MAX];
};

bool prefix_cache_new(struct prefix_cache **cache, struct alloc *alloc, uint32_t n_blocks_max, struct clock clock,
                      prefix_leave_fn *on_leave, void *context, struct err *err)
{
    struct prefix_cache *c = alloc_get(alloc, sizeof *c, err);
    if (!c) return false;
    c->alloc = alloc;
    c->clock = clock;
    c->n_blocks_max = n_blocks_max;
    c->on_leave = on_leave;
    c->context = context;
    *cache = c;
    return true;
}

static void remove_entry(struct prefix_cache *c, uint32_t at)
{
    struct entry *e = &c->entries[at];
    c->stats.n_blocks -= e->kv.n_blocks;
    kv_fini(&e->kv);
    alloc_put(c->alloc, e->ids);
    *e = c->entries[--c->n_entries];
    c->entries[c->n_entries] = (struct entry){0};
}

void prefix_cache_free(struct prefix_cache *cache)
{
    if (!cache) return;
    while (cache->n_entries > 0) remove_entry(cache, cache->n_entries - 1);
    alloc_put(cache->alloc, cache);
}

static void touch(struct prefix_cache *c, struct entry *e)
{
    e->last_used = ++c->tick;
    e->used_ns = clock_now_ns(c->clock);
}

static uint32_t common(const struct entry *e, const uint32_t *ids, uint32_t n)
{
    uint32_t i = 0, end = e->n < n ? e->n : n;
    while (i < end && e->ids[i] == ids[i]) i++;
    return i;
}

static struct entry *longest(struct prefix_cache *c, const uint32_t *ids, uint32_t n, uint32_t *n_common)
{
    struct entry *best = NULL;
    *n_common = 0;
    for (uint32_t i = 0; i < c->n_entries; i++) {
        uint32_t k = common(&c->entries[i], ids, n);
        if (k <= *n_common) continue;
        *n_common = k;
        best = &c->entries[i];
    }
    return best;
}

uint32_t prefix_cache_take(struct prefix_cache *cache, struct kv *kv, const uint32_t *ids, uint32_t n, uint32_t n_max)
{
    struct err ignored;
    uint32_t k;
    struct entry *e = longest(cache, ids, n < n_max ? n : n_max, &k);
    if (!e || !kv_fork(kv, &e->kv, k, &ignored)) {
        cache->stats.n_misses++;
        return 0;
    }
    e->n_saved += k;
    touch(cache, e);
    cache->stats.n_hits++;
    cache->stats.n_tokens_saved += k;
    return k;
}

static uint32_t own_blocks(const struct entry *e)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->kv.n_blocks; i++) n += e->kv.blocks[i]->n_holders == 1;
    return n;
}

/* Tokens saved per block of its own, in 1/1024; an entry all of whose blocks are shared costs next to nothing. */
static uint64_t worth(const struct entry *e)
{
    return e->n_saved * 1024 / (own_blocks(e) + 1);
}

static bool leaves_before(const struct entry *a, const struct entry *b)
{
    uint64_t worth_a = worth(a), worth_b = worth(b);
    if (a->is_saved != b->is_saved) return a->is_saved;
    return worth_a < worth_b || (worth_a == worth_b && a->last_used < b->last_used);
}

static uint32_t least_valuable(const struct prefix_cache *c)
{
    uint32_t worst = 0;
    for (uint32_t i = 1; i < c->n_entries; i++)
        if (leaves_before(&c->entries[i], &c->entries[worst])) worst = i;
    return worst;
}

bool prefix_cache_give_up_one(struct prefix_cache *cache)
{
    if (cache->n_entries == 0) return false;
    uint32_t at = least_valuable(cache);
    struct entry *e = &cache->entries[at];
    if (cache->on_leave && !e->is_saved) cache->on_leave(cache->context, &e->kv, e->ids, e->n);
    remove_entry(cache, at);
    return true;
}

static struct prefix_view view_of(const struct entry *e)
{
    return (struct prefix_view){.kv = &e->kv, .ids = e->ids, .n = e->n, .used_ns = e->used_ns};
}

bool prefix_cache_unsaved(const struct prefix_cache *cache, struct prefix_view *view)
{
    const struct entry *oldest = NULL;
    for (uint32_t i = 0; i < cache->n_entries; i++) {
        const struct entry *e = &cache->entries[i];
        if (!e->is_saved && (!oldest || e->last_used < oldest->last_used)) oldest = e;
    }
    if (oldest) *view = view_of(oldest);
    return oldest != NULL;
}

bool prefix_cache_at_risk(const struct prefix_cache *cache, struct prefix_view *view)
{
    bool is_full = cache->stats.n_blocks > cache->n_blocks_max - cache->n_blocks_max / 4;
    if (cache->n_entries < 2 || (!is_full && cache->n_entries < ENTRIES_MAX - ENTRIES_MAX / 4)) return false;
    const struct entry *next = &cache->entries[least_valuable(cache)];
    if (next->is_saved) return false;
    *view = view_of(next);
    return true;
}

void prefix_cache_mark(struct prefix_cache *cache, const uint32_t *ids, uint32_t n, bool is_saved)
{
    for (uint32_t i = 0; i < cache->n_entries; i++) {
        struct entry *e = &cache->entries[i];
        if (e->n == n && memcmp(e->ids, ids, n * sizeof *ids) == 0) e->is_saved = is_saved;
    }
}

/* Entries that the ids cover say nothing that the new one does not say. */
static void remove_covered(struct prefix_cache *c, const uint32_t *ids, uint32_t n, uint64_t *n_saved)
{
    for (uint32_t i = 0; i < c->n_entries;) {
        if (c->entries[i].n <= n && common(&c->entries[i], ids, n) == c->entries[i].n) {
            *n_saved += c->entries[i].n_saved;
            remove_entry(c, i);
        } else {
            i++;
        }
    }
}

void prefix_cache_keep(struct prefix_cache *cache, const struct kv *kv, const uint32_t *ids, uint32_t n)
{
    struct err ignored;
    uint32_t k, n_blocks = kv_blocks_for(n);
    uint64_t n_saved = 0;
    ASSERT(n <= kv->n_rows);
    if (n == 0 || n_blocks > cache->n_blocks_max) return;
    struct entry *known = longest(cache, ids, n, &k);
    if (known && k == n) { /* a longer entry has it all */
        touch(cache, known);
        return;
    }
    remove_covered(cache, ids, n, &n_saved);
    while (cache->n_entries == ENTRIES_MAX || cache->stats.n_blocks + n_blocks > cache->n_blocks_max)
        if (!prefix_cache_give_up_one(cache)) return;

    struct entry *e = &cache->entries[cache->n_entries];
    *e = (struct entry){.n = n, .n_saved = n_saved};
    touch(cache, e);
    kv_init(&e->kv, kv->pool);
    e->ids = alloc_get_array(cache->alloc, n, sizeof *e->ids, &ignored);
    if (!e->ids || !kv_fork(&e->kv, kv, n, &ignored)) {
        kv_fini(&e->kv);
        alloc_put(cache->alloc, e->ids);
        *e = (struct entry){0};
        return;
    }
    memcpy(e->ids, ids, n * sizeof *ids);
    cache->n_entries++;
    cache->stats.n_blocks += e->kv.n_blocks;
}

struct prefix_stats prefix_cache_stats(const struct prefix_cache *cache)
{
    struct prefix_stats stats = cache->stats;
    stats.n_entries = cache->n_entries;
    return stats;
}
