#ifndef RUN_TRACE_STUDY_H
#define RUN_TRACE_STUDY_H
/* What each policy would have made of a recorded routing, for several numbers of slots, beside the best that perfect
 * foresight can do. Owned by one thread. */
#include "base/alloc.h"
#include "plat/file.h"

enum { TRACE_STUDY_SIZES_MAX = 16 };

/* One policy (or the optimum, "belady") with one number of slots. */
struct trace_score {
    const char *policy;
    uint64_t n_hits, n_misses;
    uint64_t *layer_hits, *layer_misses; /* [n_layers] */
};

struct trace_study {
    struct alloc *alloc;
    uint32_t n_layers, n_experts; /* of the trace, layers without experts included */
    uint64_t n_wants, n_wanted;   /* layers of passes, and experts asked for in all of them */
    uint32_t n_distinct;          /* experts that were asked for at all */
    uint64_t dropped_bytes;       /* a torn end of the file */
    uint32_t n_sizes, n_slots[TRACE_STUDY_SIZES_MAX];
    uint32_t n_scores;          /* of each size: the policies, then the optimum */
    struct trace_score *scores; /* [n_sizes][n_scores] */
    uint64_t *by_layer;
};

/* A number of slots is a count, or with is_share a share of the routed experts that layers with experts have. */
struct trace_size {
    double value;
    bool is_share;
};

/* policy NULL: all of them. ERR_USER for a policy that is not known, ERR_DATA for a file that is no trace. */
bool trace_study_run(struct trace_study *study, struct alloc *alloc, struct file_system fs, const char *path,
                     const char *policy, const struct trace_size *sizes, uint32_t n_sizes, struct err *err) MUST_CHECK;
void trace_study_fini(struct trace_study *study); /* safe twice and on a zeroed one */

const struct trace_score *trace_study_score(const struct trace_study *study, uint32_t size, uint32_t score);
/* Misses that foresight would have saved. */
uint64_t trace_study_regret(const struct trace_study *study, uint32_t size, uint32_t score);

#endif
