#ifndef RUN_KERNEL_BENCH_H
#define RUN_KERNEL_BENCH_H
/* Every kernel of the list that this processor can run, on the shapes of the model: how long it takes, beside how fast
 * the memory is read and how many multiply-adds the processor does in registers, all taking turns in one run.
 *
 * Products of weights stream them from a set larger than the caches and share their outputs out to a team; the others
 * work on what is in the cache, on one thread. The references run on one small shape. */
#include "base/alloc.h"

enum { KERNEL_BENCH_RUNS_MAX = 64 };

struct kernel_figure {
    const char *op, *isa;
    size_t n_rows, n_out, n_in; /* n_out 0: a vector operation on n_in numbers */
    uint64_t bytes;             /* that it reads and writes, inputs that stay in the cache left out */
    uint64_t operations;        /* a multiply-add is two; 0 where they are not multiply-adds */
    double peak_share;          /* of the multiply-adds per second of its instruction set; limbs count each of theirs */
    double ns, ns_min, ns_max;  /* of one call, the median and the range over the runs */
};

struct kernel_bench_result {
    unsigned n_threads;
    double read_bytes_per_s;                /* the best way of reading, its median */
    double peak_f32_per_s, peak_int8_per_s; /* operations of all threads; the best of their kernels */
    struct kernel_figure *figures;          /* [n] */
    size_t n;
};

/* What to measure: kernels that need no more than `cpu` and whose name (OP_ISA) contains `only`. */
struct kernel_bench_choice {
    uint32_t cpu;
    const char *only;
    unsigned n_threads, runs;
};

/* The result is the caller's to fini, also on failure. */
bool kernel_bench_run(struct kernel_bench_result *result, struct alloc *alloc, const struct kernel_bench_choice *choice,
                      struct err *err) MUST_CHECK;
void kernel_bench_fini(struct kernel_bench_result *result, struct alloc *alloc);

#endif
