/* Products of many rows of inputs, ours against the f32 product of OpenBLAS on the same shapes, taking turns.
 *
 *   openblas [--avx2] [--runs N]
 *
 * Ours are what the model runs (model/linear.h), from f32 inputs: splitting them is part of the time. Weights lie in
 * large pages, as an engine has them. OpenBLAS does not know every processor; the name that is printed is the kernel it
 * took, and OPENBLAS_CORETYPE=SkylakeX or Haswell makes it take another.
 *
 * At the end stand the large products of one sparse layer in a prefill, each with the rows that it has there: with 8 of
 * 256 experts a token, a routed expert has a 32nd of the tokens on average. */
#include "base/alloc.h"
#include "model/linear.h"
#include "plat/clock.h"
#include "plat/cpu.h"
#include "plat/pages.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1024, WEIGHTS = 6144 * 16384, IN_MAX = 16384, OUT_MAX = 16384, GROUP = 64 };
enum { THREADS_MAX = 2, RUNS_MAX = 64, CONTENDERS = 5, SHAPES = 4, SIZES = 5, N_EXPERTS = 256, PASS_SIZES = 2 };
enum { ROUTED_PART = 32 }; /* of the tokens, on average, are with one routed expert */

/* How often a layer has a product of this shape: in each routed expert, and with all tokens. */
static const struct shape {
    size_t n_out, n_in;
    unsigned n_routed, n_whole;
} shapes[SHAPES] = {
    {2048, 6144, 2, 3},  /* gate and up; of the shared expert too; the query's first part */
    {6144, 2048, 1, 1},  /* down, and that of the shared expert */
    {16384, 2048, 0, 1}, /* the query's second part */
    {6144, 16384, 0, 1}, /* out of attention */
};

/* Rows: first those that routed experts have in a pass of `pass_sizes` tokens. */
static const size_t sizes[SIZES] = {8, 32, 64, 256, 1024}, pass_sizes[PASS_SIZES] = {256, 1024};

static const struct contender {
    const char *name;
    enum weight_format format; /* f32: OpenBLAS */
    enum numerics numerics;
} contenders[CONTENDERS] = {
    {"OpenBLAS f32", FORMAT_F32, NUMERICS_EXACT},
    {"int4 exact", FORMAT_INT4_ROW, NUMERICS_EXACT},
    {"int4-g64 exact", FORMAT_INT4_GROUPED, NUMERICS_EXACT},
    {"int4 int8 tier", FORMAT_INT4_ROW, NUMERICS_INT8},
    {"int4-g64 int8 tier", FORMAT_INT4_GROUPED, NUMERICS_INT8},
};

struct bench {
    struct alloc alloc;
    struct team *teams[THREADS_MAX];
    float *dense, *x, *y, *scales; /* [WEIGHTS], [ROWS_MAX][IN_MAX], [ROWS_MAX][OUT_MAX], one for each 32 weights */
    void *packed;                  /* [WEIGHTS / 2] */
    struct kern kern;
    void *scratch;
    uint64_t scratch_bytes;
    unsigned runs;
    int64_t ns[SIZES][SHAPES][THREADS_MAX][CONTENDERS][RUNS_MAX];
};

static int64_t run_once(struct bench *b, size_t size, size_t shape, unsigned n_threads, size_t contender)
{
    const struct contender *c = &contenders[contender];
    int n_rows = (int)sizes[size], n_out = (int)shapes[shape].n_out, n_in = (int)shapes[shape].n_in;
    const struct matrix w = {.format = c->format,
                             .rows = (uint32_t)n_out,
                             .columns = (uint32_t)n_in,
                             .group = c->format == FORMAT_INT4_GROUPED ? GROUP : 0,
                             .payload = b->packed,
                             .scales = b->scales};
    struct linear linear;
    linear_init(&linear, &b->kern, b->teams[n_threads - 1], c->numerics, b->scratch, b->scratch_bytes);
    openblas_set_num_threads((int)n_threads);
    int64_t start = clock_now_ns(clock_real());
    if (c->format == FORMAT_F32)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_out, n_in, 1, b->x, n_in, b->dense, n_in, 0,
                    b->y, n_out);
    else
        linear_apply(&linear, b->y, &w, b->x, sizes[size]);
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
           shapes[shape].n_out, shapes[shape].n_in, n_threads, contenders[contender].name, operations / median,
           operations / (double)ns[b->runs - 1], operations / (double)ns[0], (double)blas[b->runs / 2] / median);
}

