/* The one exponential, against float64 over its whole range. */
#include "kern/exp_int.h"
#include "support/check.h"

#include <stdlib.h>

/* Distance from the exact value in units of the last place of an f32 of that size. */
static double ulps(float got, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    double unit = ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
    return fabs((double)got - exact) / unit;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void error_is_below_one_ulp(void **state)
{
    (void)state;
    double worst = 0;
    float worst_at = 0;
    uint64_t n = 0;
    /* Every 211th float from the smallest to the largest magnitude that matters, of either sign. */
    for (uint32_t bits = 0; from_bits(bits) <= 104; bits += 211) {
        for (int sign = 0; sign < 2; sign++) {
            float x = sign ? -from_bits(bits) : from_bits(bits);
            double exact = exp((double)x);
            if (exact > (double)0x1.fffffep127f) continue;
            double error = ulps(exp_canonical(x), exact);
            n++;
            if (error <= worst) continue;
            worst = error;
            worst_at = x;
        }
    }
    printf("%llu values, worst error %.4f ulp at %a\n", (unsigned long long)n, worst, (double)worst_at);
    assert_true(n > 5000000);
    assert_true(worst < 1);
    assert_true(worst > 0.4); /* rounding alone costs that much: the comparison sees */
}

static void ends_are_exact(void **state)
{
    (void)state;
    assert_true(exp_canonical(-INFINITY) == 0);
    assert_false(signbit(exp_canonical(-INFINITY)));
    assert_true(isinf(exp_canonical(INFINITY)));
    assert_true(isnan(exp_canonical(NAN)));
    assert_true(isnan(exp_canonical(-NAN)));
    assert_true(exp_canonical(0.0f) == 1);
    assert_true(exp_canonical(-0.0f) == 1);
    assert_true(exp_canonical(0x1p-149f) == 1);
    assert_true(exp_canonical(88.7f) > 3e38f);
    assert_true(exp_canonical(88.7f) < INFINITY);
    assert_true(isinf(exp_canonical(88.73f)));
    assert_true(isinf(exp_canonical(0x1.fffffep127f)));
    assert_true(exp_canonical(-103.9f) == 0x1p-149f);
    assert_true(exp_canonical(-103.98f) == 0);
    assert_true(exp_canonical(-0x1.fffffep127f) == 0);
}

static void it_never_falls_by_more_than_rounding(void **state)
{
    (void)state;
    float last = 0;
    for (int i = -104 * 4096; i <= 88 * 4096; i++) {
        float now = exp_canonical((float)i / 4096);
        assert_true(now >= last); /* steps of 1/4096 are far above an ulp of the result */
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_below_one_ulp),
        cmocka_unit_test(ends_are_exact),
        cmocka_unit_test(it_never_falls_by_more_than_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
