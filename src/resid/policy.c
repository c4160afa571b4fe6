#include "resid/policy_int.h"

#include "base/assert.h"
#include <stdio.h>
#include <string.h>

static const struct policy_ops *const all[] = {&policy_lru,  &policy_layer_lru, &policy_lfu, &policy_lfru,
                                               &policy_slru, &policy_due,       &policy_pins};
enum { N_POLICIES = sizeof all / sizeof *all };

size_t policy_count(void)
{
    return N_POLICIES;
}

struct policy_kind policy_kind_at(size_t i)
{
    ASSERT(i < N_POLICIES);
    return (struct policy_kind){all[i]->name, all[i]->summary};
}

static uint32_t n_keys(const struct policy *p)
{
    return p->shape.n_layers * p->shape.n_experts;
}

static const struct policy_ops *find(const char *name)
{
    for (size_t i = 0; i < N_POLICIES; i++)
        if (strcmp(all[i]->name, name) == 0) return all[i];
    return NULL;
}

static bool refuse(const char *name, struct err *err)
{
    char known[200] = "";
    for (size_t i = 0; i < N_POLICIES; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", all[i]->name);
    }
    return err_set(err, ERR_USER, "there is no policy \"%s\"; known are %s", name, known);
}

bool policy_new(struct policy **out, struct alloc *alloc, const char *name, const struct policy_shape *shape,
                struct err *err)
{
    const struct policy_ops *ops = find(name);
    if (!ops) return refuse(name, err);
    ASSERT(shape->n_slots > 0);
    struct policy *p = alloc_get(alloc, sizeof *p, err);
    if (!p) return false;
    *p = (struct policy){.ops = ops, .alloc = alloc, .shape = *shape};
    p->keys = alloc_get_array(alloc, n_keys(p), sizeof *p->keys, err);
    if (!p->keys) goto fail;
    p->in_layer = alloc_get_array(alloc, 2 * (uint64_t)shape->n_layers, sizeof *p->in_layer, err);
    if (!p->in_layer) goto fail;
    p->layer_was_used = p->in_layer + shape->n_layers;
    *out = p;
    return true;
fail:
    policy_free(p);
    return false;
}

void policy_free(struct policy *p)
{
    if (!p) return;
    alloc_put(p->alloc, p->in_layer);
    alloc_put(p->alloc, p->keys);
    alloc_put(p->alloc, p);
}

const char *policy_name(const struct policy *p)
{
    return p->ops->name;
}

/* Old popularity fades: all counters are halved together, which keeps their order. */
static void fade(struct policy *p)
{
    for (uint32_t key = 0; key < n_keys(p); key++) p->keys[key].count /= 2;
    for (int a = 0; a < POLICY_AGES; a++) p->ages[a] /= 2;
    p->total /= 2;
    p->exposure /= 2;
}

void policy_on_touch(struct policy *p, uint32_t key)
{
    ASSERT(key < n_keys(p));
    struct policy_key *k = &p->keys[key];
    uint32_t layer = key / p->shape.n_experts;
    uint32_t age = p->turn - k->turn;
    if (k->touched > 0) p->ages[age < POLICY_AGES ? age : POLICY_AGES - 1]++;
    k->turn = p->turn;
    k->touched = ++p->now;
    if (k->count < UINT32_MAX - COUNT_ONE) k->count += COUNT_ONE;
    p->total += COUNT_ONE;
    p->n_layers_used += !p->layer_was_used[layer];
    p->layer_was_used[layer] = 1;
    if (p->now % (POLICY_HALF_LIFE * (uint64_t)n_keys(p)) == 0) fade(p);
    if (p->ops->on_touch) p->ops->on_touch(p, key);
}

void policy_on_admit(struct policy *p, uint32_t key)
{
    struct policy_key *k = &p->keys[key];
    ASSERT(!k->is_admitted);
    k->is_admitted = true;
    p->in_layer[key / p->shape.n_experts]++;
    p->in_group[k->group]++;
    if (p->ops->on_admit) p->ops->on_admit(p, key);
}

void policy_on_evict(struct policy *p, uint32_t key)
{
    struct policy_key *k = &p->keys[key];
    ASSERT(k->is_admitted);
    k->is_admitted = false;
    p->in_layer[key / p->shape.n_experts]--;
    p->in_group[k->group]--;
}

