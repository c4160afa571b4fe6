/* Promise P1 for the forward pass: the same bits for any number of threads, any cut of a prompt into passes, any
 * neighbours in a pass, any kernels, and with the selection forced where it would keep everything. */
#include "plat/cpu.h"
#include "support/check.h"
#include "support/reference.h"
#include "support/tiny_model.h"

#include <stdlib.h>

#define FIXTURES "tests/fixtures/glm52-tiny/"

static const char *const fixtures[] = {"plain", "indexshare", "freq-oddsize", "bias", "groups", "fp8"};
static const struct forward_options options = {.rows_max = 128, .logit_rows_max = 128, .positions_max = 256};

struct subject {
    struct tiny_model model;
    uint32_t *ids;
    size_t n;
    float *want; /* [n][vocab]: one pass, one thread, scalar kernels */
};

static void feed_alone(struct subject *s, unsigned n_threads, uint32_t cpu, const struct forward_options *with,
                       size_t chunk, float *out)
{
    struct tiny_run run;
    struct kv kv;
    tiny_run_init(&run, &s->model, NULL, n_threads, cpu, with);
    kv_init(&kv, forward_kv_pool(run.forward));
    tiny_run_feed(&run, &kv, s->ids, s->n, chunk, out);
    kv_fini(&kv);
    tiny_run_fini(&run);
}

static void subject_open(struct subject *s, const char *fixture)
{
    char dir[128];
    struct reference reference;
    snprintf(dir, sizeof dir, FIXTURES "%s", fixture);
    tiny_model_open(&s->model, dir);
    reference_open(&reference, dir);
    s->ids = reference_ids(&reference, "long", "ids", &s->n);
    reference_close(&reference);
    s->want = calloc(s->n * s->model.config.vocab, sizeof *s->want);
    feed_alone(s, 1, 0, &options, s->n, s->want);
}

static void subject_close(struct subject *s)
{
    free(s->want);
    free(s->ids);
    tiny_model_close(&s->model);
}

static void expect_same(const struct subject *s, const float *got, const char *what, unsigned figure)
{
    size_t vocab = s->model.config.vocab;
    for (size_t i = 0; i < s->n; i++)
        if (memcmp(got + i * vocab, s->want + i * vocab, vocab * sizeof *got) != 0)
            fail_msg("other bits at position %zu with %s %u", i, what, figure);
}

static void threads_chunks_and_kernels_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        struct subject s;
        subject_open(&s, fixtures[i]);
        float *got = calloc(s.n * s.model.config.vocab, sizeof *got);
        static const unsigned threads[] = {1, 2, 3, 7};
        static const size_t chunks[] = {96, 1, 7, 17, 64};
        for (size_t t = 0; t < 4; t++) {
            feed_alone(&s, threads[t], cpu_mask(), &options, s.n, got);
            expect_same(&s, got, "threads", threads[t]);
        }
        for (size_t c = 0; c < 5; c++) {
            feed_alone(&s, 2, cpu_mask(), &options, chunks[c], got);
            expect_same(&s, got, "rows a pass", (unsigned)chunks[c]);
        }
        for (uint32_t mask = cpu_mask(); mask; mask &= mask - 1) { /* rule out one instruction set after the other */
            feed_alone(&s, 2, mask & (mask - 1), &options, 17, got);
            expect_same(&s, got, "instruction sets", mask & (mask - 1));
        }
        free(got);
        subject_close(&s);
    }
}

static void selecting_everything_equals_dense(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        struct subject s;
        subject_open(&s, fixtures[i]);
        float *got = calloc(s.n * s.model.config.vocab, sizeof *got);
        struct forward_options forced = options;
        forced.select_always = true;
        feed_alone(&s, 2, cpu_mask(), &forced, s.n, got);
        expect_same(&s, got, "forced selection", 1);
        free(got);
        subject_close(&s);
    }
}

