/* The search for faster settings, over made-up costs. */
#include "run/tuning.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

enum { TRIALS_MAX = 64 };

/* Time = product of factor[i][chosen[i]], times noise and a drift of the whole machine. */
struct machine {
    double factor[4][4];
    double noise, drift;
    uint64_t seed;
    unsigned n_runs, fails_at, n_trials;
    unsigned refused_setting, refused_value; /* this value cannot be had; 0: all can */
    enum err_kind kind;                      /* of that failure */
    struct tuning_trial trials[TRIALS_MAX];
    atomic_bool *cancels;
};

static double draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) / 9007199254740992.0;
}

static bool run(void *context, const unsigned *chosen, double *seconds, struct err *err)
{
    struct machine *m = context;
    m->n_runs++;
    if (m->n_runs == m->fails_at) return err_set(err, ERR_IO, "the disk is gone");
    if (m->cancels) atomic_store(m->cancels, true);
    if (m->refused_value && chosen[m->refused_setting] == m->refused_value)
        return err_set(err, m->kind, "not on this file system");
    double t = 1;
    for (int i = 0; i < 3; i++) t *= m->factor[i][chosen[i]];
    *seconds = t * (1 + m->noise * (2 * draw(&m->seed) - 1)) * (1 + m->drift * m->n_runs);
    return true;
}

static void tried(void *context, const struct tuning_trial *trial)
{
    struct machine *m = context;
    assert_true(m->n_trials < TRIALS_MAX);
    m->trials[m->n_trials++] = *trial;
}

static const struct tuning_setting settings[] = {
    {"depth", {"auto", "4", "16"}, 3}, {"direct", {"auto", "on", "off"}, 3}, {"policy", {"due", "lru"}, 2}};

static const struct tuning tuning = {
    .settings = settings, .n_settings = 3, .n_pairs = 5, .win = 0.03, .run = run, .tried = tried};

static bool search(struct machine *m, unsigned *chosen, struct err *err)
{
    struct tuning t = tuning;
    t.context = m;
    t.cancel = m->cancels;
    return tuning_search(&t, chosen, err);
}

static void finds_what_wins(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        unsigned chosen[3];
        struct err err = {0};
        struct machine m = {{{1, 0.9, 0.7}, {1, 1.2, 0.99}, {1, 0.9}}, 0.01, 0.002, seed, .cancels = NULL};
        assert_true(search(&m, chosen, &err));
        /* 0.99 is no win of three percent */
        if (chosen[0] != 2 || chosen[1] != 0 || chosen[2] != 1) fail_msg("seed %u", (unsigned)seed);
        assert_true(m.n_runs <= tuning_runs_max(&tuning));
        assert_int_equal(m.n_trials, 6);
        assert_int_equal(m.trials[5].setting, 3);
        assert_true(m.trials[5].is_kept && fabs(m.trials[5].ratio - 0.63) < 0.02);
        assert_int_equal(m.trials[1].against, 1); /* 16 is compared with 4, which had won before */
        assert_int_equal(m.trials[2].n_pairs, 2); /* a clear loss ends early */
    }
}

/* A machine that only gets slower, and values that change nothing: nothing is kept, though whatever came second looked
 * slower each time. */
static void keeps_nothing_for_nothing(void **state)
{
    (void)state;
    unsigned chosen[3], n_kept = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct err err = {0};
        struct machine m = {{{1, 1, 1}, {1, 1, 1}, {1, 1}}, 0.02, 0.02, seed, .cancels = NULL};
        assert_true(search(&m, chosen, &err));
        n_kept += chosen[0] || chosen[1] || chosen[2];
    }
    print_message("%u of 200 kept something\n", n_kept);
    assert_int_equal(n_kept, 0);
}

/* Other programs use the machine: times between two thirds and one and a half. */
static void noise_is_not_taken_for_a_win(void **state)
{
    (void)state;
    unsigned chosen[3], n_kept = 0, n_found = 0;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct err err = {0};
        struct machine m = {{{1, 1, 1}, {1, 1, 1}, {1, 1}}, 0.2, 0, seed, .cancels = NULL};
        assert_true(search(&m, chosen, &err));
        n_kept += chosen[0] || chosen[1] || chosen[2];
        m = (struct machine){{{1, 1, 1}, {1, 0.6, 1}, {1, 1}}, 0.2, 0, seed, .cancels = NULL};
        assert_true(search(&m, chosen, &err));
        n_found += chosen[1] == 1;
    }
    print_message("%u of 1000 kept something for nothing, %u found what halves the time\n", n_kept, n_found);
    assert_true(n_kept < 20);
    assert_true(n_found > 800);
}

static void a_value_that_cannot_be_had(void **state)
{
    (void)state;
    unsigned chosen[3];
    struct err err = {0};
    struct machine m = {{{1, 1, 1}, {1, 1, 0.5}, {1, 1}}, 0, 0, 1, .refused_setting = 1, .refused_value = 1};
    m.kind = ERR_IO;
    assert_true(search(&m, chosen, &err));
    assert_int_equal(chosen[1], 2);
    assert_int_equal(m.trials[2].n_pairs, 0);
    assert_string_equal(m.trials[2].refusal.text, "not on this file system");
    m = (struct machine){{{1, 1, 1}, {1, 1, 1}, {1, 1}}, 0, 0, 1, .refused_setting = 1, .refused_value = 1};
    m.kind = ERR_NOMEM;
    assert_false(search(&m, chosen, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
}

static void failures_and_an_end(void **state)
{
    (void)state;
    unsigned chosen[3];
    struct err err = {0};
    struct machine m = {{{1, 1, 1}, {1, 1, 1}, {1, 1}}, 0, 0, 1, .fails_at = 1};
    assert_false(search(&m, chosen, &err));
    assert_string_equal(err.text, "the disk is gone");
    atomic_bool cancel = false;
    m = (struct machine){{{1, 1, 1}, {1, 1, 1}, {1, 1}}, 0, 0, 1, .cancels = &cancel};
    assert_false(search(&m, chosen, &err));
    assert_int_equal(err.kind, ERR_CANCELLED);
    assert_int_equal(m.n_runs, 1);
    m = (struct machine){{{0}}, 0, 0, 1, .cancels = NULL}; /* a clock that stands still */
    assert_false(search(&m, chosen, &err));
    assert_int_equal(err.kind, ERR_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_wins),
        cmocka_unit_test(keeps_nothing_for_nothing),
        cmocka_unit_test(noise_is_not_taken_for_a_win),
        cmocka_unit_test(a_value_that_cannot_be_had),
        cmocka_unit_test(failures_and_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