void policy_regroup(struct policy *p, uint32_t key, uint8_t group)
{
    struct policy_key *k = &p->keys[key];
    ASSERT(group < POLICY_GROUPS);
    if (k->is_admitted) {
        p->in_group[k->group]--;
        p->in_group[group]++;
    }
    k->group = group;
}

void policy_on_turn(struct policy *p)
{
    p->turn++;
    p->exposure += COUNT_ONE;
    if (p->ops->on_turn) p->ops->on_turn(p);
}

size_t policy_choose_victim(struct policy *p, const uint32_t *keys, size_t n, uint32_t incoming)
{
    ASSERT(n > 0);
    size_t victim = p->ops->choose_victim(p, keys, n, incoming);
    ASSERT(victim < n);
    ASSERT(p->keys[keys[victim]].is_admitted);
    return victim;
}

bool policy_prefers(const struct policy *p, uint32_t incoming, uint32_t victim)
{
    /* What is hinted at is wanted in most cases; a victim that is wanted in fewer than half of all passes gives way. */
    return p->keys[incoming].count > p->keys[victim].count || 2 * (uint64_t)p->keys[victim].count < p->exposure;
}

void policy_seed(struct policy *p, uint32_t key, uint32_t count)
{
    ASSERT(key < n_keys(p));
    p->total -= p->keys[key].count;
    p->keys[key].count = count < UINT32_MAX / COUNT_ONE ? count * COUNT_ONE : UINT32_MAX;
    p->total += p->keys[key].count;
}

void policy_seed_passes(struct policy *p, uint32_t n)
{
    p->exposure = (uint64_t)n * COUNT_ONE;
    p->n_layers_used = 0;
    for (uint32_t key = 0; key < n_keys(p); key++) {
        uint32_t *was_used = &p->layer_was_used[key / p->shape.n_experts];
        if (p->keys[key].count > 0) *was_used = 1;
    }
    for (uint32_t layer = 0; layer < p->shape.n_layers; layer++) p->n_layers_used += p->layer_was_used[layer];
}

uint32_t policy_passes(const struct policy *p)
{
    return (uint32_t)(p->exposure / COUNT_ONE);
}

uint32_t policy_touches(const struct policy *p, uint32_t key)
{
    ASSERT(key < n_keys(p));
    return p->keys[key].count / COUNT_ONE;
}

void policy_forget(struct policy *p)
{
    for (uint32_t key = 0; key < n_keys(p); key++) {
        struct policy_key *k = &p->keys[key];
        *k = (struct policy_key){.group = k->group, .is_admitted = k->is_admitted};
    }
    memset(p->layer_was_used, 0, p->shape.n_layers * sizeof *p->layer_was_used);
    memset(p->ages, 0, sizeof p->ages);
    p->n_layers_used = p->turn = 0;
    p->now = p->total = p->exposure = 0;
}

void policy_pin(struct policy *p, uint32_t key)
{
    ASSERT(key < n_keys(p));
    if (p->ops == &policy_pins) policy_regroup(p, key, 1);
}

size_t policy_oldest(const struct policy *p, const uint32_t *keys, size_t n, uint8_t group)
{
    size_t oldest = POLICY_NOBODY;
    for (size_t i = 0; i < n; i++) {
        const struct policy_key *k = &p->keys[keys[i]];
        if (group != POLICY_ANY_GROUP && k->group != group) continue;
        if (oldest == POLICY_NOBODY || k->touched < p->keys[keys[oldest]].touched) oldest = i;
    }
    return oldest;
}

size_t policy_rarest(const struct policy *p, const uint32_t *keys, size_t n, uint8_t group)
{
    size_t rarest = POLICY_NOBODY;
    for (size_t i = 0; i < n; i++) {
        const struct policy_key *k = &p->keys[keys[i]];
        if (group != POLICY_ANY_GROUP && k->group != group) continue;
        const struct policy_key *r = rarest == POLICY_NOBODY ? NULL : &p->keys[keys[rarest]];
        if (!r || k->count < r->count || (k->count == r->count && k->touched < r->touched)) rarest = i;
    }
    return rarest;
}
