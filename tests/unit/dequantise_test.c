/* Every value of the three narrow float types against its definition, computed with ldexp. */
#include "support/check.h"

#include "fmt/dequantise.h"
#include <math.h>

/* Sign, `exponent_bits` of exponent with the IEEE bias, `fraction_bits` of fraction. */
static double defined(uint32_t code, int exponent_bits, int fraction_bits)
{
    uint32_t fraction = code & ((1u << fraction_bits) - 1);
    int exponent = (int)(code >> fraction_bits & ((1u << exponent_bits) - 1));
    int bias = (1 << (exponent_bits - 1)) - 1;
    double sign = code >> (exponent_bits + fraction_bits) & 1 ? -1.0 : 1.0;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(ldexp(1, fraction_bits) + fraction, exponent - bias - fraction_bits);
}

static void same(uint32_t code, float got, double want)
{
    if (isnan(want) ? isnan(got) : (double)got == want && !signbit(got) == !signbit(want)) return;
    fail_msg("code 0x%x: got %a, want %a", code, (double)got, want);
}

static void all_f16(void **state)
{
    (void)state;
    static uint8_t in[2 * 65536 + 1]; /* read from an odd address */
    static float out[65536];
    for (uint32_t i = 0; i < 65536; i++) in[1 + 2 * i] = (uint8_t)i, in[2 + 2 * i] = (uint8_t)(i >> 8);
    float_from_f16(out, in + 1, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        double want = defined(i, 5, 10);
        if ((i & 0x7c00) == 0x7c00) want = i & 0x3ff ? (double)NAN : i >> 15 ? -INFINITY : INFINITY;
        same(i, out[i], want);
    }
}

static void all_bf16(void **state)
{
    (void)state;
    static uint8_t in[2 * 65536 + 1];
    static float out[65536];
    for (uint32_t i = 0; i < 65536; i++) in[1 + 2 * i] = (uint8_t)i, in[2 + 2 * i] = (uint8_t)(i >> 8);
    float_from_bf16(out, in + 1, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        double want = defined(i, 8, 7);
        if ((i & 0x7f80) == 0x7f80) want = i & 0x7f ? (double)NAN : i >> 15 ? -INFINITY : INFINITY;
        same(i, out[i], want);
    }
}

static void all_e4m3(void **state)
{
    (void)state;
    uint8_t in[512];
    float out[512], one;
    for (uint32_t i = 0; i < 512; i++) in[i] = (uint8_t)i;
    float_from_e4m3(out, in, 512); /* long enough for the table */
    for (uint32_t i = 0; i < 512; i++) {
        double want = (i & 0x7f) == 0x7f ? (double)NAN : defined(i & 0xff, 4, 3);
        same(i & 0xff, out[i], want);
        float_from_e4m3(&one, in + i, 1);
        same(i & 0xff, one, want);
    }
    assert_true(out[0x7e] == 448.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_f16), cmocka_unit_test(all_bf16),
                                       cmocka_unit_test(all_e4m3)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
