#include "base/philox.h"
#include "run/random.h"
#include "support/check.h"

static void equals_the_published_vectors(void **state)
{
    (void)state;
    /* The known answers that the authors publish for philox4x32-10. */
    static const struct {
        uint64_t key;
        struct philox_block counter, answer;
    } vectors[] = {
        {0, {{0, 0, 0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {UINT64_MAX,
         {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {0x299f31d0a4093822u,
         {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct philox_block got = philox(vectors[i].key, vectors[i].counter);
        for (int w = 0; w < 4; w++) assert_int_equal(got.word[w], vectors[i].answer.word[w]);
    }
}

static void units_are_53_bits_below_one(void **state)
{
    (void)state;
    /* The answer for zero key and counter, cut to 53 bits by hand. */
    assert_true(philox_unit(0, 0) == (double)(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0);
    double sum = 0, low = 1, high = 0;
    for (uint64_t t = 0; t < 100000; t++) {
        double u = philox_unit(7, t);
        assert_true(u >= 0 && u < 1);
        sum += u;
        if (u < low) low = u;
        if (u > high) high = u;
    }
    print_message("mean %.6f of 100,000 units, from %.2g to 1 - %.2g\n", sum / 100000, low, 1 - high);
    assert_true(sum / 100000 > 0.495 && sum / 100000 < 0.505);
    assert_true(low < 1e-3 && high > 1 - 1e-3);
}

static void a_draw_depends_on_key_and_counter_alone(void **state)
{
    (void)state;
    double forward[64];
    for (uint64_t t = 0; t < 64; t++) forward[t] = philox_unit(random_key_from_seed(-5), t);
    for (uint64_t t = 64; t-- > 0;) {
        (void)philox_unit(99, t); /* somebody else draws in between */
        assert_true(philox_unit(random_key_from_seed(-5), t) == forward[t]);
    }
    for (uint64_t t = 1; t < 64; t++) assert_true(forward[t] != forward[0]);
    assert_true(philox_unit(random_key_from_seed(5), 0) != forward[0]);
    /* The high half of a counter counts too. */
    assert_true(philox_unit(5, UINT64_C(1) << 32) != philox_unit(5, 0));
}

static void fresh_keys_differ(void **state)
{
    (void)state;
    uint64_t a = 0, b = 0;
    struct err err = {0};
    assert_true(random_key_fresh(&a, &err));
    assert_true(random_key_fresh(&b, &err));
    assert_true(a != b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_published_vectors),
        cmocka_unit_test(units_are_53_bits_below_one),
        cmocka_unit_test(a_draw_depends_on_key_and_counter_alone),
        cmocka_unit_test(fresh_keys_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
