/* Segmented LRU behind a small window. Newcomers start in the window and move on to probation only in place of an
 * expert that was asked for less often, so that one long prompt does not wash out the rest; a second touch protects. */
#include "resid/policy_int.h"

enum { WINDOW, PROBATION, PROTECTED };

static uint32_t window_max(const struct policy *p)
{
    return 1 + p->shape.n_slots / 16;
}
static uint32_t protected_max(const struct policy *p)
{
    return p->shape.n_slots / 5 * 4;
}

static size_t victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    (void)incoming;
    size_t newest_guest = policy_oldest(p, keys, n, WINDOW), settled = policy_oldest(p, keys, n, PROBATION);
    if (settled == POLICY_NOBODY) settled = policy_oldest(p, keys, n, PROTECTED);
    if (newest_guest == POLICY_NOBODY) return settled;
    if (settled == POLICY_NOBODY) return newest_guest;
    if (p->in_group[WINDOW] < window_max(p)) return settled;
    if (p->keys[keys[newest_guest]].count <= p->keys[keys[settled]].count) return newest_guest;
    policy_regroup(p, keys[newest_guest], PROBATION);
    return settled;
}

static void on_touch(struct policy *p, uint32_t key)
{
    struct policy_key *k = &p->keys[key];
    if (!k->is_admitted || k->group != PROBATION) return;
    if (p->in_group[PROTECTED] < protected_max(p)) policy_regroup(p, key, PROTECTED);
}

static void on_admit(struct policy *p, uint32_t key)
{
    uint32_t settled = p->in_group[PROBATION] + p->in_group[PROTECTED];
    policy_regroup(p, key, settled + window_max(p) < p->shape.n_slots ? PROBATION : WINDOW);
}

/* Protection is renewed by use: what was not touched while all of memory turned over goes back to probation. */
static void on_turn(struct policy *p)
{
    uint32_t n_keys = p->shape.n_layers * p->shape.n_experts;
    for (uint32_t key = 0; key < n_keys; key++) {
        struct policy_key *k = &p->keys[key];
        if (k->is_admitted && k->group == PROTECTED && k->touched + 4 * (uint64_t)p->shape.n_slots < p->now)
            policy_regroup(p, key, PROBATION);
    }
}

const struct policy_ops policy_slru = {.name = "slru",
                                       .summary = "segmented LRU with a frequency filter at the door",
                                       .choose_victim = victim,
                                       .on_touch = on_touch,
                                       .on_admit = on_admit,
                                       .on_turn = on_turn};
