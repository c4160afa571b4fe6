#ifndef RUN_ENGINE_BENCH_H
#define RUN_ENGINE_BENCH_H
/* The engine against the machine: what a prompt and decoding take while experts stream, beside the least that their
 * bytes take from the disk and their arithmetic takes in the processor, all measured in the same run.
 *
 * Disks are shared and change their speed within seconds. So a phase comes in rounds, and before the first, between any
 * two and behind the last one the disk's ceiling is measured, with the engine's own way of reading and depth; the
 * phase's ceiling is that of all these measurements together. */
#include "run/disk_bench.h"
#include "run/session.h"

struct engine_bench_phase {
    uint32_t n_passes;
    uint64_t n_tokens;
    int64_t ns;
    int64_t waited_ns;     /* for experts */
    int64_t busy_ns;       /* a read was in flight */
    uint64_t bytes_wanted; /* of experts, however they came */
    uint64_t bytes_needed; /* of those, what was not in memory yet: the least that the disk has to give */
    uint64_t bytes_read;   /* from the disk, also in vain */
    uint64_t bytes_spine;  /* that all passes together had to read from memory besides */
    uint64_t n_hits, n_misses, n_joined, n_hints, n_hint_hits;
    int64_t lead_ns;             /* of the hints that were used, together */
    struct disk_figures ceiling; /* of the disk, around and between the rounds */
    double disk_floor_s;         /* bytes_needed at the disk's ceiling */
    double memory_floor_s;       /* bytes_wanted and bytes_spine at the memory's ceiling; a prompt's passes once each */
    double processor_s; /* decoding: steps whose experts are all in memory take so long; a prompt: all but waiting */
    double over_floor;  /* time over the larger of disk floor and processor_s */
    double disk_share;  /* bytes_read / time over the disk's ceiling */
};

struct engine_bench_result {
    double memory_bytes_per_s;
    bool is_direct;
    uint32_t n_slots;
    struct engine_bench_phase first_prompt, prefill; /* while slots are filled for the first time, and afterwards */
    struct engine_bench_phase warm_up, decode;
    uint32_t n_resident;          /* tokens that were fed once more, with all their experts in memory */
    int64_t resident_ns;          /* of the fastest of them: the processor's part of decoding a token */
    struct regret_figures regret; /* over all of them */
};

struct engine_bench_shape {
    uint32_t prompt_tokens, prompt_rounds; /* the first prompt is one more round */
    uint32_t warm_up_tokens, decode_tokens, decode_rounds;
    uint32_t resident_tokens;
    uint64_t seed;
};

/* Positions that such a run takes. */
uint32_t engine_bench_tokens(const struct engine_bench_shape *shape);

/* How fast so many threads read memory: the best of a few runs. */
bool memory_bench_run(double *bytes_per_s, struct alloc *alloc, unsigned n_threads, struct err *err) MUST_CHECK;

/* Of an engine that streams; ERR_USER for another one. */
bool engine_bench_run(struct engine_bench_result *result, struct engine *engine, const struct engine_bench_shape *shape,
                      struct err *err) MUST_CHECK;

#endif
