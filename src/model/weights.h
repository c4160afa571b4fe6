#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H
/* What a forward pass needs from whoever keeps the weights. The model owns this interface; a residency provider
 * implements it. The model never learns where bytes came from or how long they stay.
 *
 * The spine (everything but routed experts and embedding rows) is lent for the whole life of the provider.
 * Routed experts are asked for one layer at a time: after want(n), next is called n times and gives each expert of the
 * want exactly once: in any order the provider likes (hits first, then misses as their reads land) with ORDER_ANY, in
 * ascending id with ORDER_ASCENDING, which a pass of many rows asks for because it adds as it goes and keeps no partial
 * outputs. The model holds one lease at a time, so one slot is enough for progress. If next fails, the
 * rest of the want is dropped and nothing of it stays leased, except leases already handed out. A lease is pinned until
 * unpin, is not copied, and is given back exactly once. hint is advice: it may be ignored, holds nothing, and never
 * evicts a pinned expert. All calls come from the engine thread. */
#include "base/err.h"
#include "fmt/inventory.h"

struct block_weights {
    struct matrix role[ROLE_COUNT]; /* payload NULL: absent. Vectors, router included, are FORMAT_F32 */
};

struct spine {
    struct matrix final_norm, head;
    struct block_weights *blocks; /* [n_layers + 1]; the last is the MTP layer, all absent without it */
    bool has_dsa, has_mtp, mtp_has_indexer;
};

struct lease {
    uint32_t layer, expert;
    struct matrix part[EXPERT_PARTS];
    uint64_t ticket; /* the provider's own */
};

struct weights;

enum want_order { ORDER_ANY, ORDER_ASCENDING };

struct weights_ops {
    /* ids: n distinct experts of `layer`, ascending. */
    bool (*want)(struct weights *weights, uint32_t layer, const uint32_t *ids, size_t n, enum want_order order,
                 struct err *err);
    bool (*next)(struct weights *weights, struct lease *out, struct err *err);
    void (*unpin)(struct weights *weights, struct lease *lease);
    /* Forgets what is left of the last want: a pass was called off. Leases handed out stay. */
    void (*drop)(struct weights *weights);
    /* Whether an expert of `layer` is neither in memory nor on its way there: else no hint at the layer brings
     * anything, and what it takes to give one is saved. */
    bool (*lacks)(const struct weights *weights, uint32_t layer);
    /* n experts that are expected to be wanted; the first n_sure of them more likely than not by far. */
    void (*hint)(struct weights *weights, uint32_t layer, const uint32_t *ids, size_t n_sure, size_t n);
    /* Called whenever the engine thread looks up from its work, a dozen times a layer: keeps reads going. */
    void (*tend)(struct weights *weights);
    /* Embedding rows of n tokens (all < vocab) to out [n][hidden]. */
    bool (*embed)(struct weights *weights, const uint32_t *tokens, size_t n, float *out, struct err *err);
};

/* First member of every provider. */
struct weights {
    const struct weights_ops *ops;
    const struct spine *spine;
};

#endif
