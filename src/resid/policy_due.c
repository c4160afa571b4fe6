/* Gives up the expert that is due last.
 *
 * Layers come round in a circle, so an expert can be wanted next when its layer is: d layers from here, and after that
 * once per pass. With probability p per pass, it is due in d + layers * (1/p - 1) layers on average. p is how often
 * this expert was asked for lately, pulled towards the mean while little is known, times how likely experts of its age
 * (passes since it was last asked for) are to come back, compared with the mean: learnt from all experts together.
 * Recency alone fails when memory holds less than one pass; frequency alone is blind to what has just been used. */
#include "resid/policy_int.h"

#define PRIOR (8 * COUNT_ONE) /* passes for which the mean speaks as loudly as what was counted */

static double mean_rate(const struct policy *p)
{
    double keys = (double)p->n_layers_used * p->shape.n_experts;
    return keys > 0 && p->exposure > 0 ? (double)p->total / keys / (double)p->exposure : 1;
}

/* How much likelier than the mean an expert is to be wanted at this age. */
static void learn_ages(struct policy *p)
{
    double mean = mean_rate(p), left = 0;
    for (int a = POLICY_AGES; a-- > 1;) {
        left += p->ages[a];
        double rate = (p->ages[a] + 8 * mean) / (left + 8);
        p->age_factor[a] = (float)(rate / mean);
    }
    p->age_factor[0] = p->age_factor[1];
}

static double due(const struct policy *p, uint32_t key, uint32_t here)
{
    const struct policy_key *k = &p->keys[key];
    uint32_t layer = key / p->shape.n_experts, n_layers = p->shape.n_layers;
    uint32_t distance = layer > here ? layer - here : layer + n_layers - here;
    uint32_t age = p->turn - k->turn + (layer > here ? 0 : 1);
    double mean = mean_rate(p);
    double rate = ((double)k->count + mean * PRIOR) / ((double)p->exposure + PRIOR);
    rate *= p->age_factor[age < POLICY_AGES ? age : POLICY_AGES - 1];
    if (rate > 0.99) rate = 0.99;
    return distance + n_layers * (1 / rate - 1);
}

static size_t victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    uint32_t here = incoming / p->shape.n_experts;
    size_t last = 0;
    double last_due = -1;
    for (size_t i = 0; i < n; i++) {
        double when = due(p, keys[i], here);
        if (when <= last_due) continue;
        last_due = when;
        last = i;
    }
    return last;
}

const struct policy_ops policy_due = {.name = "due",
                                      .summary = "the one that is expected to be wanted last",
                                      .choose_victim = victim,
                                      .on_turn = learn_ages};
