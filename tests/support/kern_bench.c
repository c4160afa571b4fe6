#include "support/kern_bench.h"

#include "kern/limb_int.h"
#include "kern/list_int.h"
#include "plat/cpu.h"
#include "support/guarded.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

/* The benchmark. Best of several, on one thread. */

enum { BENCH_OUT = 2048, BENCH_IN = 6144, BENCH_ROWS = 64, BENCH_ROWS_OUT = 256, BENCH_GROUP = 64 };

struct bench {
    const char *op, *isa;
    float *weights, *scales, *x, *y; /* weights [BENCH_OUT][BENCH_IN], also read as bytes */
    const float **rows;              /* [BENCH_OUT] */
    void *split;                     /* [BENCH_ROWS] of BENCH_IN */
    float cosine[32], sine[32];      /* of one angle */
    double reference_ns[2];          /* of the op at hand, per shape */
};

/* Of this thread: what others do on the machine is not counted. */
static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Sets `best_ns` to the time of one run of the statement, the best of 40 ms. Short ones are timed many at once. */
#define TIME(best_ns, statement)                                          \
    do {                                                                  \
        double until = now_ns() + 4e7;                                    \
        unsigned repeats = 1;                                             \
        best_ns = INFINITY;                                               \
        do {                                                              \
            double start = now_ns();                                      \
            for (unsigned again = 0; again < repeats; again++) statement; \
            double took = now_ns() - start;                               \
            best_ns = fmin(best_ns, took / repeats);                      \
            if (took < 5e4) repeats *= 2;                                 \
        } while (now_ns() < until);                                       \
    } while (0)

static void print_speed(struct bench *bench, int shape, const char *what, double ns, double bytes, double flops)
{
    if (strcmp(bench->isa, "ref") == 0) bench->reference_ns[shape] = ns;
    printf("%-30s %-7s %-22s %11.2f us %8.2f GB/s %8.2f GFLOP/s %7.1fx\n", bench->op, bench->isa, what, ns / 1e3,
           bytes / ns, flops / ns, bench->reference_ns[shape] / ns);
    fflush(stdout);
}

static void bench_matmul(struct bench *b, matmul_fn *fn, enum layout layout, size_t group)
{
    double ns, row_bytes = (double)layout_row_bytes(layout, BENCH_IN);
    TIME(ns, fn(b->y, BENCH_OUT, b->weights, b->scales, b->x, BENCH_IN, 1, BENCH_OUT, BENCH_IN, group));
    print_speed(b, 0, "2048x6144, 1 row", ns, row_bytes * BENCH_OUT, 2.0 * BENCH_OUT * BENCH_IN);
    TIME(ns, fn(b->y, BENCH_OUT, b->weights, b->scales, b->x, BENCH_IN, BENCH_ROWS, BENCH_ROWS_OUT, BENCH_IN, group));
    print_speed(b, 1, "256x6144, 64 rows", ns, row_bytes * BENCH_ROWS_OUT,
                2.0 * BENCH_ROWS * BENCH_ROWS_OUT * BENCH_IN);
    if (strcmp(b->isa, "ref") == 0) return;
    for (size_t rows = 2; rows <= 8; rows += rows < 4 ? 1 : 4) {
        char what[32];
        (void)snprintf(what, sizeof what, "2048x6144, %zu rows", rows);
        TIME(ns, fn(b->y, BENCH_OUT, b->weights, b->scales, b->x, BENCH_IN, rows, BENCH_OUT, BENCH_IN, group));
        printf("%-30s %-7s %-22s %11.2f us %8.2f GB/s %8.2f GFLOP/s\n", b->op, b->isa, what, ns / 1e3,
               row_bytes * BENCH_OUT / ns, 2.0 * (double)rows * BENCH_OUT * BENCH_IN / ns);
    }
}

static void bench_transposed(struct bench *b, matmul_transposed_fn *fn, enum layout layout, size_t group)
{
    double ns;
    TIME(ns, fn(b->y, b->weights, b->scales, b->x, 192, 512, group));
    print_speed(b, 0, "192x512", ns, (double)layout_row_bytes(layout, 512) * 192, 2.0 * 192 * 512);
}

