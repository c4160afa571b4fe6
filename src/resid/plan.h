#ifndef RESID_PLAN_H
#define RESID_PLAN_H
/* The memory plan: what everything costs, line by line, and how many expert slots remain.
 *
 * A pure function of the model's headers, the request and facts about the machine: the same for `fit`, `serve`,
 * `doctor` and the tests. Nothing is rounded in our favour. A plan that cannot make progress is refused before anything
 * large is opened, and says which option to change to what. */
#include "model/kv_codec.h"
#include "plat/memory_facts.h"
#include "resid/extents.h"
#include "resid/spine.h"

#define PLAN_AUTO UINT64_MAX

enum { PLAN_CHUNK_MAX = 4096 }; /* rows of a prompt in one pass, at most */

struct plan_request {
    uint64_t budget_bytes;            /* PLAN_AUTO: what the machine has, less a reserve */
    const struct memory_facts *facts; /* NULL: plan for another machine; then the budget must be given */
    uint32_t context_tokens;          /* of one sequence */
    uint32_t n_sequences;             /* decoded together */
    uint32_t n_drafts;                /* rows that one sequence may add to a step */
    uint64_t drafting_bytes;          /* of whatever makes the drafts of one sequence, besides state and rows */
    enum kv_storage kv_storage;
    uint32_t prefill_chunk; /* rows of a pass; 0: as many as memory allows sensibly */
    unsigned n_threads;
    struct spine_choice spine;
    uint64_t prompt_cache_bytes; /* PLAN_AUTO: a little */
    uint64_t tokenizer_bytes;    /* PLAN_AUTO: an estimate from the vocabulary */
    uint32_t requests_max;       /* of the reader */
    uint32_t embedding_rows_kept;
    uint32_t slots_max;        /* 0: as many as fit */
    uint64_t disk_bytes_per_s; /* 0: no prediction */
};

enum { PLAN_ITEMS_MAX = 24 };

struct plan_item {
    const char *name;
    uint64_t bytes;
    char derivation[200];
};

struct plan {
    struct plan_item items[PLAN_ITEMS_MAX]; /* the last one is the slots */
    uint32_t n_items;
    uint64_t budget_bytes;
    char budget_source[240];
    uint64_t used_bytes;                     /* all items */
    uint32_t prefill_chunk;                  /* rows of a prompt in one pass; decode rows may ride along */
    uint32_t pass_rows, logit_rows;          /* for model/forward.h: of one pass, and of these with logits */
    uint32_t kv_blocks, prompt_cache_blocks; /* of state: all sequences, and on top of them the prompt cache */
    struct slot_classes classes;
    uint32_t n_slots[SLOT_CLASSES_MAX], n_slots_total;
    bool is_thin; /* fewer slots than one token's experts: misses of a layer cannot all be under way together */

    /* A token's expert bytes without any cache, the part found in memory, and tokens per second if the disk is all that
     * counts; low and high. Zero without a disk rate. */
    uint64_t token_bytes;
    double hits_low, hits_high, rate_low, rate_high;
    char rate_derivation[240];
};

/* On ERR_FIT the plan holds all lines except slots, for showing. Other errors leave nothing to show. */
bool plan_make(struct plan *plan, struct alloc *alloc, const struct inventory *inventory,
               const struct plan_request *request, struct err *err) MUST_CHECK;

/* The budget below which a step of an opened plan could not go on: everything but the slots, and one of each size. */
uint64_t plan_least_bytes(const struct plan *plan);

#endif
