#include "support/stream_bench.h"

#include "kern/kern.h"
#include "kern/layout_int.h"
#include "plat/cpu.h"
#include "support/guarded.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum {
    SET_BYTES = 1 << 30,
    RUN_BYTES = 1 << 27, /* one run reads so much, and the next goes on behind it */
    IN_MAX = 6144,
    OUT_MAX = 6144,
    THREADS_MAX = 2,
    ROUNDS = 9,
    GROUP = 64,
};

struct product {
    const char *name;
    enum layout layout;
    bool is_grouped;
    size_t n_out, n_in;
    uint32_t cpu;
    const struct reading *reading; /* or: */
    matmul_fn *matmul;             /* or: */
    split_fn *split;
    matmul_split_fn *matmul_split;
    double rates[THREADS_MAX][ROUNDS]; /* bytes of weights and their scales per nanosecond */
};

struct set {
    unsigned char *weights; /* [SET_BYTES] */
    float *scales;          /* [SET_BYTES / 32], the payload of a group of 64 */
    float *x;               /* [IN_MAX] */
    void *split;
    size_t at; /* where the next run begins */
};

struct job {
    const struct set *set;
    const struct product *product;
    size_t at;
    unsigned thread, n_threads;
    float *y; /* [OUT_MAX] */
    double ns;
};

static double now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Ways of doing nothing but read: at so many places at a time, each so long, asking for what will be read behind them.
 * The fastest of them is what counts as the speed of memory. */
static const struct reading {
    const char *name;
    size_t places, step;
} readings[] = {{"read 1", 1, 4096}, {"read 4", 4, 3072}, {"read 8", 8, 3072}, {"read 8 long", 8, 8192}};

static uint64_t read_all(const unsigned char *data, size_t bytes, const struct reading *how)
{
    typedef uint64_t block __attribute__((vector_size(64)));
    block sums[2] = {{0}};
    size_t places = how->places, step = how->step;
    for (const unsigned char *end = data + bytes; (size_t)(end - data) >= places * step; data += places * step)
        for (size_t i = 0; i < step; i += sizeof(block))
            for (size_t k = 0; k < places; k++) {
                block next;
                memcpy(&next, data + k * step + i, sizeof next);
                __builtin_prefetch(data + (places + k) * step + i);
                sums[k % 2] ^= next;
            }
    uint64_t sum = 0;
    for (size_t i = 0; i < 8; i++) sum ^= sums[0][i] ^ sums[1][i];
    return sum;
}

/* This thread's share of every matrix: a range of its outputs. */
static void *work(void *argument)
{
    struct job *job = argument;
    const struct product *p = job->product;
    const struct set *set = job->set;
    size_t row_bytes = layout_row_bytes(p->layout, p->n_in), matrix_bytes = row_bytes * p->n_out;
    size_t rows = p->n_out / job->n_threads, first = rows * job->thread;
    double start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t at = job->at; at + matrix_bytes <= job->at + RUN_BYTES; at += matrix_bytes) {
        const unsigned char *w = set->weights + at + first * row_bytes;
        size_t row_scales = layout_row_scales(p->n_in, p->is_grouped ? GROUP : 0);
        const float *scales = set->scales + (at / row_bytes + first) * row_scales;
        if (p->matmul)
            p->matmul(job->y, rows, w, scales, set->x, p->n_in, 1, rows, p->n_in, GROUP);
        else if (p->matmul_split)
            p->matmul_split(job->y, rows, w, scales, set->split, 0, 1, rows, p->n_in, GROUP);
        else
            job->y[0] += (float)read_all(w, rows * row_bytes, p->reading);
    }
    job->ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    return NULL;
}

/* Bytes per nanosecond. Time on a processor counts, so that others on the machine cost less than they might. */
static double run_once(struct set *set, const struct product *p, unsigned n_threads, float *const y[THREADS_MAX])
{
    struct job jobs[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    size_t row_bytes = layout_row_bytes(p->layout, p->n_in), n_matrices = RUN_BYTES / (row_bytes * p->n_out);
    size_t row_scales = layout_row_scales(p->n_in, p->is_grouped ? GROUP : 0);
    if (set->at + RUN_BYTES > SET_BYTES) set->at = 0;
    for (unsigned i = 0; i < n_threads; i++)
        jobs[i] = (struct job){.set = set, .product = p, .at = set->at, .thread = i, .n_threads = n_threads, .y = y[i]};
    if (p->split) p->split(set->split, 0, set->x, 0, 1, p->n_in);
    for (unsigned i = 0; i < n_threads; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    double longest = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        if (jobs[i].ns > longest) longest = jobs[i].ns;
    }
    set->at += RUN_BYTES;
    if (!p->reading) row_bytes += row_scales * sizeof(float);
    return (double)(n_matrices * p->n_out * row_bytes) / longest;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare_doubles);
    return values[ROUNDS / 2];
}

