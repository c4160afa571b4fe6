/* Least recently used, over everything or layer by layer. */
#include "resid/policy_int.h"

static size_t global_victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    (void)incoming;
    return policy_oldest(p, keys, n, POLICY_ANY_GROUP);
}

const struct policy_ops policy_lru = {
    .name = "lru", .summary = "least recently used of all layers", .choose_victim = global_victim};

/* The oldest key among layers that hold more than their share, or of the incoming key's own layer once it has its. */
static size_t layer_victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    uint32_t layer = incoming / p->shape.n_experts,
             share = p->shape.n_slots / (p->n_layers_used ? p->n_layers_used : 1);
    bool stays_home = p->in_layer[layer] > 0 && p->in_layer[layer] >= share;
    size_t oldest = POLICY_NOBODY;
    for (size_t i = 0; i < n; i++) {
        uint32_t of = keys[i] / p->shape.n_experts;
        if (stays_home ? of != layer : p->in_layer[of] <= share) continue;
        if (oldest == POLICY_NOBODY || p->keys[keys[i]].touched < p->keys[keys[oldest]].touched) oldest = i;
    }
    return oldest != POLICY_NOBODY ? oldest : policy_oldest(p, keys, n, POLICY_ANY_GROUP);
}

const struct policy_ops policy_layer_lru = {.name = "layer-lru",
                                            .summary = "least recently used, every layer with the same share",
                                            .choose_victim = layer_victim};
