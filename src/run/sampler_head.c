#include "run/sampler_head.h"

#include "base/assert.h"
#include <math.h>
#include <string.h>

enum {
    FIRST_SORTED = 64, /* asked of the first sort; every later one asks for eight times what there is */
    GROWTH = 8,
    INSERTION_MAX = 48, /* above this many, counting digits is cheaper than shifting neighbours */
    DIGIT_BITS = 11,
    DIGITS = 3, /* of the 32 bits in the high half of an entry */
};

/* 64 bins per unit of logit: the first 32 units are resolved, and what is further down, whose weight is below 2e-14,
 * shares the last one. */
static const float bins_per_unit = 64;

bool sampler_head_init(struct sampler_head *head, struct alloc *alloc, uint32_t n_max, struct err *err)
{
    *head = (struct sampler_head){.alloc = alloc, .n_max = n_max};
    head->entries = alloc_get_array(alloc, n_max, sizeof *head->entries, err);
    if (!head->entries) goto fail;
    head->spare = alloc_get_array(alloc, n_max, sizeof *head->spare, err);
    if (!head->spare) goto fail;
    return true;
fail:
    sampler_head_fini(head);
    return false;
}

void sampler_head_fini(struct sampler_head *head)
{
    if (head->alloc) {
        alloc_put(head->alloc, head->entries);
        alloc_put(head->alloc, head->spare);
    }
    *head = (struct sampler_head){0};
}

/* Falls as the logit falls, and is equal for equal logits. */
static uint32_t bin_of(float max, float logit)
{
    float distance = (max - logit) * bins_per_unit;
    return distance < SAMPLER_HEAD_BINS - 1 ? (uint32_t)distance : SAMPLER_HEAD_BINS - 1;
}

void sampler_head_start(struct sampler_head *head, const float *row, uint32_t n, float max)
{
    ASSERT(n <= head->n_max);
    head->row = row;
    head->n = n;
    head->max = max;
    head->n_live = head->n_sorted = head->next_bin = 0;
    memset(head->n_in_bin, 0, sizeof head->n_in_bin);
    for (uint32_t id = 0; id < n; id++) {
        if (row[id] == -INFINITY) continue;
        head->n_in_bin[bin_of(max, row[id])]++;
        head->n_live++;
    }
}

/* Unsigned integers that rise as the float falls. Adding zero turns -0 into +0, which must tie. */
static uint32_t descending(float logit)
{
    float value = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static void sort_by_insertion(uint64_t *entries, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint64_t entry = entries[i];
        uint32_t at = i;
        for (; at > 0 && entries[at - 1] > entry; at--) entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

/* Stable by digits of the high half. Entries come in ascending order of id, so the low half needs no pass. */
static void sort_by_digits(uint64_t *entries, uint64_t *spare, uint32_t n)
{
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t place[1 << DIGIT_BITS] = {0};
        const int shift = 32 + digit * DIGIT_BITS;
        const uint64_t mask = (1 << DIGIT_BITS) - 1;
        for (uint32_t i = 0; i < n; i++) place[entries[i] >> shift & mask]++;
        for (uint32_t value = 0, sum = 0; value < 1 << DIGIT_BITS; value++) {
            uint32_t count = place[value];
            place[value] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < n; i++) spare[place[entries[i] >> shift & mask]++] = entries[i];
        memcpy(entries, spare, n * sizeof *entries);
    }
}

/* Collects and sorts the next bins that hold at least n_more ids, or all that are left. */
static void sort_more(struct sampler_head *head, uint32_t n_more)
{
    uint32_t first = head->next_bin, end = first, n = 0;
    while (end < SAMPLER_HEAD_BINS && n < n_more) n += head->n_in_bin[end++];

    uint64_t *fresh = head->entries + head->n_sorted;
    uint32_t n_fresh = 0;
    /* One compare rules out almost every id; a whole bin of slack makes up for the rounding of bin_of. */
    double lowest = end < SAMPLER_HEAD_BINS ? (double)head->max - (end + 1) / (double)bins_per_unit : -INFINITY;
    for (uint32_t id = 0; id < head->n; id++) {
        float logit = head->row[id];
        if ((double)logit < lowest) continue;
        uint32_t bin = bin_of(head->max, logit);
        if (bin >= end || bin < first || logit == -INFINITY) continue;
        fresh[n_fresh++] = (uint64_t)descending(logit) << 32 | id;
    }
    ASSERT(n_fresh == n);
    if (n <= INSERTION_MAX)
        sort_by_insertion(fresh, n);
    else
        sort_by_digits(fresh, head->spare, n);
    head->next_bin = end;
    head->n_sorted += n;
}

uint32_t sampler_head_at(struct sampler_head *head, uint32_t place)
{
    ASSERT(place < head->n_live);
    while (place >= head->n_sorted) sort_more(head, head->n_sorted ? head->n_sorted * (GROWTH - 1) : FIRST_SORTED);
    return (uint32_t)head->entries[place];
}
