#include "run/kernel_bench.h"

#include "base/assert.h"
#include "kern/kern.h"
#include "par/team.h"
#include "plat/clock.h"
#include "plat/pages.h"
#include <stdlib.h>
#include <string.h>

enum {
    GRAIN = 8, /* outputs worth handing out */
    IN_MAX = 6144,
    OUT_MAX = 6144,
    ROWS_MAX = 512,
    GROUP = 64,
    ROW_POINTERS = 2048,
    FEW_ROWS = 8, /* up to so many the weights set the pace, and a run goes through FEW_BYTES of them */
    WAYS_OF_READING = 4,
    CASES_MAX = 2048,
    RUN_NS = 200000, /* a run of a short operation repeats it for about so long */
};
#define SET_BYTES (UINT64_C(1) << 29)
#define FEW_BYTES (UINT64_C(1) << 26)
#define PEAK_OPERATIONS (UINT64_C(1) << 27)

/* The kernel of a case, by the type of its function: one of them is set. */
struct pick {
    matmul_fn *as_matmul_fn;
    split_fn *as_split_fn;
    matmul_split_fn *as_matmul_split_fn;
    matmul_transposed_fn *as_matmul_transposed_fn;
    unpack_fn *as_unpack_fn;
    rmsnorm_fn *as_rmsnorm_fn;
    layernorm_fn *as_layernorm_fn;
    rope_fn *as_rope_fn;
    swiglu_fn *as_swiglu_fn;
    sigmoid_fn *as_sigmoid_fn;
    add_fn *as_add_fn;
    axpy_fn *as_axpy_fn;
    softmax_fn *as_softmax_fn;
    gather_dots_fn *as_gather_dots_fn;
    gather_mixes_fn *as_gather_mixes_fn;
    index_scores_fn *as_index_scores_fn;
    select_top_fn *as_select_top_fn;
    peak_fn *as_peak_fn;
};

struct kernel_case {
    struct pick pick;
    split_fn *split; /* for a product of split inputs */
    size_t n_limbs;
    uint64_t row_bytes; /* of weights */
    size_t row_scales;
    size_t n_matrices; /* of one run */
    unsigned way;      /* of reading, if nothing is picked */
    size_t repeats;
    double ns[KERNEL_BENCH_RUNS_MAX];
};

struct kernel_bench {
    struct alloc *alloc;
    struct team *team;
    const struct kernel_bench_choice *choice;
    struct kernel_bench_result *result;
    struct kernel_case *cases; /* [CASES_MAX], the figures of the result beside them, then the ways of reading */
    struct kern best;
    unsigned char *set; /* [SET_BYTES]: weights, and the f32 operands of other operations */
    float *scales;      /* [SET_BYTES / 32] */
    float *x, *y;       /* [ROWS_MAX][IN_MAX], [ROWS_MAX][OUT_MAX] */
    void *split;        /* [ROWS_MAX] rows */
    const float **rows; /* [ROW_POINTERS] */
    size_t at;          /* where in the set the next run begins */
    uint64_t sum;       /* so that no read can be left out */
};

static double now_ns(void)
{
    return (double)clock_now_ns(clock_real());
}

/* --- one run of a case --- */

struct product {
    struct kernel_bench *bench;
    const struct kernel_case *c;
    const struct kernel_figure *f;
    size_t matrix; /* number of the matrix in the set */
};

static const unsigned char *matrix_at(const struct product *p)
{
    return p->bench->set + p->matrix * p->c->row_bytes * p->f->n_out;
}

static void multiply(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct product *p = context;
    const struct kernel_bench *b = p->bench;
    const struct kernel_figure *f = p->f;
    size_t first = begin * GRAIN, n_out = (end - begin) * GRAIN;
    const unsigned char *w = matrix_at(p) + first * p->c->row_bytes;
    const float *scales = b->scales + (p->matrix * f->n_out + first) * p->c->row_scales;
    float *y = b->y + first;
    (void)thread;
    if (p->c->pick.as_matmul_fn)
        p->c->pick.as_matmul_fn(y, f->n_out, w, scales, b->x, f->n_in, f->n_rows, n_out, f->n_in, GROUP);
    else
        p->c->pick.as_matmul_split_fn(y, f->n_out, w, scales, b->split, kern_split_bytes(p->c->n_limbs, f->n_in),
                                      f->n_rows, n_out, f->n_in, GROUP);
}

