#ifndef RESID_POLICY_INT_H
#define RESID_POLICY_INT_H
/* For the policies only: what is counted for all of them, and the part that differs. */
#include "resid/policy.h"

enum {
    COUNT_ONE = 256,      /* one touch; fractions stay visible through several halvings */
    POLICY_HALF_LIFE = 4, /* in touches per key: long against one token, short against a conversation */
    POLICY_GROUPS = 4,
    POLICY_AGES = 16,
};

struct policy_key {
    uint64_t touched; /* the policy's time of the last touch, 0: never */
    uint32_t turn;    /* the pass of the last touch */
    uint32_t count;   /* touches in COUNT_ONE, halved every half-life */
    uint8_t group;    /* the policy's own */
    bool is_admitted;
};

struct policy_ops {
    const char *name, *summary;
    size_t (*choose_victim)(struct policy *policy, const uint32_t *keys, size_t n, uint32_t incoming);
    void (*on_touch)(struct policy *policy, uint32_t key); /* the rest may be NULL */
    void (*on_admit)(struct policy *policy, uint32_t key);
    void (*on_turn)(struct policy *policy);
};

struct policy {
    const struct policy_ops *ops;
    struct alloc *alloc;
    struct policy_shape shape;
    struct policy_key *keys;          /* [n_layers * n_experts] */
    uint32_t *in_layer;               /* [n_layers] admitted keys */
    uint32_t *layer_was_used;         /* [n_layers], behind in_layer in one block */
    uint32_t n_layers_used;           /* layers that were ever touched */
    uint32_t in_group[POLICY_GROUPS]; /* admitted keys by group */
    uint64_t now;                     /* touches so far */
    uint32_t turn;                    /* passes so far */
    uint64_t total, exposure;         /* all counts, and passes in COUNT_ONE: both fade as the counts do */
    double ages[POLICY_AGES];         /* touches by passes since the touch before; the last: that many or more */
    float age_factor[POLICY_AGES];    /* for "due" */
};

extern const struct policy_ops policy_lru, policy_layer_lru, policy_lfu, policy_lfru, policy_slru, policy_due,
    policy_pins;

/* Admitted keys change group here, so that in_group stays right. */
void policy_regroup(struct policy *policy, uint32_t key, uint8_t group);

/* Index of the longest untouched, or least often touched, key of a group (of all with POLICY_ANY_GROUP); POLICY_NOBODY
 * when there is none. */
#define POLICY_ANY_GROUP 0xff
#define POLICY_NOBODY SIZE_MAX
size_t policy_oldest(const struct policy *policy, const uint32_t *keys, size_t n, uint8_t group);
size_t policy_rarest(const struct policy *policy, const uint32_t *keys, size_t n, uint8_t group);

#endif
