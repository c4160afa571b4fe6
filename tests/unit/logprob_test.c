#include "run/logprob.h"

#include "base/philox.h"
#include "run/sampler.h"
#include "support/check.h"
#include <math.h>
#include <stdlib.h>

static double reference(const float *row, uint32_t n, uint32_t id)
{
    long double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += expl((long double)row[i]);
    return (double)((long double)row[id] - logl(sum));
}

static void equals_a_long_double_softmax(void **state)
{
    (void)state;
    enum { N = 3000 };
    float row[N];
    double worst = 0;
    for (uint64_t key = 0; key < 50; key++) {
        for (uint32_t i = 0; i < N; i++) row[i] = (float)(40 * philox_unit(key, i) - 10);
        for (uint32_t i = 0; i < key * 20; i++) row[i * 3] = -INFINITY;
        struct logprobs got;
        struct err err = {0};
        uint32_t chosen = 1 + 3 * (uint32_t)(key % 900);
        assert_true(logprob_row(&got, row, N, chosen, LOGPROB_TOP_MAX, &err));
        assert_int_equal(got.chosen.id, chosen);
        assert_int_equal(got.n_top, LOGPROB_TOP_MAX);
        double difference = fabs(got.chosen.value - reference(row, N, chosen));
        if (difference > worst) worst = difference;
        for (uint32_t i = 0; i < got.n_top; i++) {
            difference = fabs(got.top[i].value - reference(row, N, got.top[i].id));
            if (difference > worst) worst = difference;
        }
    }
    print_message("largest difference %.2g\n", worst);
    /* A sum of 3,000 terms in double, then a logarithm: far inside of what a float can show. */
    assert_true(worst < 3000 * 0x1p-53 + 100 * 0x1p-52);
}

struct entry {
    float logit;
    uint32_t id;
};

static int by_rank(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void top_is_the_head_of_a_full_sort(void **state)
{
    (void)state;
    for (uint64_t key = 0; key < 3000; key++) {
        uint32_t n = 1 + (uint32_t)(60 * philox_unit(key, 1000)), n_top = (uint32_t)(21 * philox_unit(key, 1001));
        float row[64];
        struct entry sorted[64];
        uint32_t n_live = 0;
        for (uint32_t i = 0; i < n; i++) {
            row[i] = (float)floor(8 * philox_unit(key, i)) - 4; /* many ties */
            if (row[i] == -4) row[i] = -INFINITY;
            if (row[i] != -INFINITY) sorted[n_live++] = (struct entry){row[i], i};
        }
        qsort(sorted, n_live, sizeof *sorted, by_rank);
        struct logprobs got;
        struct err err = {0};
        bool ok = logprob_row(&got, row, n, 0, n_top, &err);
        assert_int_equal(ok, n_live > 0);
        if (!ok) continue;
        assert_int_equal(got.n_top, n_top < n_live ? n_top : n_live);
        for (uint32_t i = 0; i < got.n_top; i++) assert_int_equal(got.top[i].id, sorted[i].id);
    }
}

static void the_maximum_is_found_in_every_lane(void **state)
{
    (void)state;
    float row[70];
    for (uint32_t n = 1; n <= 70; n++)
        for (uint32_t at = 0; at < n; at++) {
            for (uint32_t i = 0; i < n; i++) row[i] = -2;
            row[at] = -1;
            assert_true(logprob_max(row, n) == -1);
            row[at] = NAN;
            struct err err = {0};
            assert_false(logprob_check_row(row, n, &err));
            row[at] = INFINITY;
            assert_false(logprob_check_row(row, n, &err));
            assert_non_null(strstr(err.text, "numerical_error"));
        }
}

static void json_has_a_floor(void **state)
{
    (void)state;
    assert_true(logprob_for_json(-INFINITY) == -9999);
    assert_true(logprob_for_json(-10000) == -9999);
    assert_true(logprob_for_json(-9999) == -9999);
    assert_true(logprob_for_json(-9998.5) == -9998.5);
    assert_true(logprob_for_json(0) == 0);
}

static void the_sampler_reports_raw_values(void **state)
{
    (void)state;
    /* Bias, penalties, grammar and temperature move the choice and leave the log-probabilities alone. */
    struct alloc alloc = {0};
    struct err err = {0};
    struct sampler sampler;
    struct history history;
    assert_true(sampler_init(&sampler, &alloc, 6, 5, &err));
    assert_true(history_reserve(&history, &alloc, 8, &err));
    history_push(&history, 0);
    const float logits[6] = {4, 3, 2, 1, 0, 50};
    const struct logit_bias bias = {1, -100};
    const uint64_t allowed = 1 << 0 | 1 << 1 | 1 << 3;
    struct sampling params = sampling_built_in();
    params.frequency_penalty = 2;
    params.repetition_penalty = 2;
    params.bias = &bias, params.n_bias = 1;
    params.temperature = 0;
    const uint32_t eos = 2;
    struct sampler_rules rules = {
        .sampling = &params, .eos = &eos, .n_eos = 1, .wants_logprobs = true, .n_top_logprobs = 3};
    struct sampler_input input = {logits, &history, &allowed};
    struct sampled got;
    assert_true(sampler_pick(&sampler, &rules, &input, &got, &err));
    assert_int_equal(got.id, 3);
    assert_int_equal(got.logprobs.chosen.id, 3);
    assert_true(fabs(got.logprobs.chosen.value - reference(logits, 5, 3)) < 1e-12);
    assert_int_equal(got.logprobs.n_top, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(got.logprobs.top[i].id, i);
        assert_true(fabs(got.logprobs.top[i].value - reference(logits, 5, i)) < 1e-12);
    }

    /* An id that the request may not produce is not alive: it has no share. */
    params.ignore_eos = true;
    assert_true(sampler_pick(&sampler, &rules, &input, &got, &err));
    const float without_eos[5] = {4, 3, -INFINITY, 1, 0};
    assert_int_equal(got.logprobs.top[2].id, 3);
    assert_true(fabs(got.logprobs.chosen.value - reference(without_eos, 5, 3)) < 1e-12);
    history_fini(&history);
    sampler_fini(&sampler);
    assert_int_equal(alloc.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_long_double_softmax),       cmocka_unit_test(top_is_the_head_of_a_full_sort),
        cmocka_unit_test(the_maximum_is_found_in_every_lane), cmocka_unit_test(json_has_a_floor),
        cmocka_unit_test(the_sampler_reports_raw_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