static size_t add_products(struct product *products, size_t n, uint32_t cpu, size_t n_out, size_t n_in)
{
    struct kern k;
    kern_select(&k, cpu);
    const struct product all[] = {
        {.name = "int4 f32", .layout = LAYOUT_INT4, .matmul = k.matmul_int4},
        {.name = "int4 limb3", .layout = LAYOUT_INT4, .split = k.split_limb3_int4, .matmul_split = k.matmul_limb3_int4},
        {.name = "int4 limb1", .layout = LAYOUT_INT4, .split = k.split_limb1_int4, .matmul_split = k.matmul_limb1_int4},
        {.name = "int4-g64 f32", .layout = LAYOUT_INT4, .is_grouped = true, .matmul = k.matmul_int4_grouped},
        {.name = "int4-g64 limb3",
         .layout = LAYOUT_INT4,
         .is_grouped = true,
         .split = k.split_limb3_int4,
         .matmul_split = k.matmul_limb3_int4_grouped},
        {.name = "int4-g64 limb1",
         .layout = LAYOUT_INT4,
         .is_grouped = true,
         .split = k.split_limb1_int4,
         .matmul_split = k.matmul_limb1_int4_grouped},
        {.name = "int8 f32", .layout = LAYOUT_INT8, .matmul = k.matmul_int8},
        {.name = "int8 limb1", .layout = LAYOUT_INT8, .split = k.split_limb1_int8, .matmul_split = k.matmul_limb1_int8},
    };
    for (size_t i = 0; i < COUNT(all); i++) {
        products[n] = all[i];
        products[n].cpu = cpu;
        products[n].n_out = n_out;
        products[n++].n_in = n_in;
    }
    return n;
}

static void print_products(struct product *products, size_t n)
{
    double read[THREADS_MAX] = {0}, rates[THREADS_MAX];
    for (size_t i = 0; i < n; i++) {
        struct product *p = &products[i];
        for (unsigned t = 0; t < THREADS_MAX; t++) rates[t] = median(p->rates[t]);
        if (p->reading) {
            for (unsigned t = 0; t < THREADS_MAX; t++) read[t] = rates[t] > read[t] ? rates[t] : read[t];
            printf("%-16s one thread %6.1f GB/s, two %6.1f GB/s\n", p->name, rates[0], rates[1]);
            continue;
        }
        printf("%-16s %4zux%zu  %-9s one thread %6.1f GB/s %4.0f %%   two %6.1f GB/s %4.0f %%\n", p->name, p->n_out,
               p->n_in, p->cpu & ~(uint32_t)CPU_AVX2 ? "all" : "avx2 only", rates[0], 100 * rates[0] / read[0],
               rates[1], 100 * rates[1] / read[1]);
    }
}

int stream_bench(void)
{
    static struct product products[64];
    struct rng rng = {1};
    struct set set = {.weights = aligned_alloc(1 << 21, SET_BYTES),
                      .split = aligned_alloc(64, kern_split_bytes(3, IN_MAX))};
    size_t n_scales = SET_BYTES / (GROUP / 2), n = 0;
    set.scales = malloc(n_scales * sizeof(float));
    set.x = malloc(IN_MAX * sizeof(float));
    float *y[THREADS_MAX];
    for (unsigned i = 0; i < THREADS_MAX; i++) y[i] = calloc(OUT_MAX, sizeof(float));
    if (!set.weights || !set.split || !set.scales || !set.x || !y[0] || !y[1]) return 1;
    (void)madvise(set.weights, SET_BYTES, MADV_HUGEPAGE); /* as the slots of experts do */
    for (size_t i = 0; i < SET_BYTES; i += 8) memcpy(set.weights + i, &(uint64_t){rng_next(&rng)}, 8);
    for (size_t i = 0; i < n_scales; i++) set.scales[i] = 0.01f;
    for (size_t i = 0; i < IN_MAX; i++) set.x[i] = rng_float(&rng);

    for (size_t i = 0; i < COUNT(readings); i++)
        products[n++] = (struct product){
            .name = readings[i].name, .layout = LAYOUT_INT4, .n_out = 2048, .n_in = 6144, .reading = &readings[i]};
    uint32_t cpu = cpu_mask();
    for (unsigned tall = 0; tall < 2; tall++) {
        size_t n_out = tall ? 6144 : 2048, n_in = tall ? 2048 : 6144;
        n = add_products(products, n, cpu, n_out, n_in);
        if (cpu & ~(uint32_t)CPU_AVX2 && cpu & CPU_AVX2) n = add_products(products, n, CPU_AVX2, n_out, n_in);
    }
    for (unsigned round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < n; i++)
            for (unsigned t = 0; t < THREADS_MAX; t++)
                products[i].rates[t][round] = run_once(&set, &products[i], t + 1, y);
    print_products(products, n);
    for (unsigned i = 0; i < THREADS_MAX; i++) free(y[i]);
    free(set.x);
    free(set.scales);
    free(set.split);
    free(set.weights);
    return 0;
}
