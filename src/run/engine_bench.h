#ifndef RUN_ENGINE_BENCH_H
#define RUN_ENGINE_BENCH_H
/* The engine against the machine: what a prompt and decoding take while experts stream, beside the least that their
 * bytes take from the disk and their bytes and arithmetic take in the processor, all measured in the same run.
 *
 * The disk's ceiling is measured before and after, with the engine's own way of reading, and the better one counts. */
#include "run/session.h"

struct engine_bench_phase {
    uint32_t n_passes;
    uint64_t n_tokens;
    int64_t ns;
    int64_t waited_ns;     /* for experts: the rest is the processor's */
    int64_t busy_ns;       /* a read was in flight */
    uint64_t bytes_wanted; /* of experts, however they came */
    uint64_t bytes_read;   /* from the disk */
    uint64_t bytes_spine;  /* that all passes together had to read from memory besides */
    uint64_t n_hits, n_misses, n_joined, n_hints, n_hint_hits;
    double disk_floor_s;   /* bytes_read at the disk's ceiling */
    double memory_floor_s; /* bytes_wanted and bytes_spine at the memory's ceiling; a prompt's passes once each */
    double processor_s;    /* what the processor really took: all but waiting */
    double over_floor;     /* time over the larger of disk floor and processor's time */
    double disk_share;     /* bytes_read / time over the disk's ceiling */
};

struct engine_bench_result {
    double disk_bytes_per_s, memory_bytes_per_s;
    bool is_direct;
    uint32_t n_slots;
    struct engine_bench_phase prefill, warm_up, decode;
    struct regret_figures regret; /* over all of them */
};

struct engine_bench_shape {
    uint32_t prompt_tokens, warm_up_tokens, decode_tokens;
    uint64_t seed;
};

/* How fast so many threads read memory: the best of a few runs. */
bool memory_bench_run(double *bytes_per_s, struct alloc *alloc, unsigned n_threads, struct err *err) MUST_CHECK;

/* Of an engine that streams; ERR_USER for another one. */
bool engine_bench_run(struct engine_bench_result *result, struct engine *engine, const struct engine_bench_shape *shape,
                      struct err *err) MUST_CHECK;

#endif
