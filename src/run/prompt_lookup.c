#include "run/prompt_lookup.h"

#include "base/assert.h"
#include <inttypes.h>
#include <string.h>

/* Tables are at most half full. */
enum { ROOM_LOG2_MIN = 4, ROOM_LOG2_MAX = 31 };

static bool check_limits(struct prompt_lookup_limits limits, struct err *err)
{
    if (limits.n_max < 1 || limits.n_max > PROMPT_LOOKUP_LENGTH_MAX)
        return err_set(err, ERR_USER, "ngram max: %" PRIu32 " is not legal; must be 1 to %d", limits.n_max,
                       PROMPT_LOOKUP_LENGTH_MAX);
    if (limits.n_min < 1 || limits.n_min > limits.n_max)
        return err_set(err, ERR_USER, "ngram min: %" PRIu32 " is not legal; must be 1 to ngram max, which is %" PRIu32,
                       limits.n_min, limits.n_max);
    if (limits.n_draft < 1 || limits.n_draft > PROMPT_LOOKUP_DRAFT_MAX)
        return err_set(err, ERR_USER, "ngram drafts: %" PRIu32 " is not legal; must be 1 to %d", limits.n_draft,
                       PROMPT_LOOKUP_DRAFT_MAX);
    return true;
}

static uint32_t room_for(uint32_t n_ids_max)
{
    uint32_t room_log2 = ROOM_LOG2_MIN;
    while (room_log2 < ROOM_LOG2_MAX && (UINT64_C(1) << room_log2) < 2 * (uint64_t)n_ids_max) room_log2++;
    return room_log2;
}

uint64_t prompt_lookup_bytes(struct prompt_lookup_limits limits, uint32_t n_ids_max)
{
    return ((uint64_t)(limits.n_max - limits.n_min + 1) << room_for(n_ids_max)) * sizeof(uint32_t);
}

bool prompt_lookup_init(struct prompt_lookup *lookup, struct alloc *alloc, struct prompt_lookup_limits limits,
                        uint32_t n_ids_max, struct err *err)
{
    *lookup = (struct prompt_lookup){0};
    if (!check_limits(limits, err)) return false;
    uint32_t room_log2 = room_for(n_ids_max);
    ASSERT(n_ids_max < UINT32_C(1) << ROOM_LOG2_MAX);
    *lookup = (struct prompt_lookup){.alloc = alloc, .limits = limits, .room_log2 = room_log2, .n_ids_max = n_ids_max};
    uint64_t n_tables = limits.n_max - limits.n_min + 1;
    lookup->places = alloc_get_array(alloc, n_tables << room_log2, sizeof *lookup->places, err);
    return lookup->places != NULL;
}

void prompt_lookup_fini(struct prompt_lookup *lookup)
{
    if (lookup->alloc) alloc_put(lookup->alloc, lookup->places);
    *lookup = (struct prompt_lookup){0};
}

void prompt_lookup_reset(struct prompt_lookup *lookup)
{
    uint64_t n_tables = lookup->limits.n_max - lookup->limits.n_min + 1;
    memset(lookup->places, 0, (n_tables << lookup->room_log2) * sizeof *lookup->places);
    lookup->n_seen = 0;
}

/* Takes one more id in front: the hash of k ids becomes that of the k + 1 ids that end at the same place. */
static uint64_t hash_more(uint64_t hash, uint32_t id)
{
    hash = (hash ^ id) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* The slot of these k ids: where their first place is noted, or the free one where it belongs. */
static uint32_t *slot_of(struct prompt_lookup *lookup, const uint32_t *ids, uint64_t hash, const uint32_t *gram,
                         uint32_t k)
{
    uint32_t *table = lookup->places + ((size_t)(k - lookup->limits.n_min) << lookup->room_log2);
    uint64_t mask = (UINT64_C(1) << lookup->room_log2) - 1, at = hash >> (64 - lookup->room_log2);
    while (table[at] && memcmp(ids + table[at] - 1, gram, k * sizeof *ids) != 0) at = (at + 1) & mask;
    return &table[at];
}

/* Notes every gram that ends at `end` and now has something behind it. */
static void note_grams(struct prompt_lookup *lookup, const uint32_t *ids, uint32_t end)
{
    uint64_t hash = lookup->key;
    for (uint32_t k = 1; k <= lookup->limits.n_max && k <= end; k++) {
        const uint32_t *gram = ids + end - k;
        hash = hash_more(hash, *gram);
        if (k < lookup->limits.n_min) continue;
        uint32_t *slot = slot_of(lookup, ids, hash, gram, k);
        if (!*slot) *slot = end - k + 1;
    }
}

/* The longest gram at the end of the stream that has been noted, as the place behind it; 0: none. */
static uint32_t place_behind(struct prompt_lookup *lookup, const uint32_t *ids, uint32_t n_ids)
{
    uint32_t place = 0;
    uint64_t hash = lookup->key;
    for (uint32_t k = 1; k <= lookup->limits.n_max && k <= n_ids; k++) {
        const uint32_t *gram = ids + n_ids - k;
        hash = hash_more(hash, *gram);
        if (k < lookup->limits.n_min) continue;
        uint32_t first = *slot_of(lookup, ids, hash, gram, k);
        if (!first) break; /* a longer gram would contain this one */
        place = first - 1 + k;
    }
    return place;
}

uint32_t prompt_lookup_draft(struct prompt_lookup *lookup, const uint32_t *ids, uint32_t n_ids,
                             uint32_t draft[PROMPT_LOOKUP_DRAFT_MAX])
{
    ASSERT(n_ids <= lookup->n_ids_max);
    ASSERT(n_ids >= lookup->n_seen);
    /* A gram is noted when its successor arrives. */
    for (uint32_t i = lookup->n_seen; i < n_ids; i++) note_grams(lookup, ids, i);
    lookup->n_seen = n_ids;

    uint32_t from = place_behind(lookup, ids, n_ids);
    if (from == 0) return 0;
    uint32_t n = n_ids - from < lookup->limits.n_draft ? n_ids - from : lookup->limits.n_draft;
    memcpy(draft, ids + from, n * sizeof *draft);
    return n;
}
