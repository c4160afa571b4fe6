/* linear.h: products of every format near float64, in both numerics, with the same bits for any number of rows and
 * threads, alone and in pairs. */
#include "model/linear.h"
#include "fmt/dequantise.h"
#include "plat/cpu.h"
#include "support/check.h"
#include "support/guarded.h"

#include <math.h>
#include <stdlib.h>

enum { COLUMNS = 832, OUTS = 37, ROWS = 150 }; /* past LINEAR_ROWS twice; not a multiple of what kernels like */

struct subject {
    enum weight_format format;
    uint32_t group;
    double bounds[2]; /* relative error in the exact and the int8 numerics */
};

#define EXACT 5e-7 /* sums of 832 f32 products in sixteen lanes */
#define EIGHT 1e-2 /* rounding to 255 values; a lone giant among the 16 of a scale leaves 9e-3 of itself */

static const struct subject subjects[] = {
    {FORMAT_F32, 0, {EXACT, EXACT}},
    {FORMAT_INT8_ROW, 0, {EXACT, EIGHT}},
    {FORMAT_INT4_ROW, 0, {EXACT, EIGHT}},
    {FORMAT_INT4_GROUPED, 64, {EXACT, EIGHT}},
    {FORMAT_INT4_GROUPED, 128, {EXACT, EIGHT}},
    {FORMAT_INT4_GROUPED, 48, {EXACT, EXACT}},
    {FORMAT_INT2_ROW, 0, {EXACT, EXACT}},
    {FORMAT_INT3_G64, 64, {EXACT, EXACT}},
};

static struct matrix make_matrix(struct rng *rng, enum weight_format format, uint32_t group)
{
    struct matrix w = {.format = format, .rows = OUTS, .columns = COLUMNS, .group = group};
    size_t bytes = OUTS * format_row_bytes(format, COLUMNS), n_scales = format_scales(format, OUTS, COLUMNS, group);
    unsigned char *payload = malloc(bytes);
    float *scales = malloc((n_scales + 1) * sizeof *scales);
    assert_non_null(payload);
    assert_non_null(scales);
    for (size_t i = 0; i < bytes; i++) payload[i] = (unsigned char)rng_next(rng);
    if (format == FORMAT_F32)
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            memcpy(payload + i * sizeof(float), &(float){rng_float(rng)}, sizeof(float));
    for (size_t i = 0; i < n_scales; i++) scales[i] = 0.01f + 0.01f * fabsf(rng_float(rng));
    w.payload = payload;
    w.scales = n_scales ? scales : NULL;
    if (!n_scales) free(scales);
    return w;
}

static void free_matrix(struct matrix *w)
{
    free((void *)(uintptr_t)w->payload);
    free((void *)(uintptr_t)w->scales);
}

static float *make_inputs(struct rng *rng)
{
    float *x = malloc((size_t)ROWS * COLUMNS * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) x[i] = rng_float(rng) * (rng_below(rng, 100) ? 1 : 50);
    return x;
}

static double error_of(const float *y, const struct matrix *w, const float *x)
{
    double squares = 0, errors = 0;
    float *row = malloc(COLUMNS * sizeof *row);
    assert_non_null(row);
    for (uint32_t o = 0; o < OUTS; o++) {
        dequantise_row(row, w, o);
        for (size_t r = 0; r < ROWS; r++) {
            double want = 0;
            for (size_t i = 0; i < COLUMNS; i++) want += (double)row[i] * (double)x[r * COLUMNS + i];
            squares += want * want;
            errors += (want - (double)y[r * OUTS + o]) * (want - (double)y[r * OUTS + o]);
        }
    }
    free(row);
    return sqrt(errors / squares);
}

struct bench {
    struct alloc alloc;
    struct team *team;
    struct linear linear;
    void *scratch;
};

static void bench_init(struct bench *b, unsigned n_threads, uint32_t cpu, enum numerics numerics)
{
    struct err err = {0};
    struct kern kern;
    uint64_t bytes = linear_scratch_bytes(ROWS, COLUMNS);
    *b = (struct bench){.scratch = malloc(bytes)};
    assert_non_null(b->scratch);
    assert_true(team_new(&b->team, &b->alloc, n_threads, &err));
    kern_select(&kern, cpu);
    linear_init(&b->linear, &kern, b->team, numerics, b->scratch, bytes);
}

static void bench_fini(struct bench *b)
{
    team_free(b->team);
    free(b->scratch);
    assert_int_equal(b->alloc.live, 0);
}

