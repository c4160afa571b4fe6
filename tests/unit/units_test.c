#include "base/units.h"
#include "support/check.h"

static void sizes_that_people_write(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"12B", 12},
        {"1K", 1024},
        {"512M", UINT64_C(512) << 20},
        {"20G", UINT64_C(20) << 30},
        {"20GiB", UINT64_C(20) << 30},
        {"20gib", UINT64_C(20) << 30},
        {"20GB", UINT64_C(20000000000)},
        {"1.5T", UINT64_C(3) << 39},
        {"0.5K", 512},
        {"0.123456789G", 132560717},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 1;
        print_message("%s\n", cases[i].text);
        assert_true(units_parse_bytes(cases[i].text, &bytes));
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void what_is_no_size(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        " 1",
        "1 ",
        "-1",
        "+1",
        "G",
        "1Q",
        "1GG",
        "1 G",
        "0x10",
        "1e3",
        "1.",
        ".5G",
        "1.G",
        "1.5",
        "nan",
        "auto",
        "20Gi",
        "1,5G",
        "99999999999999999999",
        "18446744073709551616",
        "16777216T",
        "17179869184G",
        "1.0123456789G",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 77;
        print_message("'%s'\n", cases[i]);
        assert_false(units_parse_bytes(cases[i], &bytes));
        assert_int_equal(bytes, 77);
    }
}

static void times(void **state)
{
    (void)state;
    uint64_t s;
    assert_true(units_parse_seconds("300", &s) && s == 300);
    assert_true(units_parse_seconds("300s", &s) && s == 300);
    assert_true(units_parse_seconds("5m", &s) && s == 300);
    assert_true(units_parse_seconds("1.5h", &s) && s == 5400);
    assert_true(units_parse_seconds("2d", &s) && s == 172800);
    assert_false(units_parse_seconds("5min", &s));
    assert_false(units_parse_seconds("-5", &s));
    assert_false(units_parse_seconds("300000000000000000d", &s));
}

static void sizes_that_we_write(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {(1 << 20) - 1, "1.0 MiB"}, /* never "1024.0 KiB" */
        {UINT64_C(383326445000), "357.0 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[UNITS_TEXT_MAX];
        assert_string_equal(units_format_bytes(text, cases[i].bytes), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_people_write),
        cmocka_unit_test(what_is_no_size),
        cmocka_unit_test(times),
        cmocka_unit_test(sizes_that_we_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
