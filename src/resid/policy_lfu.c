/* Least frequently used; counters fade, so that yesterday's favourites leave. */
#include "resid/policy_int.h"

static size_t victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    (void)incoming;
    return policy_rarest(p, keys, n, POLICY_ANY_GROUP);
}

const struct policy_ops policy_lfu = {
    .name = "lfu", .summary = "least frequently used, with decay", .choose_victim = victim};
