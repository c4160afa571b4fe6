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
    uint32_t n_blocks;
    uint64_t seed;
};

struct disk_figures {
    bool is_direct; /* what it was */
    uint64_t bytes;
    int64_t ns;
    double bytes_per_s;
};

/* Buffered trials make the kernel forget their places first. ERR_DATA when no shard is as large as a block. */
bool disk_bench_run(struct disk_figures *figures, struct alloc *alloc, const struct catalogue *catalogue,
                    const struct disk_trial *trial, struct err *err) MUST_CHECK;

#endif