static void bench_unpack(struct bench *b, unpack_fn *fn, enum layout layout, size_t group)
{
    double ns;
    TIME(ns, fn(b->y, b->weights, b->scales, BENCH_IN, group));
    print_speed(b, 0, "6144", ns, (double)layout_row_bytes(layout, BENCH_IN), BENCH_IN);
}

#define BENCH_LAYOUT(name, layout, group)                                                 \
    static void bench_matmul_##name(struct bench *b, matmul_fn *fn)                       \
    {                                                                                     \
        bench_matmul(b, fn, layout, group);                                               \
    }                                                                                     \
    static void bench_matmul_transposed_##name(struct bench *b, matmul_transposed_fn *fn) \
    {                                                                                     \
        bench_transposed(b, fn, layout, group);                                           \
    }                                                                                     \
    static void bench_unpack_##name(struct bench *b, unpack_fn *fn)                       \
    {                                                                                     \
        bench_unpack(b, fn, layout, group);                                               \
    }

BENCH_LAYOUT(f32, LAYOUT_F32, 0)
BENCH_LAYOUT(int8, LAYOUT_INT8, 0)
BENCH_LAYOUT(int4, LAYOUT_INT4, 0)
BENCH_LAYOUT(int4_grouped, LAYOUT_INT4, BENCH_GROUP)
BENCH_LAYOUT(int2, LAYOUT_INT2, 0)
BENCH_LAYOUT(int3, LAYOUT_INT3, 0)

static void bench_split(struct bench *b, split_fn *fn, size_t n)
{
    double ns;
    TIME(ns, fn(b->split, kern_split_bytes(n, BENCH_IN), b->x, BENCH_IN, 1, BENCH_IN));
    print_speed(b, 0, "6144", ns, BENCH_IN * 4.0, BENCH_IN);
}

static void bench_matmul_split(struct bench *b, matmul_split_fn *fn, split_fn *split, struct limbs l)
{
    size_t stride = kern_split_bytes(l.n, BENCH_IN), rows[] = {1, BENCH_ROWS, 2, 3, 4, 8};
    double ns, row_bytes = (double)layout_row_bytes(l.layout, BENCH_IN);
    split(b->split, stride, b->x, BENCH_IN, BENCH_ROWS, BENCH_IN);
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t outs = rows[i] == 1 ? BENCH_OUT : BENCH_ROWS_OUT;
        char what[32];
        if (i > 1 && strcmp(b->isa, "ref") == 0) break;
        (void)snprintf(what, sizeof what, "%zux6144, %zu rows", outs, rows[i]);
        TIME(ns, fn(b->y, BENCH_OUT, b->weights, b->scales, b->split, stride, rows[i], outs, BENCH_IN, BENCH_GROUP));
        print_speed(b, i < 2 ? (int)i : 1, what, ns, row_bytes * (double)outs,
                    2.0 * (double)rows[i] * (double)outs * BENCH_IN);
    }
}

#define BENCH_SPLIT(name, n)                                                \
    static void bench_split_limb##n##_##name(struct bench *b, split_fn *fn) \
    {                                                                       \
        bench_split(b, fn, n);                                              \
    }