/* Reads at 1, 4 or 8 places at a time, asking for what lies behind them: rows of weights are read like this. */
static uint64_t read_all(const unsigned char *data, size_t bytes, size_t places, size_t step)
{
    typedef uint64_t block __attribute__((vector_size(64)));
    block sums[2] = {{0}};
    for (const unsigned char *end = data + bytes; (size_t)(end - data) >= places * step; data += places * step)
        for (size_t i = 0; i < step; i += sizeof(block))
            for (size_t k = 0; k < places; k++) {
                block next;
                memcpy(&next, data + k * step + i, sizeof next);
                __builtin_prefetch(data + (places + k) * step + i);
                sums[k % 2] ^= next;
            }
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(block) / sizeof(uint64_t); i++) sum ^= sums[0][i] ^ sums[1][i];
    return sum;
}

static void read_share(void *context, size_t begin, size_t end, unsigned thread)
{
    static const struct {
        size_t places, step;
    } ways[WAYS_OF_READING] = {{1, 4096}, {4, 3072}, {8, 3072}, {8, 8192}};
    const struct product *p = context;
    size_t way = p->c->way, row_bytes = p->c->row_bytes * GRAIN;
    uint64_t sum =
        read_all(matrix_at(p) + begin * row_bytes, (end - begin) * row_bytes, ways[way].places, ways[way].step);
    if (thread == 0) p->bench->sum += sum;
}

static void split_rows(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct product *p = context;
    size_t stride = kern_split_bytes(p->c->n_limbs, p->f->n_in);
    (void)thread;
    p->c->split((char *)p->bench->split + begin * stride, stride, p->bench->x + begin * p->f->n_in, p->f->n_in,
                end - begin, p->f->n_in);
}

static void peak_share(void *context, size_t begin, size_t end, unsigned thread)
{
    const struct product *p = context;
    uint64_t done = 0;
    for (; begin < end; begin++) done += p->c->pick.as_peak_fn(PEAK_OPERATIONS / 2);
    if (thread == 0) p->bench->sum += done;
}

/* Operations on one thread, and on what is in the cache. */
static void call_vector(const struct kernel_bench *b, const struct pick *k, const struct kernel_figure *f)
{
    float *y = b->y, *x = b->x;
    const float *w = b->x + IN_MAX;
    if (k->as_split_fn) k->as_split_fn(b->split, kern_split_bytes(3, f->n_in), x, f->n_in, 1, f->n_in);
    if (k->as_matmul_transposed_fn)
        k->as_matmul_transposed_fn(y, b->set, b->scales, x, (size_t)f->n_out, (size_t)f->n_in, GROUP);
    if (k->as_unpack_fn) k->as_unpack_fn(y, b->set, b->scales, f->n_in, GROUP);
    if (k->as_rmsnorm_fn) k->as_rmsnorm_fn(y, x, w, f->n_in, 1e-5f);
    if (k->as_layernorm_fn) k->as_layernorm_fn(y, x, w, b->scales, f->n_in, 1e-6f);
    if (k->as_rope_fn) k->as_rope_fn(y, y + f->n_in, b->scales, b->scales, f->n_in / 2);
    if (k->as_swiglu_fn) k->as_swiglu_fn(y, x, w, f->n_in);
    if (k->as_sigmoid_fn) k->as_sigmoid_fn(y, x, f->n_in);
    if (k->as_add_fn) k->as_add_fn(y, b->scales, f->n_in);
    if (k->as_axpy_fn) k->as_axpy_fn(y, 0x1p-30f, x, f->n_in);
    if (k->as_softmax_fn) k->as_softmax_fn(y, f->n_in);
    if (k->as_gather_dots_fn) k->as_gather_dots_fn(y, f->n_out, x, f->n_in, f->n_rows, b->rows, f->n_out, f->n_in, 1);
    if (k->as_gather_mixes_fn)
        k->as_gather_mixes_fn(y, f->n_in, b->scales, f->n_out, f->n_rows, b->rows, f->n_out, f->n_in);
    if (k->as_index_scores_fn) k->as_index_scores_fn(y, x, b->scales, b->rows, f->n_out, f->n_rows, f->n_in, 0.1f);
    if (k->as_select_top_fn) (void)k->as_select_top_fn((uint32_t *)(void *)y, x, f->n_in, f->n_out);
}