/* Narrower state is another function, but as independent of passes and threads as the exact one. */
static void narrow_state_is_independent_too(void **state)
{
    (void)state;
    for (int storage = KV_STORAGE_F16; storage < KV_STORAGES; storage++) {
        struct subject s;
        subject_open(&s, "indexshare");
        float *got = calloc(s.n * s.model.config.vocab, sizeof *got);
        struct forward_options narrow = options;
        narrow.kv_storage = storage;
        size_t n = s.n * s.model.config.vocab;
        float *exact = malloc(n * sizeof *exact);
        memcpy(exact, s.want, n * sizeof *exact);
        feed_alone(&s, 1, 0, &narrow, s.n, s.want);
        double difference = relative_error(s.want, exact, n);
        print_message("%s: logits %.1e from exact\n", kv_codec_of(storage)->name, difference);
        assert_true(difference > 0); /* or the storage was not used */
        feed_alone(&s, 3, cpu_mask(), &narrow, 7, got);
        expect_same(&s, got, "rows a pass", 7);
        free(exact);
        free(got);
        subject_close(&s);
    }
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Several sequences, each at a place of its own in the text, share passes in random portions. */
static void neighbours_change_no_bit(void **state)
{
    (void)state;
    uint64_t seed = 20261130;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        enum { SEQUENCES = 5 };
        struct subject s;
        struct tiny_run run;
        struct kv kv[SEQUENCES];
        subject_open(&s, fixtures[i]);
        size_t vocab = s.model.config.vocab, left = SEQUENCES * s.n;
        tiny_run_init(&run, &s.model, NULL, 3, cpu_mask(), &options);
        for (size_t k = 0; k < SEQUENCES; k++) kv_init(&kv[k], forward_kv_pool(run.forward));
        while (left > 0) {
            struct forward_row rows[128];
            size_t n_rows = 0;
            struct err err = {0};
            for (size_t k = 0; k < SEQUENCES; k++) {
                size_t take = next_random(&seed) % 12, have = s.n - kv[k].n_rows;
                if (take > have) take = have;
                for (size_t r = 0; r < take; r++) {
                    uint32_t position = kv[k].n_rows + (uint32_t)r;
                    rows[n_rows++] = (struct forward_row){
                        .kv = &kv[k], .token = s.ids[position], .position = position, .wants_logits = true};
                }
            }
            if (n_rows == 0) continue;
            if (!forward_pass(run.forward, rows, n_rows, &err)) fail_msg("%s", err.text);
            for (size_t r = 0; r < n_rows; r++)
                if (memcmp(forward_logits(run.forward, r), s.want + rows[r].position * vocab, vocab * sizeof(float)))
                    fail_msg("%s: other bits at position %u among %zu rows", fixtures[i], rows[r].position, n_rows);
            left -= n_rows;
        }
        for (size_t k = 0; k < SEQUENCES; k++) kv_fini(&kv[k]);
        tiny_run_fini(&run);
        subject_close(&s);
    }
}

/* A rolled-back sequence goes on as if the rows had never been there. */
static void truncation_leaves_no_trace(void **state)
{
    (void)state;
    struct subject s;
    struct tiny_run run;
    struct kv kv;
    subject_open(&s, "indexshare");
    size_t vocab = s.model.config.vocab;
    float *got = calloc(s.n * vocab, sizeof *got), *ignored = calloc(9 * vocab, sizeof *ignored);
    uint32_t wrong[9] = {5, 4, 3, 2, 1, 0, 9, 8, 7};
    tiny_run_init(&run, &s.model, NULL, 2, cpu_mask(), &options);
    kv_init(&kv, forward_kv_pool(run.forward));
    for (size_t done = 0; done < s.n; done += 8) {
        tiny_run_feed(&run, &kv, wrong, 9, 4, ignored);
        kv_truncate(&kv, (uint32_t)done);
        tiny_run_feed(&run, &kv, s.ids + done, 8, 8, got + done * vocab);
    }
    expect_same(&s, got, "rolled back rows", 9);
    kv_fini(&kv);
    tiny_run_fini(&run);
    free(ignored);
    free(got);
    subject_close(&s);
}

static void make_ids(uint32_t *ids, size_t n, uint32_t vocab)
{
    for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)((i * i * 31 + i * 7) % vocab);
}

static void feed_long(struct tiny_model *model, unsigned n_threads, uint32_t cpu, const struct forward_options *with,
                      size_t n, size_t chunk, float *out)
{
    struct subject s = {.model = *model, .n = n};
    s.ids = calloc(n, sizeof *s.ids);
    make_ids(s.ids, n, model->config.vocab);
    feed_alone(&s, n_threads, cpu, with, chunk, out);
    *model = s.model;
    free(s.ids);
}

/* Longer than every tile and block of rows, so that each boundary falls into some pass and into none of another. */
static void long_passes_change_no_bit(void **state)
{
    (void)state;
    enum { N = 600 };
    static const enum kv_storage storages[] = {KV_STORAGE_F32, KV_STORAGE_F16};
    static const size_t chunks[] = {3, 100, 257, N};
    struct tiny_model model;
    tiny_model_open(&model, FIXTURES "indexshare");
    size_t vocab = model.config.vocab;
    float *want = calloc(N * vocab, sizeof *want), *got = calloc(N * vocab, sizeof *got);
    for (size_t k = 0; k < 2; k++) {
        struct forward_options with = {
            .rows_max = N, .logit_rows_max = N, .positions_max = N, .kv_storage = storages[k]};
        feed_long(&model, 1, cpu_mask(), &with, N, 1, want);
        for (size_t c = 0; c < 4; c++) {
            memset(got, 0, N * vocab * sizeof *got);
            feed_long(&model, 2 + (unsigned)c, cpu_mask(), &with, N, chunks[c], got);
            for (size_t i = 0; i < N; i++)
                if (memcmp(want + i * vocab, got + i * vocab, vocab * sizeof *got) != 0)
                    fail_msg("%s: other bits at position %zu with %zu rows a pass", kv_codec_of(storages[k])->name, i,
                             chunks[c]);
        }
    }
    free(got);
    free(want);
    tiny_model_close(&model);
}

