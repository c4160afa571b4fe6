#include "resid/guard.h"

#include "base/assert.h"
#include "base/checked.h"

int32_t guard_step(struct guard *g, struct slots *slots, uint64_t held_bytes, int64_t now_ns)
{
    ASSERT(g->slot_bytes > 0);
    if (held_bytes > g->budget_bytes) {
        uint64_t n = div_up(held_bytes - g->budget_bytes, g->slot_bytes);
        uint32_t n_gone = slots_shrink(slots, n < INT32_MAX ? (uint32_t)n : INT32_MAX);
        g->calm_since_ns = now_ns;
        g->n_shrinks += n_gone > 0;
        return -(int32_t)n_gone;
    }
    /* Room for two, so that the one that comes back does not have to go again at once. */
    bool has_room = g->budget_bytes - held_bytes >= 2 * g->slot_bytes;
    if (slots_stats(slots)->n_retired == 0 || !has_room || now_ns - g->calm_since_ns < g->quiet_ns) return 0;
    g->calm_since_ns = now_ns;
    g->n_regrowths++;
    return (int32_t)slots_regrow(slots, 1);
}