static bool is_product(const struct pick *pick)
{
    return pick->as_matmul_fn || pick->as_matmul_split_fn;
}

/* Nanoseconds of one call: of a product the mean of the matrices that it goes through. */
static double run_case(struct kernel_bench *b, struct kernel_case *c, const struct kernel_figure *f)
{
    struct product p = {b, c, f, 0};
    bool reads = c->row_bytes > 0 && !is_product(&c->pick);
    if (c->pick.as_peak_fn) {
        double start = now_ns();
        team_run(b->team, team_threads(b->team), 1, peak_share, &p);
        return now_ns() - start;
    }
    if (!is_product(&c->pick) && !reads) {
        double start = now_ns();
        for (size_t i = 0; i < c->repeats; i++) call_vector(b, &c->pick, f);
        return (now_ns() - start) / (double)c->repeats;
    }
    if (c->split) team_run(b->team, f->n_rows, 1, split_rows, &p);
    uint64_t matrix_bytes = c->row_bytes * f->n_out;
    if (b->at + c->n_matrices * matrix_bytes > SET_BYTES) b->at = 0;
    p.matrix = (size_t)((b->at + matrix_bytes - 1) / matrix_bytes);
    if ((p.matrix + c->n_matrices) * matrix_bytes > SET_BYTES) p.matrix = 0;
    double start = now_ns();
    for (size_t i = 0; i < c->n_matrices; i++, p.matrix++)
        team_run(b->team, f->n_out / GRAIN, 1, reads ? read_share : multiply, &p);
    double took = now_ns() - start;
    b->at = p.matrix * matrix_bytes;
    return took / (double)c->n_matrices;
}

/* --- the list of cases --- */

static struct kernel_case *add_case(struct kernel_bench *b, const struct kern_entry *entry, size_t n_rows, size_t n_out,
                                    size_t n_in)
{
    ASSERT(b->result->n < CASES_MAX - WAYS_OF_READING);
    struct kernel_figure *f = &b->result->figures[b->result->n];
    *f = (struct kernel_figure){.op = entry->op, .isa = entry->isa, .n_rows = n_rows, .n_out = n_out, .n_in = n_in};
    struct kernel_case *c = &b->cases[b->result->n++];
    c->repeats = 1;
    return c;
}

/* What the name of an operation on weights tells about them. */
static uint64_t weight_row_bytes(const char *op, size_t n_in)
{
    if (strstr(op, "f32")) return 4 * n_in;
    if (strstr(op, "int8")) return n_in;
    if (strstr(op, "int4")) return n_in / 2;
    if (strstr(op, "int3")) return n_in / 64 * 24;
    return n_in / 4;
}

static size_t weight_row_scales(const char *op, size_t n_in)
{
    if (strstr(op, "f32")) return 0;
    return strstr(op, "grouped") || strstr(op, "int3") ? n_in / GROUP : 1;
}

