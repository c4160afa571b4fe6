#ifndef RESID_REPLAY_H
#define RESID_REPLAY_H
/* What a policy would have done with a recorded routing, and what the best possible one would have.
 *
 * A want is the set of distinct experts that one layer of one pass asked for. All slots count as equal. */
#include "resid/policy.h"
#include "resid/trace.h"

/* All wants of a trace in memory: keys [n_keys] want by want, ascending within each. */
struct wants {
    struct alloc *alloc;
    uint32_t n_layers, n_experts;
    uint32_t *keys;
    uint64_t *begins; /* [n_wants + 1] */
    uint64_t n_keys, n_wants;
    uint64_t keys_room, begins_room;
};

void wants_init(struct wants *wants, struct alloc *alloc, uint32_t n_layers, uint32_t n_experts);
void wants_fini(struct wants *wants);
bool wants_add(struct wants *wants, uint32_t layer, const uint16_t *experts, uint64_t n, struct err *err) MUST_CHECK;
bool wants_read(struct wants *wants, struct alloc *alloc, struct trace_reader *reader, struct err *err) MUST_CHECK;

struct replay_result {
    uint64_t n_hits, n_misses;
    uint64_t *layer_hits, *layer_misses; /* [n_layers] the caller's, or NULL */
};

/* As the slots do it: hits of a want are held, misses take victims outside the want while there are any. A pass ends
 * when the layer number does not rise. */
bool replay_policy(struct replay_result *result, struct alloc *alloc, const struct wants *wants, const char *policy,
                   uint32_t n_slots, struct err *err) MUST_CHECK;

/* The fewest misses that any policy with foresight can have (Belady): after each want, of all that was in memory or
 * came for it, those stay that are wanted again first. What was used need not stay, so this is a bound also for the
 * engine, which gives every expert a slot first. */
bool replay_optimum(struct replay_result *result, struct alloc *alloc, const struct wants *wants, uint32_t n_slots,
                    struct err *err) MUST_CHECK;

#endif
