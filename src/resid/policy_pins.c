/* Experts pinned from history stay; the others turn over by recency. */
#include "resid/policy_int.h"

enum { FREE_TO_GO, PINNED };

static size_t victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    (void)incoming;
    size_t oldest = policy_oldest(p, keys, n, FREE_TO_GO);
    return oldest != POLICY_NOBODY ? oldest : policy_rarest(p, keys, n, PINNED);
}

const struct policy_ops policy_pins = {
    .name = "pins", .summary = "pinned experts stay, the others are least recently used", .choose_victim = victim};
