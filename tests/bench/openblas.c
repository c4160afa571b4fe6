/* Products of many rows of inputs, ours against the f32 product of OpenBLAS on the same shapes, taking turns.
 *
 *   openblas [--avx2] [--runs N]
 *
 * Ours count from f32 inputs: splitting them is part of the time. OpenBLAS does not know every processor; the name that
 * is printed is the kernel it took, and OPENBLAS_CORETYPE=SkylakeX or Haswell makes it take another. */
#include "base/alloc.h"
#include "kern/layout_int.h"
#include "kern/limb_int.h"
#include "par/team.h"
#include "plat/clock.h"
#include "plat/cpu.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1024, WEIGHTS = 2048 * 6144, IN_MAX = 6144, OUT_MAX = 6144, GROUP = 64, GRAIN = 8 };
enum { THREADS_MAX = 2, RUNS_MAX = 64, CONTENDERS = 5, SHAPES = 2, SIZES = 3 };

static const struct shape {
    size_t n_out, n_in;
} shapes[SHAPES] = {{2048, 6144}, {6144, 2048}};
static const size_t sizes[SIZES] = {64, 256, 1024};

struct contender {
    const char *name;
    size_t n_limbs; /* 0: OpenBLAS */
    split_fn *split;
    matmul_split_fn *matmul;
};

struct bench {
    struct alloc alloc;
    struct team *teams[THREADS_MAX];
    struct contender contenders[CONTENDERS];
    float *dense, *x, *y, *scales; /* [WEIGHTS], [ROWS_MAX][IN_MAX], [ROWS_MAX][OUT_MAX], one for each 32 weights */
    unsigned char *packed;         /* [WEIGHTS / 2] */
    void *split;                   /* [ROWS_MAX] rows */
    unsigned runs;
    int64_t ns[SIZES][SHAPES][THREADS_MAX][CONTENDERS][RUNS_MAX];
};

struct product {
    struct bench *bench;
    const struct contender *contender;
    const struct shape *shape;
    size_t n_rows, stride;
};

static void split_rows(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct product *p = context;
    size_t n_in = p->shape->n_in;
    (void)thread;
    p->contender->split((char *)p->bench->split + begin * p->stride, p->stride, p->bench->x + begin * n_in, n_in,
                        end - begin, n_in);
}

static void multiply(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct product *p = context;
    const struct bench *b = p->bench;
    size_t n_in = p->shape->n_in, first = begin * GRAIN, n_out = (end - begin) * GRAIN;
    (void)thread;
    p->contender->matmul(b->y + first, p->shape->n_out, b->packed + first * layout_row_bytes(LAYOUT_INT4, n_in),
                         b->scales + first * layout_row_scales(n_in, GROUP), b->split, p->stride, p->n_rows, n_out,
                         n_in, GROUP);
}

static int64_t run_once(struct bench *b, size_t size, size_t shape, unsigned n_threads, size_t contender)
{
    struct product p = {b, &b->contenders[contender], &shapes[shape], sizes[size], 0};
    int n_rows = (int)p.n_rows, n_out = (int)p.shape->n_out, n_in = (int)p.shape->n_in;
    struct team *team = b->teams[n_threads - 1];
    p.stride = kern_split_bytes(p.contender->n_limbs, p.shape->n_in);
    openblas_set_num_threads((int)n_threads);
    int64_t start = clock_now_ns(clock_real());
    if (p.contender->n_limbs == 0) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_out, n_in, 1, b->x, n_in, b->dense, n_in, 0,
                    b->y, n_out);
    } else {
        team_run(team, p.n_rows, 1, split_rows, &p);
        team_run(team, p.shape->n_out / GRAIN, 1, multiply, &p);
    }
    return clock_now_ns(clock_real()) - start;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_line(struct bench *b, size_t size, size_t shape, unsigned n_threads, size_t contender)
{
    int64_t *ns = b->ns[size][shape][n_threads - 1][contender], *blas = b->ns[size][shape][n_threads - 1][0];
    double operations = 2.0 * (double)sizes[size] * (double)shapes[shape].n_out * (double)shapes[shape].n_in;
    double median = (double)ns[b->runs / 2];
    printf("%5zu rows  %zux%zu  %u threads  %-20s %8.1f GFLOP/s (%.1f .. %.1f)  %5.2f x OpenBLAS\n", sizes[size],
           shapes[shape].n_out, shapes[shape].n_in, n_threads, b->contenders[contender].name, operations / median,
           operations / (double)ns[b->runs - 1], operations / (double)ns[0], (double)blas[b->runs / 2] / median);
}

