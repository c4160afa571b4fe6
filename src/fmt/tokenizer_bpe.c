#include "base/assert.h"
#include "fmt/tokenizer_int.h"
#include <string.h>

/* The pairs of a short piece are few: looking at all of their ranks is faster than keeping them in order. */
uint32_t bpe_small(const struct tokenizer *tokenizer, const char *piece, uint32_t n, uint32_t *ids)
{
    uint32_t ranks[BPE_SMALL_BYTES_MAX]; /* of the pair that begins at each symbol; the last begins none */
    uint32_t products[BPE_SMALL_BYTES_MAX];
    ASSERT(n > 0);
    ASSERT(n <= BPE_SMALL_BYTES_MAX);
    for (uint32_t i = 0; i < n; i++) ids[i] = tokenizer->byte_ids[(unsigned char)piece[i]];
    for (uint32_t i = 0; i + 1 < n; i++) {
        const struct merge_slot *merge = merge_table_find(&tokenizer->merges, ids[i], ids[i + 1]);
        ranks[i] = merge ? merge->rank : NO_RANK;
        products[i] = merge ? merge->product : NO_ID;
    }
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) break;
        ids[best] = products[best];
        uint32_t moved = n - best - 2; /* symbols behind the pair */
        memmove(ids + best + 1, ids + best + 2, moved * sizeof *ids);
        memmove(ranks + best + 1, ranks + best + 2, moved * sizeof *ranks);
        memmove(products + best + 1, products + best + 2, moved * sizeof *products);
        n--;
        for (uint32_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const struct merge_slot *merge = merge_table_find(&tokenizer->merges, ids[i], ids[i + 1]);
            ranks[i] = merge ? merge->rank : NO_RANK;
            products[i] = merge ? merge->product : NO_ID;
        }
    }
    return n;
}

/* A heap of candidate merges, lowest first. A candidate is its rank above the position of its left symbol, so that the
 * order of the numbers is the order of merging. A merge removes one and adds at most two, so 2 * room always fit. */
struct heap {
    uint64_t *items;
    uint32_t n;
};

static void heap_push(struct heap *heap, uint64_t item)
{
    uint32_t at = heap->n++;
    while (at > 0 && item < heap->items[(at - 1) / 2]) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = item;
}

static uint64_t heap_pop(struct heap *heap)
{
    uint64_t top = heap->items[0], item = heap->items[--heap->n];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->n) break;
        if (child + 1 < heap->n && heap->items[child + 1] < heap->items[child]) child++;
        if (item <= heap->items[child]) break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = item;
    return top;
}

static bool scratch_fit(struct bpe_scratch *scratch, uint32_t n, struct err *err)
{
    if (n <= scratch->room) return true;
    bpe_scratch_fini(scratch);
    scratch->symbols = alloc_get_array(scratch->alloc, n, sizeof *scratch->symbols, err);
    scratch->heap = alloc_get_array(scratch->alloc, 2 * (uint64_t)n, sizeof *scratch->heap, err);
    if (!scratch->symbols || !scratch->heap) {
        bpe_scratch_fini(scratch);
        return false;
    }
    scratch->room = n;
    return true;
}

void bpe_scratch_fini(struct bpe_scratch *scratch)
{
    alloc_put(scratch->alloc, scratch->symbols);
    alloc_put(scratch->alloc, scratch->heap);
    *scratch = (struct bpe_scratch){.alloc = scratch->alloc};
}

static void consider(const struct tokenizer *tokenizer, const struct bpe_symbol *symbols, uint32_t at,
                     struct heap *heap)
{
    uint32_t next = symbols[at].next;
    if (next == NO_ID) return;
    const struct merge_slot *merge = merge_table_find(&tokenizer->merges, symbols[at].id, symbols[next].id);
    if (merge) heap_push(heap, (uint64_t)merge->rank << 32 | at);
}

bool bpe_large(const struct tokenizer *tokenizer, struct bpe_scratch *scratch, const char *piece, uint32_t n,
               struct err *err)
{
    ASSERT(n > 0);
    if (!scratch_fit(scratch, n, err)) return false;
    struct bpe_symbol *symbols = scratch->symbols;
    struct heap heap = {.items = scratch->heap};
    for (uint32_t i = 0; i < n; i++)
        symbols[i] = (struct bpe_symbol){.id = tokenizer->byte_ids[(unsigned char)piece[i]],
                                         .before = i ? i - 1 : NO_ID,
                                         .next = i + 1 < n ? i + 1 : NO_ID};
    for (uint32_t i = 0; i < n; i++) consider(tokenizer, symbols, i, &heap);

    while (heap.n > 0) {
        uint64_t item = heap_pop(&heap);
        uint32_t rank = (uint32_t)(item >> 32), at = (uint32_t)item, next = symbols[at].next;
        if (symbols[at].id == NO_ID || next == NO_ID) continue;
        /* A candidate is stale when one of its symbols has merged since. Ranks tell: a rank belongs to one pair, and a
         * pair that came together here again would need a border that has gone, but borders never come back. */
        const struct merge_slot *merge = merge_table_find(&tokenizer->merges, symbols[at].id, symbols[next].id);
        if (!merge || merge->rank != rank) continue;
        symbols[at].id = merge->product;
        symbols[next].id = NO_ID;
        symbols[at].next = symbols[next].next;
        if (symbols[at].next != NO_ID) symbols[symbols[at].next].before = at;
        consider(tokenizer, symbols, at, &heap);
        if (symbols[at].before != NO_ID) consider(tokenizer, symbols, symbols[at].before, &heap);
    }
    return true;
}