static void add_products(struct kernel_bench *b, const struct kern_entry *entry, const struct pick *pick)
{
    static const size_t rows[] = {1, 2, 4, 8, 64, 512}, outs[] = {2048, 6144};
    const char *limb = strstr(entry->op, "limb");
    bool is_reference = strcmp(entry->isa, "ref") == 0;
    for (size_t shape = 0; shape < (is_reference ? 1 : 2); shape++) {
        for (size_t r = 0; r < (is_reference ? 1 : sizeof rows / sizeof *rows); r++) {
            size_t n_out = is_reference ? 64 : outs[shape], n_in = outs[1 - shape];
            struct kernel_case *c = add_case(b, entry, rows[r], n_out, n_in);
            struct kernel_figure *f = &b->result->figures[b->result->n - 1];
            c->pick = *pick;
            c->row_bytes = weight_row_bytes(entry->op, n_in);
            c->row_scales = weight_row_scales(entry->op, n_in);
            f->bytes = (c->row_bytes + c->row_scales * sizeof(float)) * n_out;
            f->operations = (uint64_t)2 * rows[r] * n_out * n_in;
            c->n_matrices = rows[r] > FEW_ROWS || is_reference ? 1 : FEW_BYTES / (c->row_bytes * n_out);
            if (!limb) continue;
            c->n_limbs = (size_t)(limb[4] - '0');
            c->split = c->n_limbs == 3             ? b->best.split_limb3_int4
                       : strstr(entry->op, "int8") ? b->best.split_limb1_int8
                                                   : b->best.split_limb1_int4;
        }
    }
}

/* The shape of each other operation, as the model meets it. */
static void add_vector(struct kernel_bench *b, const struct kern_entry *entry, const struct pick *k)
{
    struct kernel_case *c = add_case(b, entry, 1, 0, IN_MAX);
    struct kernel_figure *f = &b->result->figures[b->result->n - 1];
    c->pick = *k;
    if (k->as_peak_fn) f->n_in = 0, f->operations = PEAK_OPERATIONS * b->result->n_threads;
    if (k->as_rmsnorm_fn || k->as_add_fn || k->as_axpy_fn) f->bytes = 12 * f->n_in;
    if (k->as_axpy_fn) f->operations = 2 * f->n_in;
    if (k->as_split_fn) f->bytes = 4 * f->n_in;
    if (k->as_unpack_fn) f->bytes = weight_row_bytes(entry->op, f->n_in) + 4 * f->n_in;
    if (k->as_layernorm_fn) f->n_in = 128, f->bytes = 16 * f->n_in;
    if (k->as_rope_fn) f->n_in = 64, f->bytes = 8 * f->n_in;
    if (k->as_swiglu_fn) f->n_in = 2048, f->bytes = 12 * f->n_in;
    if (k->as_softmax_fn) f->n_in = 2048, f->bytes = 8 * f->n_in;
    if (k->as_sigmoid_fn) f->n_in = 256, f->bytes = 8 * f->n_in;
    if (k->as_select_top_fn) f->n_in = 131072, f->n_out = 2048, f->bytes = 4 * f->n_in;
    if (k->as_gather_dots_fn) f->n_rows = 32, f->n_out = ROW_POINTERS, f->n_in = 576;
    if (k->as_gather_mixes_fn) f->n_rows = 32, f->n_out = ROW_POINTERS, f->n_in = 512;
    if (k->as_index_scores_fn) f->n_rows = 32, f->n_out = ROW_POINTERS, f->n_in = 128;
    if (k->as_matmul_transposed_fn) f->n_out = 192, f->n_in = 512;
    if (f->bytes || k->as_peak_fn) return;
    f->bytes = (k->as_matmul_transposed_fn ? weight_row_bytes(entry->op, f->n_in) : 4 * f->n_in) * f->n_out;
    f->operations = (uint64_t)2 * f->n_rows * f->n_out * f->n_in;
}

static bool contains(const struct kern_entry *entry, const char *only)
{
    char name[128];
    size_t length = strlen(entry->op);
    ASSERT(length + strlen(entry->isa) + 2 <= sizeof name);
    memcpy(name, entry->op, length);
    name[length] = '_';
    memcpy(name + length + 1, entry->isa, strlen(entry->isa) + 1);
    return strstr(name, only) != NULL;
}

