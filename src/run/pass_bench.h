#ifndef RUN_PASS_BENCH_H
#define RUN_PASS_BENCH_H
/* What passes cost: the same passes again and again, their median, their stages, and the bytes they cannot avoid.
 *
 * The context in front of the measured tokens is made up, not computed, so that a long one costs nothing: the state of
 * its positions holds random rows of the right kind. Tokens are random too, from a fixed seed. Shapes take turns, run
 * after run, with a reading of all memory in between, so that what else happens on the machine meets all of them.
 *
 * Belongs to the engine thread. */
#include "run/engine.h"

enum { PASS_BENCH_RUNS_MAX = 64, PASS_BENCH_SHAPES_MAX = 32 };

/* Either a prompt: `rows` consecutive tokens of one sequence behind `depth` others, in passes of at most `chunk`. Or
 * decoding: `steps` passes of one token each for `rows` sequences that are `depth` tokens long. */
struct pass_shape {
    bool is_prompt;
    uint32_t depth, rows;
    uint32_t chunk, steps;
};

struct pass_figures {
    uint32_t n_passes;         /* of one run */
    uint64_t n_tokens;         /* of one run */
    int64_t ns, ns_min;        /* one run: the median, and the best */
    struct stage_times stages; /* of the median run */
    uint64_t weight_bytes;     /* of one run: weights that its passes read, each once a pass */
    uint64_t expert_bytes;     /* of those, routed experts */
    uint64_t state_bytes;      /* of one run: sequence state that its rows attend or score, per row */
};

struct pass_bench_result {
    struct pass_figures figures[PASS_BENCH_SHAPES_MAX]; /* by shape */
    double read_bytes_per_s;                            /* median over the runs */
};

/* Room: every sequence's depth + tokens within the engine's context, chunk and rows within its pass rows. */
bool pass_bench_run(struct pass_bench_result *result, struct engine *engine, const struct pass_shape *shapes,
                    size_t n_shapes, unsigned n_runs, struct err *err) MUST_CHECK;

#endif
