#include "gram/mask_cache.h"

#include <string.h>

struct kept {
    struct mask_key key;
    uint64_t used;   /* when, on the clock of the cache */
    uint64_t bytes;  /* of all that follows */
    uint64_t *mask;  /* then, if units are counted, which tokens have some */
    uint32_t *exits; /* NULL: none */
    uint16_t *units; /* of tokens, then of exits; NULL: not counted */
    uint32_t n_exits;
    uint16_t units_most;
};

struct mask_cache {
    struct alloc *alloc;
    const struct token_trie *trie;
    struct kept *kept; /* [n], room for n_max */
    uint32_t n, n_max;
    uint64_t bytes, bytes_max, clock;
};

struct mask_cache *mask_cache_new(struct alloc *alloc, const struct token_trie *trie, uint64_t bytes_max,
                                  struct err *err)
{
    enum { ENTRIES_MAX = 4096 }; /* few enough to look through: looking takes microseconds, making one a millisecond */
    struct mask_cache *cache = alloc_get(alloc, sizeof *cache, err);
    if (!cache) return NULL;
    *cache = (struct mask_cache){.alloc = alloc, .trie = trie, .bytes_max = bytes_max};
    uint64_t n = bytes_max / (token_trie_words(trie) * sizeof(uint64_t) + 1) + 1;
    cache->n_max = n < ENTRIES_MAX ? (uint32_t)n : ENTRIES_MAX;
    cache->kept = alloc_get_array(alloc, cache->n_max, sizeof *cache->kept, err);
    if (cache->kept) return cache;
    mask_cache_free(cache);
    return NULL;
}

static void drop(struct mask_cache *cache, uint32_t at)
{
    struct kept *kept = &cache->kept[at];
    cache->bytes -= kept->bytes;
    alloc_put(cache->alloc, kept->mask);
    alloc_put(cache->alloc, kept->exits);
    alloc_put(cache->alloc, kept->units);
    constraint_drop(kept->key.constraint);
    *kept = cache->kept[--cache->n];
}

void mask_cache_free(struct mask_cache *cache)
{
    if (!cache) return;
    while (cache->n > 0) drop(cache, cache->n - 1);
    alloc_put(cache->alloc, cache->kept);
    alloc_put(cache->alloc, cache);
}

const struct token_trie *mask_cache_trie(const struct mask_cache *cache)
{
    return cache->trie;
}

uint64_t mask_cache_bytes(const struct mask_cache *cache)
{
    return cache->bytes;
}

static bool is_same_key(const struct mask_key *a, const struct mask_key *b)
{
    return a->state == b->state && a->parent == b->parent && a->has_units == b->has_units &&
           a->exit_kinds == b->exit_kinds && dfa_is_same(a->dfa, b->dfa);
}

bool mask_cache_get(struct mask_cache *cache, const struct mask_key *key, struct mask_entry *entry)
{
    for (uint32_t i = 0; i < cache->n; i++) {
        struct kept *kept = &cache->kept[i];
        if (!is_same_key(&kept->key, key)) continue;
        kept->used = ++cache->clock;
        *entry = (struct mask_entry){.mask = kept->mask, .exits = kept->exits, .n_exits = kept->n_exits};
        if (kept->units) {
            entry->units = kept->units;
            entry->exit_units = kept->units + cache->trie->id_end;
            entry->counted = kept->mask + token_trie_words(cache->trie);
            entry->units_most = kept->units_most;
        }
        return true;
    }
    return false;
}

static uint32_t oldest(const struct mask_cache *cache)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < cache->n; i++)
        if (cache->kept[i].used < cache->kept[at].used) at = i;
    return at;
}

static bool copy_entry(const struct mask_cache *cache, struct kept *kept, const struct mask_entry *entry,
                       struct err *err)
{
    uint64_t n_exits = entry->n_exits, n_ids = cache->trie->id_end, words = token_trie_words(cache->trie);
    kept->n_exits = entry->n_exits;
    kept->units_most = entry->units_most;
    kept->mask = alloc_get_array(cache->alloc, entry->units ? 2 * words : words, sizeof *kept->mask, err);
    if (!kept->mask) return false;
    memcpy(kept->mask, entry->mask, words * sizeof *kept->mask);
    if (n_exits > 0) {
        kept->exits = alloc_get_array(cache->alloc, n_exits, sizeof *kept->exits, err);
        if (!kept->exits) return false;
        memcpy(kept->exits, entry->exits, n_exits * sizeof *kept->exits);
    }
    if (!entry->units) return true;
    kept->units = alloc_get_array(cache->alloc, n_ids + n_exits, sizeof *kept->units, err);
    if (!kept->units) return false;
    memcpy(kept->mask + words, entry->counted, words * sizeof *kept->mask);
    memcpy(kept->units, entry->units, n_ids * sizeof *kept->units);
    if (n_exits > 0) memcpy(kept->units + n_ids, entry->exit_units, n_exits * sizeof *kept->units);
    return true;
}

static uint64_t bytes_of(const struct mask_cache *cache, const struct mask_entry *entry)
{
    uint64_t n_exits = entry->n_exits, bytes = token_trie_words(cache->trie) * sizeof(uint64_t);
    if (entry->units) bytes = 2 * bytes + (cache->trie->id_end + n_exits) * sizeof(uint16_t);
    return bytes + n_exits * sizeof(uint32_t);
}

bool mask_cache_put(struct mask_cache *cache, const struct mask_key *key, const struct mask_entry *entry,
                    struct err *err)
{
    struct kept kept = {.key = *key, .used = ++cache->clock, .bytes = bytes_of(cache, entry)};
    if (kept.bytes > cache->bytes_max) return true;
    while (cache->n > 0 && (cache->n == cache->n_max || cache->bytes + kept.bytes > cache->bytes_max))
        drop(cache, oldest(cache));
    if (!copy_entry(cache, &kept, entry, err)) {
        alloc_put(cache->alloc, kept.mask);
        alloc_put(cache->alloc, kept.exits);
        alloc_put(cache->alloc, kept.units);
        return false;
    }
    constraint_hold(key->constraint);
    cache->bytes += kept.bytes;
    cache->kept[cache->n++] = kept;
    return true;
}