static void add_cases(struct kernel_bench *b)
{
    const struct kern_entry *entries;
    size_t n = kern_entries(&entries);
    for (size_t i = 0; i < n; i++) {
        const struct kern_entry *entry = &entries[i];
        struct pick pick = {0};
        struct kern one;
        bool is_peak = strncmp(entry->op, "peak_", 5) == 0;
        if ((b->choice->cpu & entry->needs) != entry->needs) continue;
        if (!is_peak && !contains(entry, b->choice->only)) continue;
        if (is_peak && strcmp(entry->isa, "ref") == 0 && !contains(entry, b->choice->only)) continue;
        kern_select(&one, 0);
        kern_put(&one, i);
#define X(name, type) \
    if (strcmp(#name, entry->op) == 0) pick.as_##type = one.name;
        KERN_OPS(X)
#undef X
        if (is_product(&pick))
            add_products(b, entry, &pick);
        else
            add_vector(b, entry, &pick);
    }
}

/* --- running them --- */

static bool prepare(struct kernel_bench *b, struct err *err)
{
    uint32_t random = 1;
    b->set = pages_get(b->alloc, SET_BYTES, err);
    b->scales = b->set ? pages_get(b->alloc, SET_BYTES / 8, err) : NULL;
    b->x = b->scales ? alloc_get_array(b->alloc, (uint64_t)ROWS_MAX * IN_MAX, sizeof(float), err) : NULL;
    b->y = b->x ? alloc_get_array(b->alloc, (uint64_t)ROWS_MAX * OUT_MAX, sizeof(float), err) : NULL;
    b->split = b->y ? alloc_get(b->alloc, ROWS_MAX * kern_split_bytes(3, IN_MAX), err) : NULL;
    b->rows = b->split ? alloc_get_array(b->alloc, ROW_POINTERS, sizeof *b->rows, err) : NULL;
    b->cases = b->rows ? alloc_get_array(b->alloc, CASES_MAX, sizeof *b->cases, err) : NULL;
    b->result->figures = b->cases ? alloc_get_array(b->alloc, CASES_MAX, sizeof *b->result->figures, err) : NULL;
    if (!b->result->figures || !team_new(&b->team, b->alloc, b->choice->n_threads, err)) return false;
    b->result->n_threads = team_threads(b->team);
    kern_select(&b->best, b->choice->cpu);
    /* Numbers that are harmless as floats too: 0.5 to 1, of either sign. */
    for (size_t i = 0; i < SET_BYTES / sizeof(uint32_t); i++) {
        random = random * 1664525 + 1013904223;
        uint32_t bits = (random >> 9) | 0x3f000000 | (random << 31 & 0x80000000u);
        memcpy(b->set + i * sizeof bits, &bits, sizeof bits);
    }
    memcpy(b->x, b->set, (size_t)ROWS_MAX * IN_MAX * sizeof *b->x);
    for (size_t i = 0; i < SET_BYTES / 8 / sizeof(float); i++) b->scales[i] = 0.01f;
    for (size_t i = 0; i < ROW_POINTERS; i++)
        b->rows[i] = (const float *)(const void *)b->set + i * 1021 % ROW_POINTERS * 576;
    return true;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sort_times(struct kernel_figure *f, struct kernel_case *c, unsigned runs)
{
    qsort(c->ns, runs, sizeof *c->ns, compare_times);
    f->ns = c->ns[runs / 2];
    f->ns_min = c->ns[0];
    f->ns_max = c->ns[runs - 1];
}

/* The number of times that a short operation is repeated: found by doubling. */
static void find_repeats(struct kernel_bench *b)
{
    for (size_t i = 0; i < b->result->n; i++) {
        struct kernel_case *c = &b->cases[i];
        if (is_product(&c->pick) || c->pick.as_peak_fn) continue;
        while (run_case(b, c, &b->result->figures[i]) * (double)c->repeats < RUN_NS) c->repeats *= 2;
    }
}

static void judge(struct kernel_bench *b, const struct kernel_figure *reading)
{
    struct kernel_bench_result *r = b->result;
    for (size_t i = 0; i < WAYS_OF_READING; i++)
        if ((double)reading[i].bytes / reading[i].ns * 1e9 > r->read_bytes_per_s)
            r->read_bytes_per_s = (double)reading[i].bytes / reading[i].ns * 1e9;
    for (size_t i = 0; i < r->n; i++) {
        double rate = (double)r->figures[i].operations / r->figures[i].ns * 1e9;
        double *peak = strcmp(r->figures[i].op, "peak_f32") == 0    ? &r->peak_f32_per_s
                       : strcmp(r->figures[i].op, "peak_int8") == 0 ? &r->peak_int8_per_s
                                                                    : NULL;
        if (peak && rate > *peak) *peak = rate;
    }
    for (size_t i = 0; i < r->n; i++) {
        struct kernel_figure *f = &r->figures[i];
        double rate = (double)f->operations / f->ns * 1e9, peak = r->peak_f32_per_s;
        if (b->cases[i].n_limbs) rate *= (double)b->cases[i].n_limbs, peak = r->peak_int8_per_s;
        if (strcmp(f->op, "peak_int8") == 0) peak = r->peak_int8_per_s;
        if (!is_product(&b->cases[i].pick)) peak *= b->cases[i].pick.as_peak_fn ? 1 : 1.0 / r->n_threads;
        f->peak_share = peak > 0 ? rate / peak : 0;
    }
}

static void run_all(struct kernel_bench *b)
{
    struct kernel_figure reading[WAYS_OF_READING];
    add_cases(b);
    struct kernel_case *ways = &b->cases[b->result->n];
    for (unsigned i = 0; i < WAYS_OF_READING; i++) {
        reading[i] = (struct kernel_figure){.op = "read", .n_out = OUT_MAX, .n_in = IN_MAX, .n_rows = 1};
        ways[i] = (struct kernel_case){.way = i, .row_bytes = IN_MAX, .n_matrices = 3};
        reading[i].bytes = (uint64_t)OUT_MAX * IN_MAX;
    }
    find_repeats(b);
    for (unsigned run = 0; run < b->choice->runs; run++) {
        for (unsigned i = 0; i < WAYS_OF_READING; i++) ways[i].ns[run] = run_case(b, &ways[i], &reading[i]);
        for (size_t i = 0; i < b->result->n; i++)
            b->cases[i].ns[run] = run_case(b, &b->cases[i], &b->result->figures[i]);
    }
    for (unsigned i = 0; i < WAYS_OF_READING; i++) sort_times(&reading[i], &ways[i], b->choice->runs);
    for (size_t i = 0; i < b->result->n; i++) sort_times(&b->result->figures[i], &b->cases[i], b->choice->runs);
    judge(b, reading);
}

bool kernel_bench_run(struct kernel_bench_result *result, struct alloc *alloc, const struct kernel_bench_choice *choice,
                      struct err *err)
{
    struct kernel_bench b = {.alloc = alloc, .choice = choice, .result = result};
    ASSERT(choice->runs >= 1);
    ASSERT(choice->runs <= KERNEL_BENCH_RUNS_MAX);
    *result = (struct kernel_bench_result){0};
    bool ok = prepare(&b, err);
    if (ok) run_all(&b);
    team_free(b.team);
    alloc_put(alloc, b.cases);
    alloc_put(alloc, (void *)b.rows);
    alloc_put(alloc, b.split);
    alloc_put(alloc, b.y);
    alloc_put(alloc, b.x);
    if (b.scales) pages_put(alloc, b.scales, SET_BYTES / 8);
    if (b.set) pages_put(alloc, b.set, SET_BYTES);
    return ok;
}

void kernel_bench_fini(struct kernel_bench_result *result, struct alloc *alloc)
{
    alloc_put(alloc, result->figures);
    *result = (struct kernel_bench_result){0};
}
