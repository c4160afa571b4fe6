#include "run/drafts.h"

#include "run/prompt_lookup.h"

uint64_t drafts_bytes(const struct draft_choice *choice, const struct config *config, uint32_t context_tokens)
{
    switch (choice->kind) {
    case DRAFT_OFF: break;
    case DRAFT_NGRAM:
        return prompt_lookup_bytes((struct prompt_lookup_limits){.n_min = choice->ngram_min,
                                                                 .n_max = choice->ngram_max,
                                                                 .n_draft = choice->n_max},
                                   context_tokens + choice->n_max);
    case DRAFT_MTP: return (uint64_t)DRAFTS_PENDING_MAX * config->hidden * sizeof(float);
    }
    return 0;
}