static bool prepare(struct bench *b, uint32_t cpu, struct err *err)
{
    struct kern k;
    uint32_t random = 1;
    kern_select(&k, cpu);
    const struct contender contenders[CONTENDERS] = {
        {"OpenBLAS f32", 0, NULL, NULL},
        {"int4 exact", 3, k.split_limb3_int4, k.matmul_limb3_int4},
        {"int4-g64 exact", 3, k.split_limb3_int4, k.matmul_limb3_int4_grouped},
        {"int4 int8 tier", 1, k.split_limb1_int4, k.matmul_limb1_int4},
        {"int4-g64 int8 tier", 1, k.split_limb1_int4, k.matmul_limb1_int4_grouped},
    };
    memcpy(b->contenders, contenders, sizeof contenders);
    b->dense = alloc_get_array(&b->alloc, WEIGHTS, sizeof(float), err);
    b->packed = b->dense ? alloc_get(&b->alloc, WEIGHTS / 2, err) : NULL;
    b->scales = b->packed ? alloc_get_array(&b->alloc, WEIGHTS / 32, sizeof(float), err) : NULL;
    b->x = b->scales ? alloc_get_array(&b->alloc, (uint64_t)ROWS_MAX * IN_MAX, sizeof(float), err) : NULL;
    b->y = b->x ? alloc_get_array(&b->alloc, (uint64_t)ROWS_MAX * OUT_MAX, sizeof(float), err) : NULL;
    b->split = b->y ? alloc_get(&b->alloc, ROWS_MAX * kern_split_bytes(3, IN_MAX), err) : NULL;
    if (!b->split) return false;
    for (size_t i = 0; i < (size_t)ROWS_MAX * IN_MAX; i++) {
        random = random * 1664525 + 1013904223;
        b->x[i] = (float)(int32_t)random * 0x1p-31f;
    }
    for (size_t i = 0; i < WEIGHTS; i++) {
        random = random * 1664525 + 1013904223;
        b->dense[i] = (float)(random >> 28) - 8;
        b->packed[i / 2] |= (unsigned char)(random >> 28 << 4 * (i % 2));
    }
    for (size_t i = 0; i < WEIGHTS / 32; i++) b->scales[i] = 1;
    for (unsigned t = 0; t < THREADS_MAX; t++)
        if (!team_new(&b->teams[t], &b->alloc, t + 1, err)) return false;
    return true;
}

/* All contenders compute the same thing: what OpenBLAS has is what ours have, as closely as each promises. */
static bool results_agree(struct bench *b)
{
    float *want = malloc(shapes[0].n_out * sizeof *want);
    double bounds[CONTENDERS] = {0, 1e-5, 1e-5, 2e-2, 2e-2};
    bool agree = want;
    for (size_t c = 0; agree && c < CONTENDERS; c++) {
        double error = 0, size = 0;
        run_once(b, 0, 0, 2, c);
        if (c == 0) memcpy(want, b->y, shapes[0].n_out * sizeof *want);
        for (size_t o = 0; o < shapes[0].n_out; o++) {
            double off = (double)b->y[o] - (double)want[o];
            error += off * off;
            size += (double)want[o] * (double)want[o];
        }
        agree = error <= bounds[c] * bounds[c] * size;
        if (!agree) fprintf(stderr, "%s: another result than OpenBLAS's\n", b->contenders[c].name);
    }
    free(want);
    return agree;
}

static void run_all(struct bench *b)
{
    for (unsigned run = 0; run < b->runs; run++)
        for (size_t size = 0; size < SIZES; size++)
            for (size_t shape = 0; shape < SHAPES; shape++)
                for (unsigned t = 1; t <= THREADS_MAX; t++)
                    for (size_t c = 0; c < CONTENDERS; c++)
                        b->ns[size][shape][t - 1][c][run] = run_once(b, size, shape, t, c);
    for (size_t size = 0; size < SIZES; size++)
        for (size_t shape = 0; shape < SHAPES; shape++)
            for (unsigned t = 1; t <= THREADS_MAX; t++) {
                for (size_t c = 0; c < CONTENDERS; c++)
                    qsort(b->ns[size][shape][t - 1][c], b->runs, sizeof(int64_t), compare_times);
                for (size_t c = 0; c < CONTENDERS; c++) print_line(b, size, shape, t, c);
            }
}

int main(int argc, char **argv)
{
    static struct bench bench = {.runs = 7};
    struct err err = {0};
    uint32_t cpu = cpu_mask();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--avx2") == 0)
            cpu &= CPU_AVX2;
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            bench.runs = (unsigned)strtoul(argv[++i], NULL, 10);
        else
            bench.runs = 0;
    }
    if (bench.runs < 1 || bench.runs > RUNS_MAX) {
        fprintf(stderr, "usage: openblas [--avx2] [--runs N], N from 1 to %d\n", RUNS_MAX);
        return 2;
    }
    bool ok = prepare(&bench, cpu, &err);
    if (!ok) fprintf(stderr, "%s\n", err.text);
    if (ok) printf("OpenBLAS uses its kernel for %s\n", openblas_get_corename());
    ok = ok && results_agree(&bench);
    if (ok) run_all(&bench);
    for (unsigned t = 0; t < THREADS_MAX; t++) team_free(bench.teams[t]);
    alloc_put(&bench.alloc, bench.split);
    alloc_put(&bench.alloc, bench.y);
    alloc_put(&bench.alloc, bench.x);
    alloc_put(&bench.alloc, bench.scales);
    alloc_put(&bench.alloc, bench.packed);
    alloc_put(&bench.alloc, bench.dense);
    return ok ? 0 : 1;
}
