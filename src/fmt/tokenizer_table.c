#include "base/assert.h"
#include "fmt/tokenizer_int.h"
#include <string.h>

/* Entries of an honest file lie within some tens of slots of where their hash says. */
#define PROBES_MAX 1024u

static inline uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static inline uint64_t load8(const char *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint64_t load4(const char *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* The last step reads up to eight bytes that may overlap what was read before: no loop over single bytes. */
uint64_t vocab_hash(const char *bytes, size_t n)
{
    uint64_t hash = mix(0, n + 1), last = 0;
    size_t at = 0;
    for (; n - at > 8; at += 8) hash = mix(hash, load8(bytes + at));
    if (n >= 8)
        last = load8(bytes + n - 8);
    else if (n >= 4)
        last = load4(bytes) << 32 | load4(bytes + n - 4);
    else if (n > 0)
        last = (uint64_t)(unsigned char)bytes[0] << 16 | (uint64_t)(unsigned char)bytes[n / 2] << 8 |
               (unsigned char)bytes[n - 1];
    return mix(mix(hash, last), last);
}

/* The mask of a table that is at most half full with n entries. */
static uint32_t mask_for(uint32_t n)
{
    uint32_t size = 16;
    ASSERT(n <= 1u << 28);
    while (size < 2 * n) size *= 2;
    return size - 1;
}

static bool crowded(struct err *err)
{
    return err_set(err, ERR_DATA, "over %u entries fall on one place of the hash table: this file was made for that",
                   PROBES_MAX);
}

bool vocab_table_init(struct vocab_table *table, struct arena *arena, uint32_t n, struct err *err)
{
    *table = (struct vocab_table){.mask = mask_for(n)};
    table->slots = arena_get_array(arena, (uint64_t)table->mask + 1, sizeof *table->slots, err);
    if (!table->slots) return false;
    for (uint32_t i = 0; i <= table->mask; i++) table->slots[i].id = NO_ID;
    return true;
}

bool vocab_table_add(struct vocab_table *table, uint32_t id, struct err *err)
{
    const struct span *span = &table->spans[id];
    uint64_t hash = vocab_hash(table->bytes + span->offset, span->bytes);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        struct vocab_slot *slot = &table->slots[(hash + probe) & table->mask];
        if (slot->id != NO_ID) continue;
        *slot = (struct vocab_slot){.tag = (uint32_t)(hash >> 32), .id = id};
        return true;
    }
    return crowded(err);
}

uint32_t vocab_table_find(const struct vocab_table *table, uint64_t hash, const char *bytes, size_t n)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        const struct vocab_slot *slot = &table->slots[(hash + probe) & table->mask];
        if (slot->id == NO_ID) return NO_ID;
        if (slot->tag != tag) continue;
        const struct span *span = &table->spans[slot->id];
        if (span->bytes == n && memcmp(table->bytes + span->offset, bytes, n) == 0) return slot->id;
    }
    return NO_ID;
}

bool merge_table_init(struct merge_table *table, struct arena *arena, uint32_t n, struct err *err)
{
    *table = (struct merge_table){.mask = mask_for(n)};
    table->slots = arena_get_array(arena, (uint64_t)table->mask + 1, sizeof *table->slots, err);
    if (!table->slots) return false;
    for (uint32_t i = 0; i <= table->mask; i++) table->slots[i].rank = NO_RANK;
    return true;
}

static inline uint64_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t hash = mix(0, (uint64_t)left << 32 | right);
    return hash ^ hash >> 17;
}

bool merge_table_add(struct merge_table *table, struct merge_slot merge, struct err *err)
{
    uint64_t hash = pair_hash(merge.left, merge.right);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        struct merge_slot *slot = &table->slots[(hash + probe) & table->mask];
        if (slot->rank != NO_RANK && (slot->left != merge.left || slot->right != merge.right)) continue;
        *slot = merge;
        return true;
    }
    return crowded(err);
}

const struct merge_slot *merge_table_find(const struct merge_table *table, uint32_t left, uint32_t right)
{
    uint64_t hash = pair_hash(left, right);
    for (uint32_t probe = 0; probe < PROBES_MAX; probe++) {
        const struct merge_slot *slot = &table->slots[(hash + probe) & table->mask];
        if (slot->rank == NO_RANK) return NULL;
        if (slot->left == left && slot->right == right) return slot;
    }
    return NULL;
}
