#include "base/nearest.h"
#include "support/check.h"

static const char *nearest_of(const char *word)
{
    static const char *const names[] = {"generate", "score", "serve", "inspect", "version", "verify", "tokenize"};
    struct nearest nearest = {.word = word};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) nearest_offer(&nearest, names[i]);
    return nearest.best;
}

static void slips_find_what_was_meant(void **state)
{
    (void)state;
    assert_string_equal(nearest_of("genrate"), "generate");   /* left out */
    assert_string_equal(nearest_of("generatee"), "generate"); /* put in */
    assert_string_equal(nearest_of("gemerate"), "generate");  /* replaced */
    assert_string_equal(nearest_of("sreve"), "serve");        /* swapped: one slip, so nearer than score */
    assert_string_equal(nearest_of("vresion"), "version");
    assert_string_equal(nearest_of("inspct"), "inspect");
}

static void a_beginning_is_what_was_meant(void **state)
{
    (void)state;
    assert_string_equal(nearest_of("tok"), "tokenize");
    assert_string_equal(nearest_of("ins"), "inspect");
    assert_string_equal(nearest_of("verif"), "verify");
    assert_string_equal(nearest_of("servr"), "serve"); /* no beginning, and one slip */
    assert_string_equal(nearest_of("g"), "score");     /* one letter says little: five slips here, seven to generate */
    static const char *const options[] = {"mtp", "ram-budget", "config", "context-length"};
    struct nearest memory = {.word = "ram"}, context = {.word = "context"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        nearest_offer(&memory, options[i]);
        nearest_offer(&context, options[i]);
    }
    assert_string_equal(memory.best, "ram-budget");
    assert_string_equal(context.best, "context-length");
}

static void any_word_is_bounded(void **state)
{
    (void)state;
    char huge[100000];
    memset(huge, 'z', sizeof huge - 1);
    huge[sizeof huge - 1] = 0;
    assert_non_null(nearest_of(huge));
    assert_non_null(nearest_of(""));
    struct nearest nothing = {.word = "x"};
    assert_null(nothing.best);
}

static void distances(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {{"", "", 0},       {"", "abc", 3},   {"abc", "", 3},          {"abc", "abc", 0},
                 {"abc", "acb", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nearest nearest = {.word = cases[i].a};
        nearest_offer(&nearest, cases[i].b);
        print_message("%s to %s\n", cases[i].a, cases[i].b);
        assert_int_equal(nearest.distance, cases[i].distance);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slips_find_what_was_meant),
        cmocka_unit_test(a_beginning_is_what_was_meant),
        cmocka_unit_test(any_word_is_bounded),
        cmocka_unit_test(distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
