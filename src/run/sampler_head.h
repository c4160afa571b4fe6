#ifndef RUN_SAMPLER_HEAD_H
#define RUN_SAMPLER_HEAD_H
/* The ids of a row in order of descending logit, ties by lower id, sorted only as far as somebody asks.
 *
 * A row has 154,856 ids and a sampler seldom looks past the first hundred. Ids are counted in bins by their distance
 * from the maximum; whole bins are then collected from the top and sorted, until there are enough. Equal logits share
 * a bin, so the result is exactly the head of a full sort, and a flat row costs one radix sort of everything.
 *
 * Owned by one sampler. No memory is taken after init. */
#include "base/alloc.h"

enum { SAMPLER_HEAD_BINS = 2048 };

struct sampler_head {
    struct alloc *alloc;
    uint64_t *entries, *spare; /* [n_max] order of the logit in the high half, id in the low one */
    uint32_t n_max;

    const float *row; /* [n], borrowed from start to the next start */
    uint32_t n;
    float max;
    uint32_t n_live;   /* ids above -inf */
    uint32_t n_sorted; /* entries[0 .. n_sorted) are in their final place */
    uint32_t next_bin; /* the first that is not sorted yet */
    uint32_t n_in_bin[SAMPLER_HEAD_BINS];
};

bool sampler_head_init(struct sampler_head *head, struct alloc *alloc, uint32_t n_max, struct err *err) MUST_CHECK;
void sampler_head_fini(struct sampler_head *head);

/* A new row without NaN or +inf, and its maximum. */
void sampler_head_start(struct sampler_head *head, const float *row, uint32_t n, float max);

/* The id at this place of the order; place < n_live. */
uint32_t sampler_head_at(struct sampler_head *head, uint32_t place);

#endif
