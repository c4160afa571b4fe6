#ifndef RUN_BATCH_BENCH_H
#define RUN_BATCH_BENCH_H
/* What sequences that decode together cost: bytes a token and tokens a second for 1, 2, 4 ... sequences in one pass.
 *
 * Every sequence has a text of its own, drawn from the law of Zipf and Mandelbrot over the ids, which is how often
 * words and the merges of a tokenizer occur. Numbers of sequences take turns within a round, for as many tokens each,
 * and rounds are added up, so that a disk that changes meanwhile changes all of them alike. Before each turn passes
 * that do not count bring the experts in memory to what that number of sequences leaves there. */
#include "run/engine.h"

enum { BATCH_BENCH_SIZES_MAX = 16 };

struct batch_bench_shape {
    uint32_t n_sizes, sizes[BATCH_BENCH_SIZES_MAX]; /* numbers of sequences */
    uint32_t warm_up_tokens, turn_tokens;           /* of all sequences together; a turn has two passes at least */
    uint32_t rounds;
    uint64_t seed;
};

struct batch_bench_row {
    uint32_t n_sequences;
    uint64_t n_tokens;
    int64_t ns, waited_ns;
    uint64_t bytes_wanted; /* of experts, each once a pass, however they came */
    uint64_t bytes_read;   /* from the disk */
};

struct batch_bench_result {
    uint32_t n_slots; /* 0: all experts are in memory */
    uint32_t n_rows;
    struct batch_bench_row rows[BATCH_BENCH_SIZES_MAX];
};

/* The engine grants logits for as many rows as the largest size and a context for all tokens that a sequence gets. */
bool batch_bench_run(struct batch_bench_result *result, struct engine *engine, const struct batch_bench_shape *shape,
                     struct err *err) MUST_CHECK;

/* Tokens that a sequence gets at most. */
uint32_t batch_bench_context(const struct batch_bench_shape *shape);

#endif