#define BENCH_LIMBS(name, splits, layout, n)                                                  \
    static void bench_matmul_limb##n##_##name(struct bench *b, matmul_split_fn *fn)           \
    {                                                                                         \
        bench_matmul_split(b, fn, split_limb##n##_##splits##_ref, (struct limbs){layout, n}); \
    }

BENCH_SPLIT(int4, 3)
BENCH_SPLIT(int4, 1)
BENCH_SPLIT(int8, 1)
BENCH_LIMBS(int4, int4, LAYOUT_INT4, 3)
BENCH_LIMBS(int4_grouped, int4, LAYOUT_INT4, 3)
BENCH_LIMBS(int4, int4, LAYOUT_INT4, 1)
BENCH_LIMBS(int4_grouped, int4, LAYOUT_INT4, 1)
BENCH_LIMBS(int8, int8, LAYOUT_INT8, 1)

/* One line for a statement that touches this many bytes. */
#define BENCH_CALL(operation, what, bytes, flops, call)                \
    static void bench_##operation(struct bench *b, operation##_op *fn) \
    {                                                                  \
        double ns;                                                     \
        TIME(ns, call);                                                \
        print_speed(b, 0, what, ns, bytes, flops);                     \
    }

BENCH_CALL(rmsnorm, "6144", 6144 * 12.0, 6144 * 4.0, fn(b->y, b->x, b->weights, 6144, 1e-5f))
BENCH_CALL(layernorm, "128", 128 * 16.0, 128 * 7.0, fn(b->y, b->x, b->weights, b->scales, 128, 1e-6f))
BENCH_CALL(rope, "32 pairs", 64 * 8.0, 64 * 3.0, fn(b->y, b->y + 64, b->cosine, b->sine, 32))
BENCH_CALL(swiglu, "2048", 2048 * 12.0, 2048.0, fn(b->y, b->x, b->weights, 2048))
BENCH_CALL(sigmoid, "256", 256 * 8.0, 256.0, fn(b->y, b->x, 256))
BENCH_CALL(add, "6144", 6144 * 12.0, 6144.0, fn(b->y, b->x, 6144))
BENCH_CALL(axpy, "6144", 6144 * 12.0, 6144 * 2.0, fn(b->y, 0x1p-30f, b->x, 6144))
BENCH_CALL(softmax, "2048", 2048 * 8.0, 2048.0, fn(b->y, 2048))
BENCH_CALL(gather_dots, "2048 rows of 576 x 32", 2048 * 576 * 4.0, 2048 * 576 * 64.0,
           fn(b->y, 2048, b->x, 576, 32, b->rows, 2048, 576, 1))
BENCH_CALL(gather_mixes, "2048 rows of 512 x 32", 2048 * 512 * 4.0, 2048 * 512 * 64.0,
           fn(b->y, 512, b->x, 2048, 32, b->rows, 2048, 512))
BENCH_CALL(index_scores, "2048 keys, 32 heads", 2048 * 128 * 4.0, 2048 * 32 * 256.0,
           fn(b->y, b->x, b->scales, b->rows, 2048, 32, 128, 0.1f))
BENCH_CALL(select_top, "2048 of 131072", 131072 * 4.0, 131072.0, fn((uint32_t *)(void *)b->y, b->weights, 131072, 2048))

int kern_bench(const char *only)
{
    struct bench bench = {0};
    struct rng rng = {20240607};
    size_t n_weights = (size_t)BENCH_OUT * BENCH_IN;
    bench.weights = aligned_alloc(64, n_weights * sizeof(float));
    bench.scales = malloc(n_weights / 16 * sizeof(float));
    bench.x = aligned_alloc(64, (size_t)BENCH_ROWS * BENCH_IN * sizeof(float));
    bench.y = calloc((size_t)BENCH_ROWS * BENCH_OUT, sizeof(float));
    bench.rows = malloc(BENCH_OUT * sizeof *bench.rows);
    bench.split = aligned_alloc(64, BENCH_ROWS * kern_split_bytes(3, BENCH_IN));
    if (!bench.split || !bench.weights || !bench.scales || !bench.x || !bench.y || !bench.rows) return 1;
    for (size_t i = 0; i < n_weights; i++) bench.weights[i] = rng_float(&rng);
    for (size_t i = 0; i < n_weights / 16; i++) bench.scales[i] = 0.01f;
    for (size_t i = 0; i < (size_t)BENCH_ROWS * BENCH_IN; i++) bench.x[i] = rng_float(&rng);
    for (size_t i = 0; i < BENCH_OUT; i++) bench.rows[i] = bench.weights + (i * 1021 % BENCH_OUT) * 576;
    for (size_t i = 0; i < 32; i++) bench.cosine[i] = 0.6f, bench.sine[i] = 0.8f;
    uint32_t cpu = cpu_mask();
    struct kern reference;
    kern_select(&reference, 0);
#define X(operation, set, need)                                              \
    if ((cpu & (need)) == (need)) {                                          \
        if (strcmp(#set, "ref") != 0 && strstr(#operation "_" #set, only)) { \
            bench.op = #operation;                                           \
            bench.isa = "ref";                                               \
            bench_##operation(&bench, reference.operation);                  \
            bench.isa = #set;                                                \
            bench_##operation(&bench, operation##_##set);                    \
        }                                                                    \
    }
    KERN_LIST(X)
#undef X
    free(bench.split);
    free(bench.rows);
    free(bench.y);
    free(bench.x);
    free(bench.scales);
    free(bench.weights);
    return 0;
}
