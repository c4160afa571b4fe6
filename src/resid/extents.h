#ifndef RESID_EXTENTS_H
#define RESID_EXTENTS_H
/* Where a routed expert is on disk, where its bytes land in a slot, and how large slots must be.
 *
 * An expert's three payloads and three scale arrays are sorted by place; what is adjacent (or shares a page) is one run
 * and one read, from the page that it begins in to the page that it ends in. Normally there are two runs, payloads and
 * scales; an expert that straddles shards has more. Runs lie one behind the other in the slot, each from a page
 * boundary on, so bytes go from the device straight to where kernels read them.
 *
 * Pure functions of the inventory. */
#include "fmt/inventory.h"

enum {
    EXTENT_PAGE = 4096,
    EXTENT_RUNS_MAX = 2 * EXPERT_PARTS,
    SLOT_CLASSES_MAX = 8,
};

struct extent_run {
    uint32_t shard;
    uint64_t offset, bytes; /* whole pages; the last one may pass the end of the file */
    uint64_t bytes_needed;  /* up to the last byte of a tensor */
    uint64_t at;            /* in the slot */
};

/* A tensor to be placed, and where to write its place. */
struct extent_item {
    const struct tensor *tensor;
    uint64_t *at;
};

/* Sorts the items, forms runs [n] and fills every item's place. Returns how many runs there are. */
uint32_t extents_place(struct extent_item *items, uint32_t n, struct extent_run *runs);

struct extents {
    struct extent_run runs[EXTENT_RUNS_MAX];
    uint32_t n_runs;
    uint64_t payload_at[EXPERT_PARTS], scales_at[EXPERT_PARTS]; /* in the slot */
    uint64_t weight_bytes;                                      /* payloads and scales */
    uint64_t slot_bytes;                                        /* all runs */
};

/* ERR_DATA, with the tensor's name, when the scales cannot be used in place. */
bool extents_find(struct extents *extents, const struct weight_source parts[EXPERT_PARTS], struct err *err) MUST_CHECK;

/* Experts of nearly the same size share a class of slots, so that a few large ones (an int8 MTP layer in an int4 model)
 * do not make every slot large. An expert goes into the first class that is large enough. */
struct slot_class {
    uint64_t slot_bytes;   /* whole pages */
    uint64_t weight_bytes; /* of all its experts together */
    uint32_t n_experts;
    uint32_t n_runs_max;
};

struct slot_classes {
    struct slot_class of[SLOT_CLASSES_MAX]; /* by size, ascending */
    uint32_t n;
};

/* Looks at every expert of the inventory; with_mtp says whether the MTP layer's count. */
bool slot_classes_find(struct slot_classes *classes, struct alloc *alloc, const struct inventory *inventory,
                       bool with_mtp, struct err *err) MUST_CHECK;
uint32_t slot_class_of(const struct slot_classes *classes, uint64_t slot_bytes);

/* Shares out `bytes` so that each class gets slots in proportion to its experts, at least one each, and never more than
 * it has experts. Returns the bytes used; 0 when not even one slot per class fits. */
uint64_t slot_classes_share(const struct slot_classes *classes, uint64_t bytes, uint32_t n_slots[SLOT_CLASSES_MAX]);

#endif
