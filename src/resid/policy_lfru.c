/* A hot set chosen by frequency and a guest set that turns over by recency. A guest takes the place of a hot expert
 * only when it was asked for a quarter and four times more often, and only a few do so per pass: placement must not
 * swing. */
#include "resid/policy_int.h"

enum { GUEST, HOT };
enum { SWAPS_PER_TURN = 4, MARGIN = 4 * COUNT_ONE };

static uint32_t hot_max(const struct policy *p)
{
    return p->shape.n_slots - (p->shape.n_slots + 3) / 4;
}

static size_t victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    (void)incoming;
    size_t guest = policy_oldest(p, keys, n, GUEST);
    return guest != POLICY_NOBODY ? guest : policy_rarest(p, keys, n, HOT);
}

static void on_admit(struct policy *p, uint32_t key)
{
    policy_regroup(p, key, p->in_group[HOT] < hot_max(p) ? HOT : GUEST);
}

static bool swap_one(struct policy *p)
{
    uint32_t n_keys = p->shape.n_layers * p->shape.n_experts, best = UINT32_MAX, worst = UINT32_MAX;
    for (uint32_t key = 0; key < n_keys; key++) {
        const struct policy_key *k = &p->keys[key];
        if (!k->is_admitted) continue;
        if (k->group == GUEST && (best == UINT32_MAX || k->count > p->keys[best].count)) best = key;
        if (k->group == HOT && (worst == UINT32_MAX || k->count < p->keys[worst].count)) worst = key;
    }
    if (best == UINT32_MAX || worst == UINT32_MAX) return false;
    uint64_t bar = p->keys[worst].count;
    bar += bar / 4 + MARGIN;
    if (p->keys[best].count <= bar) return false;
    policy_regroup(p, best, HOT);
    policy_regroup(p, worst, GUEST);
    return true;
}

static void on_turn(struct policy *p)
{
    for (int i = 0; i < SWAPS_PER_TURN && swap_one(p); i++) continue;
}

const struct policy_ops policy_lfru = {.name = "lfru",
                                       .summary = "frequent experts stay, recent ones share a quarter of the slots",
                                       .choose_victim = victim,
                                       .on_admit = on_admit,
                                       .on_turn = on_turn};