/* A container: heads are split between items, weights have scales, contexts pass index_topk. In both numerics. */
static void a_container_is_independent_too(void **state)
{
    (void)state;
    enum { N = 150 };
    static const uint32_t levels[] = {CPU_AVX2 | CPU_NEON, CPU_AVX2 | CPU_AVX512 | CPU_NEON | CPU_NEON_DOTPROD};
    struct tiny_model model;
    tiny_model_open(&model, "models/demo");
    assert_true(model.config.index_topk < N);
    size_t n = N * (size_t)model.config.vocab;
    float *exact = calloc(n, sizeof *exact), *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
    for (int numerics = NUMERICS_EXACT; numerics <= NUMERICS_INT8; numerics++) {
        struct forward_options with = {
            .rows_max = N, .logit_rows_max = N, .positions_max = N, .numerics = (enum numerics)numerics};
        feed_long(&model, 7, cpu_mask(), &with, N, 1, want);
        feed_long(&model, 3, cpu_mask(), &with, N, 61, got);
        assert_memory_equal(want, got, n * sizeof *want);
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
            feed_long(&model, 2, cpu_mask() & levels[i], &with, N, 97, got);
            assert_memory_equal(want, got, n * sizeof *want);
        }
        if (numerics == NUMERICS_EXACT) memcpy(exact, want, n * sizeof *want);
    }
    double difference = relative_error(want, exact, n);
    print_message("int8: logits %.1e from exact\n", difference);
    assert_true(difference > 0); /* or the numerics were not used */
    assert_true(difference < 0.1);
    free(got);
    free(want);
    free(exact);
    tiny_model_close(&model);
}

/* Gives every layer a kv_b of random bytes. */
static void replace_kv_b(struct tiny_model *model, enum weight_format format, uint32_t group, unsigned char *payload,
                         float *scales, uint64_t *seed)
{
    const struct spine *spine = model->weights->spine;
    for (uint32_t layer = 0; layer < model->config.n_layers; layer++) {
        struct matrix *w = &spine->blocks[layer].role[ROLE_KV_B];
        uint64_t n_scales = format_scales(format, w->rows, w->columns, group);
        uint64_t bytes = format_row_bytes(format, w->columns) * w->rows;
        for (uint64_t i = 0; layer == 0 && i < bytes; i++) payload[i] = (unsigned char)next_random(seed);
        for (uint64_t i = 0; layer == 0 && i < n_scales; i++)
            scales[i] = 0.01f + 0.0001f * (float)(next_random(seed) % 100);
        w->format = format;
        w->group = group;
        w->payload = payload;
        w->scales = scales;
    }
}

/* Few rows take kv_b as it is stored, many rows take it unpacked: both in every format. */
static void every_format_of_kv_b_is_independent(void **state)
{
    (void)state;
    enum { N = 40 };
    static const struct {
        enum weight_format format;
        uint32_t group;
    } cases[] = {{FORMAT_INT8_ROW, 0},      {FORMAT_INT4_ROW, 0}, {FORMAT_INT4_GROUPED, 16}, {FORMAT_INT4_GROUPED, 48},
                 {FORMAT_INT4_GROUPED, 64}, {FORMAT_INT2_ROW, 0}, {FORMAT_INT3_G64, 64}};
    uint64_t seed = 20261201;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct tiny_model model;
        struct forward_options with = {.rows_max = N, .logit_rows_max = N, .positions_max = N};
        tiny_model_open(&model, "models/demo");
        uint64_t values =
            (uint64_t)model.config.n_heads * (model.config.nope_dim + model.config.value_dim) * model.config.kv_rank;
        unsigned char *payload = malloc(values);
        float *scales = malloc(values / 16 * sizeof *scales);
        size_t n = N * (size_t)model.config.vocab;
        float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
        replace_kv_b(&model, cases[k].format, cases[k].group, payload, scales, &seed);
        feed_long(&model, 2, cpu_mask(), &with, N, 1, want);
        feed_long(&model, 1, cpu_mask(), &with, N, N, got);
        if (memcmp(want, got, n * sizeof *want) != 0)
            fail_msg("%s by %u: other bits in one pass", format_name(cases[k].format), cases[k].group);
        for (size_t i = 0; i < n; i++) assert_true(want[i] - want[i] == 0); /* finite */
        free(got);
        free(want);
        free(scales);
        free(payload);
        tiny_model_close(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_chunks_and_kernels_change_no_bit),
        cmocka_unit_test(selecting_everything_equals_dense),
        cmocka_unit_test(narrow_state_is_independent_too),
        cmocka_unit_test(neighbours_change_no_bit),
        cmocka_unit_test(truncation_leaves_no_trace),
        cmocka_unit_test(long_passes_change_no_bit),
        cmocka_unit_test(a_container_is_independent_too),
        cmocka_unit_test(every_format_of_kv_b_is_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
