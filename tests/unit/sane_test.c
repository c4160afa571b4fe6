/* Damage in floats: every kind, at every place, found and named. */
#include "resid/sane.h"
#include "support/check.h"

#include <float.h>
#include <math.h>

enum { N_MAX = 200 };

static float values[N_MAX];

static void make_good(void)
{
    static const float good[] = {FLT_TRUE_MIN, FLT_MIN, 1e-20f, 0.5f, 1, 3e38f, FLT_MAX};
    for (int i = 0; i < N_MAX; i++) values[i] = good[i % 7];
}

static void check(float value, bool is_sane_anywhere, bool is_sane_above_zero)
{
    for (uint64_t n = 1; n <= N_MAX; n += 1 + n / 7)
        for (uint64_t at = 0; at < n; at++) {
            uint64_t bad = N_MAX;
            make_good();
            values[at] = value;
            if (floats_are_sane(values, n, false, &bad) != is_sane_anywhere) fail_msg("%g at %d", value, (int)at);
            if (!is_sane_anywhere) assert_int_equal(bad, at);
            bad = N_MAX;
            if (floats_are_sane(values, n, true, &bad) != is_sane_above_zero) fail_msg("%g at %d", value, (int)at);
            if (!is_sane_above_zero) assert_int_equal(bad, at);
        }
}

static void every_kind_of_damage_is_found_where_it_is(void **state)
{
    (void)state;
    uint64_t bad;
    make_good();
    assert_true(floats_are_sane(values, 0, true, &bad));
    check(1, true, true);
    check(FLT_TRUE_MIN, true, true);
    check(FLT_MAX, true, true);
    check(0, true, false);
    check(-0.0f, true, false);
    check(-FLT_TRUE_MIN, true, false);
    check(-1, true, false);
    check(-FLT_MAX, true, false);
    check(INFINITY, false, false);
    check(-INFINITY, false, false);
    check(NAN, false, false);
    check(-NAN, false, false);
}

static void the_first_of_several_is_named(void **state)
{
    (void)state;
    uint64_t bad = 0;
    make_good();
    values[70] = values[130] = NAN;
    values[65] = -1;
    assert_false(floats_are_sane(values, N_MAX, false, &bad));
    assert_int_equal(bad, 70);
    assert_false(floats_are_sane(values, N_MAX, true, &bad));
    assert_int_equal(bad, 65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_damage_is_found_where_it_is),
        cmocka_unit_test(the_first_of_several_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
