#ifndef RESID_REGRET_H
#define RESID_REGRET_H
/* What perfect foresight would have saved, over the last wants of a running engine: the figure that says whether
 * another policy could help, or only more memory. Keeping it costs a copy of each want's keys; computing it, a few
 * milliseconds. Owned by the engine thread. */
#include "resid/replay.h"

struct regret {
    struct wants window; /* room for all of it from the start */
    uint32_t *misses;    /* [wants] of the window, as they happened */
};

struct regret_figures {
    uint64_t n_wants, n_wanted, n_misses;
    /* The fewest misses that any policy could have had, whatever was in memory when the window began. */
    uint64_t n_misses_best;
};

bool regret_init(struct regret *regret, struct alloc *alloc, uint32_t n_layers, uint32_t n_experts,
                 struct err *err) MUST_CHECK;
void regret_fini(struct regret *regret); /* safe twice and on a zeroed one */

/* keys [n] of one want, n > 0, of which n_misses were not in memory. The older half of a full window goes. */
void regret_add(struct regret *regret, const uint32_t *keys, uint32_t n, uint32_t n_misses);

bool regret_now(const struct regret *regret, struct alloc *alloc, uint32_t n_slots, struct regret_figures *figures,
                struct err *err) MUST_CHECK;

#endif
