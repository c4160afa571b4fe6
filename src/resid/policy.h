#ifndef RESID_POLICY_H
#define RESID_POLICY_H
/* Which expert makes room: one interface, several answers.
 *
 * A key is layer * n_experts + expert. Counters are kept per key, whether the expert is in memory or not, so a policy
 * knows what it gave up. A policy never affects results, only how many bytes are read. It is asked for one victim at a
 * time among the slots that may be given up now; the same code serves the engine and the replay of a trace.
 * Owned by one thread. */
#include "base/alloc.h"
#include <stddef.h>

struct policy;

struct policy_shape {
    uint32_t n_layers, n_experts; /* of keys: sparse or not, MTP layer included */
    uint32_t n_slots;
};

/* The names that policy_new knows, and one line about each. */
struct policy_kind {
    const char *name, *summary;
};
size_t policy_count(void);
struct policy_kind policy_kind_at(size_t i);
#define POLICY_DEFAULT "due"

/* ERR_USER, with the known names, for an unknown one. */
bool policy_new(struct policy **policy, struct alloc *alloc, const char *name, const struct policy_shape *shape,
                struct err *err) MUST_CHECK;
void policy_free(struct policy *policy); /* NULL is fine */
const char *policy_name(const struct policy *policy);

/* The model asked for this expert: once per want, hit or not. */
void policy_on_touch(struct policy *policy, uint32_t key);
/* It was given a slot; it lost it. */
void policy_on_admit(struct policy *policy, uint32_t key);
void policy_on_evict(struct policy *policy, uint32_t key);
/* A pass over all layers ended. */
void policy_on_turn(struct policy *policy);

/* Index into keys [n] (n > 0, all admitted) of the expert to give up for `incoming`. */
size_t policy_choose_victim(struct policy *policy, const uint32_t *keys, size_t n, uint32_t incoming);

/* Whether `incoming` is expected to be asked for more often than `victim`: what a hint needs to take its slot. */
bool policy_prefers(const struct policy *policy, uint32_t incoming, uint32_t victim);

/* Starts a key's counter from recorded use. */
void policy_seed(struct policy *policy, uint32_t key, uint32_t count);
/* Decayed touches of a key: what policy_seed starts from the next time. */
uint32_t policy_touches(const struct policy *policy, uint32_t key);
/* The passes that all counters stem from, decayed likewise. */
void policy_seed_passes(struct policy *policy, uint32_t n);
uint32_t policy_passes(const struct policy *policy);
/* Everything that was counted; what is in memory stays there. For measurements that begin alike. */
void policy_forget(struct policy *policy);
/* For "pins": never a victim while any other can be. Other policies do not listen. */
void policy_pin(struct policy *policy, uint32_t key);

#endif
