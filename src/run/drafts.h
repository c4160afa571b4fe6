#ifndef RUN_DRAFTS_H
#define RUN_DRAFTS_H
/* Where drafts come from, and how many: ids that are proposed and verified in one pass (speculation). Drafts never
 * change an answer. */
#include "fmt/config.h"

enum draft_kind {
    DRAFT_OFF,
    DRAFT_NGRAM, /* from the sequence itself, see run/prompt_lookup.h */
    DRAFT_MTP,   /* by the model's own MTP layer */
};

enum {
    DRAFTS_MTP_MAX = 7,      /* that the MTP layer may chain */
    DRAFTS_PENDING_MAX = 32, /* hidden states of one sequence that wait until the MTP layer takes them in */
};

struct draft_choice {
    enum draft_kind kind;
    bool is_wish;    /* MTP where the model has the layer, else none; without: a model that lacks it is refused */
    bool is_weighed; /* each round takes as many as pay, up to n_max; without: always n_max, where there are as many */
    uint32_t n_max;  /* for one sequence and pass */
    uint32_t ngram_min, ngram_max;
};

/* What drafting takes for one sequence besides its state and the rows of a pass: the plan sets as much aside. */
uint64_t drafts_bytes(const struct draft_choice *choice, const struct config *config, uint32_t context_tokens);

#endif