static bool prepare(struct bench *b, uint32_t cpu, struct err *err)
{
    uint32_t random = 1;
    kern_select(&b->kern, cpu);
    b->scratch_bytes = linear_scratch_bytes(ROWS_MAX, IN_MAX);
    b->dense = alloc_get_array(&b->alloc, WEIGHTS, sizeof(float), err);
    b->packed = b->dense ? pages_get(&b->alloc, WEIGHTS / 2, err) : NULL;
    b->scales = b->packed ? alloc_get_array(&b->alloc, WEIGHTS / 32, sizeof(float), err) : NULL;
    b->x = b->scales ? alloc_get_array(&b->alloc, (uint64_t)ROWS_MAX * IN_MAX, sizeof(float), err) : NULL;
    b->y = b->x ? alloc_get_array(&b->alloc, (uint64_t)ROWS_MAX * OUT_MAX, sizeof(float), err) : NULL;
    b->scratch = b->y ? alloc_get(&b->alloc, b->scratch_bytes, err) : NULL;
    if (!b->scratch) return false;
    for (size_t i = 0; i < (size_t)ROWS_MAX * IN_MAX; i++) {
        random = random * 1664525 + 1013904223;
        b->x[i] = (float)(int32_t)random * 0x1p-31f;
    }
    unsigned char *packed = b->packed;
    for (size_t i = 0; i < WEIGHTS; i++) {
        random = random * 1664525 + 1013904223;
        b->dense[i] = (float)(random >> 28) - 8;
        packed[i / 2] |= (unsigned char)(random >> 28 << 4 * (i % 2));
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
        if (!agree) fprintf(stderr, "%s: another result than OpenBLAS's\n", contenders[c].name);
    }
    free(want);
    return agree;
}

/* Whether a layer has such a product of that many rows; those of 64 rows are for the table only. */
static bool is_run(size_t size, size_t shape)
{
    return shapes[shape].n_routed > 0 || sizes[size] >= pass_sizes[0];
}

static int64_t median_of(const struct bench *b, size_t n_rows, size_t shape, unsigned thread, size_t contender)
{
    size_t size = 0;
    while (sizes[size] != n_rows) size++;
    return b->ns[size][shape][thread][contender][b->runs / 2];
}

/* The products of a layer. */
static double layer_ns(const struct bench *b, size_t n_tokens, unsigned thread, size_t contender)
{
    double ns = 0;
    for (size_t shape = 0; shape < SHAPES; shape++) {
        const struct shape *s = &shapes[shape];
        ns += s->n_whole * (double)median_of(b, n_tokens, shape, thread, contender);
        if (s->n_routed)
            ns += N_EXPERTS * s->n_routed * (double)median_of(b, n_tokens / ROUTED_PART, shape, thread, contender);
    }
    return ns;
}

static void print_layers(const struct bench *b)
{
    for (size_t i = 0; i < PASS_SIZES; i++)
        for (unsigned t = 0; t < THREADS_MAX; t++)
            for (size_t c = 0; c < CONTENDERS; c++) {
                double ns = layer_ns(b, pass_sizes[i], t, c);
                printf("a layer of %4zu tokens  %u threads  %-20s %8.1f ms  %5.2f x OpenBLAS\n", pass_sizes[i], t + 1,
                       contenders[c].name, ns / 1e6, layer_ns(b, pass_sizes[i], t, 0) / ns);
            }
}

static void run_all(struct bench *b)
{
    for (unsigned run = 0; run < b->runs; run++)
        for (size_t size = 0; size < SIZES; size++)
            for (size_t shape = 0; shape < SHAPES; shape++)
                for (unsigned t = 1; is_run(size, shape) && t <= THREADS_MAX; t++)
                    for (size_t c = 0; c < CONTENDERS; c++)
                        b->ns[size][shape][t - 1][c][run] = run_once(b, size, shape, t, c);
    for (size_t size = 0; size < SIZES; size++)
        for (size_t shape = 0; shape < SHAPES; shape++)
            for (unsigned t = 1; is_run(size, shape) && t <= THREADS_MAX; t++) {
                for (size_t c = 0; c < CONTENDERS; c++)
                    qsort(b->ns[size][shape][t - 1][c], b->runs, sizeof(int64_t), compare_times);
                for (size_t c = 0; c < CONTENDERS; c++) print_line(b, size, shape, t, c);
            }
    print_layers(b);
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
    alloc_put(&bench.alloc, bench.scratch);
    alloc_put(&bench.alloc, bench.y);
    alloc_put(&bench.alloc, bench.x);
    alloc_put(&bench.alloc, bench.scales);
    pages_put(&bench.alloc, bench.packed, WEIGHTS / 2);
    alloc_put(&bench.alloc, bench.dense);
    return ok ? 0 : 1;
}