/* All rows at once, on so many threads, with those kernels, must give these bits. */
static void expect_same(const struct matrix *w, const float *x, const float *want, enum numerics numerics)
{
    static const size_t cuts[] = {1, 2, 7, LINEAR_ROWS, LINEAR_ROWS + 1, ROWS};
    const uint32_t masks[] = {0, cpu_mask() & CPU_AVX2, cpu_mask()};
    float *got = malloc((size_t)ROWS * OUTS * sizeof *got);
    assert_non_null(got);
    for (size_t m = 0; m < COUNT(masks); m++) {
        struct bench b;
        bench_init(&b, (unsigned)m + 1, masks[m], numerics);
        for (size_t c = masks[m] ? 0 : COUNT(cuts) - 1; c < COUNT(cuts); c++) {
            for (size_t r = 0; r < ROWS; r += cuts[c])
                linear_apply(&b.linear, got + r * OUTS, w, x + r * COLUMNS, r + cuts[c] < ROWS ? cuts[c] : ROWS - r);
            assert_memory_equal(got, want, (size_t)ROWS * OUTS * sizeof *got);
        }
        bench_fini(&b);
    }
    free(got);
}

static void every_format_is_near_and_independent(void **state)
{
    (void)state;
    struct rng rng = {20261202};
    float *x = make_inputs(&rng), *y = malloc((size_t)ROWS * OUTS * sizeof *y);
    assert_non_null(y);
    for (size_t s = 0; s < COUNT(subjects); s++) {
        struct matrix w = make_matrix(&rng, subjects[s].format, subjects[s].group);
        for (int numerics = NUMERICS_EXACT; numerics <= NUMERICS_INT8; numerics++) {
            struct bench b;
            bench_init(&b, 2, cpu_mask(), (enum numerics)numerics);
            linear_apply(&b.linear, y, &w, x, ROWS);
            bench_fini(&b);
            double error = error_of(y, &w, x), bound = subjects[s].bounds[numerics];
            printf("  %-12s group %3u, %-5s: error %.1e\n", format_name(w.format), w.group, numerics ? "int8" : "exact",
                   error);
            assert_true(error < bound);
            assert_true(bound < 1e-3 || error > 1e-4); /* or the int8 kernels were not used */
            expect_same(&w, x, y, (enum numerics)numerics);
        }
        free_matrix(&w);
    }
    free(y);
    free(x);
}

static void pairs_are_two_products(void **state)
{
    (void)state;
    struct rng rng = {20261203};
    size_t n = (size_t)ROWS * OUTS;
    float *x = make_inputs(&rng), *want = malloc(4 * n * sizeof *want), *got = want + 2 * n;
    assert_non_null(want);
    for (size_t i = 0; i < COUNT(subjects) * COUNT(subjects); i++) {
        const struct subject *first = &subjects[i / COUNT(subjects)], *second = &subjects[i % COUNT(subjects)];
        struct matrix a = make_matrix(&rng, first->format, first->group);
        struct matrix b = make_matrix(&rng, second->format, second->group);
        struct bench bench;
        bench_init(&bench, 2, cpu_mask(), i % 3 ? NUMERICS_EXACT : NUMERICS_INT8);
        linear_apply(&bench.linear, want, &a, x, ROWS);
        linear_apply(&bench.linear, want + n, &b, x, ROWS);
        linear_apply_pair(&bench.linear, got, &a, got + n, &b, x, ROWS);
        assert_memory_equal(want, got, 2 * n * sizeof *got);
        bench_fini(&bench);
        free_matrix(&b);
        free_matrix(&a);
    }
    free(want);
    free(x);
}

/* A number that is not finite spoils its own row, and only that. */
static void damage_stays_in_its_row(void **state)
{
    (void)state;
    struct rng rng = {20261204};
    float *x = make_inputs(&rng), *whole = malloc((size_t)ROWS * OUTS * sizeof *whole);
    float *y = malloc((size_t)ROWS * OUTS * sizeof *y);
    assert_non_null(whole);
    assert_non_null(y);
    for (size_t s = 0; s < COUNT(subjects); s++) {
        struct matrix w = make_matrix(&rng, subjects[s].format, subjects[s].group);
        struct bench b;
        bench_init(&b, 2, cpu_mask(), s % 2 ? NUMERICS_INT8 : NUMERICS_EXACT);
        linear_apply(&b.linear, whole, &w, x, ROWS);
        float before = x[70 * COLUMNS + 333];
        x[70 * COLUMNS + 333] = s % 3 ? NAN : -INFINITY;
        linear_apply(&b.linear, y, &w, x, ROWS);
        x[70 * COLUMNS + 333] = before;
        /* an infinity times a weight of zero is NaN as well, so every format has something to show */
        for (size_t o = 0; o < OUTS; o++) assert_false(isfinite(y[70 * OUTS + o]));
        assert_memory_equal(y, whole, (size_t)70 * OUTS * sizeof *y);
        assert_memory_equal(y + 71 * OUTS, whole + 71 * OUTS, (size_t)(ROWS - 71) * OUTS * sizeof *y);
        bench_fini(&b);
        free_matrix(&w);
    }
    free(y);
    free(whole);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_is_near_and_independent),
        cmocka_unit_test(pairs_are_two_products),
        cmocka_unit_test(damage_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
