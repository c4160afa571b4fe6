#ifndef RUN_DISK_BENCH_H
#define RUN_DISK_BENCH_H
/* How fast the disk gives blocks of one expert's size from random places of a model's shards: the ceiling of whatever
 * must come from disk. Owned by one thread. */
#include "fmt/catalogue.h"

struct disk_trial {
    bool direct;          /* asked for */
    unsigned depth;       /* reads in flight */
    uint64_t block_bytes; /* a multiple of 4096 */
    uint64_t piece_bytes; /* blocks are read in pieces of so much; 0: whole */
    uint64_t seed;
};

struct disk_figures {
    uint64_t bytes;
    int64_t ns;
};

/* Bytes per second; 0 before anything was read. */
double disk_figures_rate(const struct disk_figures *figures);

struct disk_bench;

/* Everything is made ready here, the memory to read into included, so that a run measures the disk and nothing else.
 * ERR_DATA when no shard is as large as a block. */
bool disk_bench_new(struct disk_bench **bench, struct alloc *alloc, const struct catalogue *catalogue,
                    const struct disk_trial *trial, struct err *err) MUST_CHECK;
void disk_bench_free(struct disk_bench *bench); /* NULL is fine */
bool disk_bench_is_direct(const struct disk_bench *bench);

/* Reads n more blocks and adds them to the figures. Buffered trials make the kernel forget their places first. */
bool disk_bench_run(struct disk_bench *bench, uint32_t n_blocks, struct disk_figures *figures,
                    struct err *err) MUST_CHECK;

#endif
