#include "run/prompt_lookup.h"

#include "base/philox.h"
#include "support/check.h"
#include <stdlib.h>
#include <time.h>

struct numbers {
    uint64_t key, next;
};

static uint32_t below(struct numbers *numbers, uint32_t n)
{
    return (uint32_t)(philox_unit(numbers->key, numbers->next++) * n);
}

/* The definition: every length, every place, from the start. */
static uint32_t brute_draft(struct prompt_lookup_limits limits, const uint32_t *ids, uint32_t n, uint32_t *draft)
{
    for (uint32_t k = limits.n_max; k >= limits.n_min; k--)
        for (uint32_t i = 0; i + k < n; i++) {
            if (memcmp(ids + i, ids + n - k, k * sizeof *ids) != 0) continue;
            uint32_t n_draft = 0;
            for (uint32_t at = i + k; at < n && n_draft < limits.n_draft; at++) draft[n_draft++] = ids[at];
            return n_draft;
        }
    return 0;
}

static void init(struct prompt_lookup *lookup, struct alloc *alloc, struct prompt_lookup_limits limits, uint32_t n_max)
{
    struct err err = {0};
    if (!prompt_lookup_init(lookup, alloc, limits, n_max, &err)) fail_msg("%s", err.text);
}

static void known_streams_give_known_drafts(void **state)
{
    (void)state;
    static const struct {
        struct prompt_lookup_limits limits;
        uint32_t ids[12], n, draft[12], n_draft;
    } cases[] = {
        {{1, 3, 10}, {0}, 0, {0}, 0},
        {{1, 3, 10}, {7}, 1, {0}, 0},
        {{1, 3, 10}, {7, 7}, 2, {7}, 1},                           /* overlaps its own tail */
        {{1, 3, 10}, {7, 7, 7}, 3, {7}, 1},                        /* two ids, first place, one behind */
        {{1, 3, 10}, {1, 2, 3, 4, 1, 2, 3}, 7, {4, 1, 2, 3}, 4},   /* three ids; shorter than ten */
        {{1, 3, 2}, {1, 2, 3, 4, 1, 2, 3}, 7, {4, 1}, 2},          /* no more than asked for */
        {{1, 3, 1}, {5, 3, 8, 2, 3, 9, 2, 3}, 8, {9}, 1},          /* two ids beat one */
        {{1, 1, 1}, {5, 3, 8, 2, 3, 9, 2, 3}, 8, {8}, 1},          /* one id: its first place */
        {{2, 3, 4}, {3, 8, 9, 3}, 4, {0}, 0},                      /* one id is not enough */
        {{1, 3, 4}, {1, 2, 9, 1, 2, 8, 1, 2}, 8, {9, 1, 2, 8}, 4}, /* the smallest place, not the latest */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct alloc alloc = {0};
        struct prompt_lookup lookup;
        uint32_t draft[PROMPT_LOOKUP_DRAFT_MAX];
        init(&lookup, &alloc, cases[i].limits, 12);
        assert_int_equal(prompt_lookup_draft(&lookup, cases[i].ids, cases[i].n, draft), cases[i].n_draft);
        if (cases[i].n_draft) assert_memory_equal(draft, cases[i].draft, cases[i].n_draft * sizeof *draft);
        prompt_lookup_fini(&lookup);
        prompt_lookup_fini(&lookup);
        assert_int_equal(alloc.live, 0);
    }
}

