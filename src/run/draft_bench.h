#ifndef RUN_DRAFT_BENCH_H
#define RUN_DRAFT_BENCH_H
/* What drafts are worth on a machine: the same text decoded without drafts, with fixed numbers of them, and with as
 * many as the engine chooses.
 *
 * The text is given: ids drawn from the law of Zipf and Mandelbrot, of which every position allows one only. How often
 * a draft is right would be an accident of the model at hand, and with random weights never happens; so every draft is
 * made at its full cost, and a seeded coin for each position then says whether it is right. So one model stands for all
 * texts, and one disk, with a pace (plat/aio.h), for all slower ones.
 *
 * Ways take turns over the same positions, in an order that rotates. Each turn begins with what was used so far
 * forgotten, and a prompt that fills few slots anew, read at the disk's full speed; then come tokens that do not count.
 * The engine's own choice has a scheduler of its own and so learns from its own turns only; its first turn is told
 * apart. */
#include "plat/aio.h"
#include "run/engine.h"

enum { DRAFT_BENCH_WAYS_MAX = 8, DRAFT_BENCH_ROUNDS_MAX = 32 };

#define DRAFT_BENCH_AUTO UINT32_MAX /* as a depth: as many as are thought to pay */

struct draft_bench_shape {
    uint32_t n_depths, depths[DRAFT_BENCH_WAYS_MAX]; /* 0: without drafts */
    uint32_t prompt_tokens, warm_up_tokens, turn_tokens;
    uint32_t rounds;       /* besides the first */
    double chance;         /* that a draft is right when those before it are */
    struct aio_pace *pace; /* the engine's; NULL: the disk is as fast as it is */
    uint64_t bytes_per_s;  /* that it is set to where tokens count */
    uint64_t seed;
};

struct draft_bench_turn {
    int64_t ns;
    uint64_t n_tokens, n_passes, n_drafted, n_accepted, bytes_read;
};

struct draft_bench_way {
    uint32_t depth;
    struct draft_bench_turn first; /* of none and of automatic only */
    struct draft_bench_turn turns[DRAFT_BENCH_ROUNDS_MAX];
};

struct draft_bench_result {
    uint32_t n_ways;
    struct draft_bench_way ways[DRAFT_BENCH_WAYS_MAX];
};

/* A device source (resid/streamed.h) whose context is the struct aio_pace that its devices keep to. */
bool draft_bench_device(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err);

/* Reads prompts until all expert slots are filled or nothing is missing any more. */
bool draft_bench_fill(struct engine *engine, uint64_t seed, struct err *err) MUST_CHECK;

/* An engine that streams, with the MTP layer, opened for as many drafts as the deepest way has (automatic: its own
 * most), one sequence and draft_bench_context tokens. */
bool draft_bench_run(struct draft_bench_result *result, struct engine *engine, const struct draft_bench_shape *shape,
                     struct err *err) MUST_CHECK;
uint32_t draft_bench_context(const struct draft_bench_shape *shape);

/* Tokens a second: the median turn. */
double draft_bench_rate(const struct draft_bench_way *way, uint32_t rounds);

/* How fast `way` is against `other`, turn by turn: the median, the least and the most. */
struct draft_bench_ratio {
    double median, least, most;
};
struct draft_bench_ratio draft_bench_compare(const struct draft_bench_way *way, const struct draft_bench_way *other,
                                             uint32_t rounds);

#endif
