#ifndef RUN_HISTORY_H
#define RUN_HISTORY_H
/* The ids of one sequence: its prompt, then what was generated.
 *
 * Penalties, the draw counter and prompt lookup all read this one stream. A draft comes in when it turns out to be what
 * is drawn, never before. To push costs nothing, because nothing is derived here: the sampler counts the ids of a
 * window when a penalty asks for it, which is small next to one look at the logits.
 *
 * Owned by one thread. Memory is taken once, in history_reserve (libedit, which the program links, has taken the name
 * history_init). history_fini is safe twice and on a zeroed struct. */
#include "base/alloc.h"

struct history {
    struct alloc *alloc;
    uint32_t *ids; /* [n], room for n_max */
    uint32_t n, n_prompt, n_max;
};

/* Room for n_max ids: the context, and the drafts of one round. */
bool history_reserve(struct history *history, struct alloc *alloc, uint32_t n_max, struct err *err) MUST_CHECK;
void history_fini(struct history *history);

/* Starts over with this prompt. The caller has checked that it fits. */
void history_start(struct history *history, const uint32_t *prompt, uint32_t n);

void history_push(struct history *history, uint32_t id);

/* Ids generated so far, which is the index t of the next one. */
uint32_t history_generated(const struct history *history);

#endif