static void equals_brute_force_while_the_stream_grows(void **state)
{
    (void)state;
    enum { N = 400 };
    struct numbers numbers = {.key = 60602};
    uint32_t n_drafts = 0, n_none = 0, n_cut_short = 0;
    for (uint32_t round = 0; round < 150; round++) {
        struct prompt_lookup_limits limits = {.n_max = 1 + below(&numbers, 16)};
        limits.n_min = 1 + below(&numbers, limits.n_max);
        limits.n_draft = 1 + below(&numbers, 64);
        uint32_t ids[N], n_kinds = round % 3 == 0 ? 2 : round % 3 == 1 ? 12 : 154856;
        for (uint32_t i = 0; i < N; i++) ids[i] = below(&numbers, n_kinds);
        for (uint32_t copies = 0; copies < 4 && round % 3 == 2; copies++) { /* rare ids, but passages come again */
            uint32_t to = below(&numbers, N - 60), from = below(&numbers, N - 60), n = 1 + below(&numbers, 60);
            memmove(ids + to, ids + from, n * sizeof *ids);
        }

        struct alloc alloc = {0};
        struct prompt_lookup lookup;
        init(&lookup, &alloc, limits, N);
        for (int pass = 0; pass < 2; pass++) {
            for (uint32_t n = below(&numbers, 100); n <= N; n += 1 + below(&numbers, 5)) {
                uint32_t got[PROMPT_LOOKUP_DRAFT_MAX], want[PROMPT_LOOKUP_DRAFT_MAX];
                uint32_t n_got = prompt_lookup_draft(&lookup, ids, n, got);
                assert_int_equal(n_got, brute_draft(limits, ids, n, want));
                if (n_got) assert_memory_equal(got, want, n_got * sizeof *got);
                n_drafts += n_got > 0;
                n_none += n_got == 0;
                n_cut_short += n_got > 0 && n_got < limits.n_draft;
            }
            /* Another sequence in the same tables: nothing of the first may come back. */
            prompt_lookup_reset(&lookup);
            for (uint32_t i = 0; i < N; i++) ids[i] = below(&numbers, n_kinds);
        }
        assert_int_equal(alloc.calls, 1); /* memory is taken in init alone */
        prompt_lookup_fini(&lookup);
        assert_int_equal(alloc.live, 0);
    }
    print_message("key %llu: %u drafts equal (%u shorter than asked for), %u times none\n",
                  (unsigned long long)numbers.key, n_drafts, n_cut_short, n_none);
    assert_true(n_drafts > 5000 && n_none > 1000 && n_cut_short > 1000);
}

static void illegal_limits_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        struct prompt_lookup_limits limits;
        const char *text;
    } cases[] = {
        {{0, 3, 10}, "ngram min: 0"},   {{4, 3, 10}, "ngram min: 4"},   {{1, 0, 10}, "ngram max: 0"},
        {{1, 17, 10}, "ngram max: 17"}, {{1, 3, 0}, "ngram drafts: 0"}, {{1, 3, 65}, "ngram drafts: 65"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct alloc alloc = {0};
        struct prompt_lookup lookup;
        struct err err = {0};
        assert_false(prompt_lookup_init(&lookup, &alloc, cases[i].limits, 100, &err));
        assert_int_equal(err.kind, ERR_USER);
        assert_int_equal(strncmp(err.text, cases[i].text, strlen(cases[i].text)), 0);
        prompt_lookup_fini(&lookup);
        assert_int_equal(alloc.live, 0);
    }
    struct alloc alloc = {.fail_at = 1};
    struct prompt_lookup lookup;
    struct err err = {0};
    assert_false(prompt_lookup_init(&lookup, &alloc, (struct prompt_lookup_limits){1, 3, 10}, 100, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
    prompt_lookup_fini(&lookup);
    assert_int_equal(alloc.live, 0);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void a_long_stream_costs_little_per_id(void **state)
{
    (void)state;
    /* The streams that are worst for a search from the start: nothing repeats, and everything is the same. */
    enum { N = 200000 };
    struct alloc alloc = {0};
    struct prompt_lookup lookup;
    init(&lookup, &alloc, (struct prompt_lookup_limits){1, 3, 10}, N);
    uint32_t *ids = malloc(N * sizeof *ids), draft[PROMPT_LOOKUP_DRAFT_MAX];
    for (int kind = 0; kind < 2; kind++) {
        for (uint32_t i = 0; i < N; i++) ids[i] = kind ? 5 : i;
        prompt_lookup_reset(&lookup);
        double start = seconds();
        uint32_t n_drafts = 0;
        for (uint32_t n = 1; n <= N; n++) n_drafts += prompt_lookup_draft(&lookup, ids, n, draft) > 0;
        print_message("%s: %.0f ns for each of %d steps\n", kind ? "one id again and again" : "every id once",
                      (seconds() - start) / N * 1e9, N);
        assert_int_equal(n_drafts, kind ? N - 1 : 0);
    }
    free(ids);
    prompt_lookup_fini(&lookup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_streams_give_known_drafts),
        cmocka_unit_test(equals_brute_force_while_the_stream_grows),
        cmocka_unit_test(illegal_limits_are_refused_by_name),
        cmocka_unit_test(a_long_stream_costs_little_per_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
