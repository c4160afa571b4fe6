#include "cli/options.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

static const char *text_of(const struct option *option, const char *what)
{
    return what ? what : (print_message("--%s has a hole\n", option->name), "");
}

/* Whatever the table holds, each row is whole: nothing exists that the help, the environment and the file do not have.
 */
static void every_row_is_whole(void **state)
{
    (void)state;
    assert_true(options_count() >= 2);
    for (size_t i = 0; i < options_count(); i++) {
        const struct option *option = options_at(i);
        char variable[OPTION_ENVIRONMENT_NAME_MAX];
        print_message("--%s\n", option->name);
        assert_int_equal(strspn(option->name, "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(option->name));
        assert_true(strlen(option->name) >= 2);
        assert_true(strlen(text_of(option, option->help)) > 10);
        assert_true(option->help[strlen(option->help) - 1] != '.');
        assert_true(option->commands != 0);
        assert_ptr_equal(options_find(option->name), option); /* no name twice */
        assert_int_equal(options_row(option), i);
        for (size_t j = 0; j < i; j++) assert_true(options_at(j)->offset != option->offset); /* no field twice */
        assert_memory_equal(options_environment_name(option, variable), "WEIR_", 5);
        assert_int_equal(strlen(variable), strlen(option->name) + 5);
        assert_null(strpbrk(variable, "-abcdefghijklmnopqrstuvwxyz"));
        assert_true((option->type == OPTION_CHOICE) == (option->choices[0] != NULL));
        assert_true((option->type == OPTION_CHOICE || option->type == OPTION_FLAG) == (option->value_name == NULL));
        if (option->type != OPTION_TEXT && option->type != OPTION_TEXTS) assert_non_null(option->initial);
        assert_true(option->min <= option->max);
        assert_true(option->number_min <= option->number_max);
    }
}

static void the_help_of_every_command_tells_every_option(void **state)
{
    (void)state;
    for (unsigned c = 0; c < COMMAND_COUNT; c++) {
        char *text = NULL, *environment[] = {NULL}, name[80];
        size_t bytes = 0;
        const char *argv[] = {"weir", commands_at(c)->name, "--help", NULL};
        FILE *out = open_memstream(&text, &bytes);
        assert_non_null(out);
        assert_int_equal(command_line_run((char *const *)argv, environment, out, out), 0);
        fclose(out);
        print_message("weir %s --help: %zu bytes\n", commands_at(c)->name, bytes);
        for (size_t i = 0; i < options_count(); i++) {
            snprintf(name, sizeof name, "  --%s ", options_at(i)->name);
            assert_int_equal(strstr(text, name) != NULL, options_at(i)->commands >> c & 1);
        }
        free(text);
    }
}

/* Rows of our own, one of each type, so that the machinery is tested whatever the product's table holds. */
struct values {
    bool flag;
    uint64_t whole;
    double number;
    unsigned choice;
    const char *text;
    struct option_texts texts;
};

static struct values values;

static bool store(struct option option, const char *text, struct err *err)
{
    *err = (struct err){0};
    values = (struct values){.whole = 99, .number = 99, .choice = 99};
    return options_store(&option, &values, text, "--row", err);
}

static struct option whole(enum option_type type, uint64_t min, uint64_t max, const char *initial)
{
    return (struct option){.name = "row",
                           .type = type,
                           .offset = offsetof(struct values, whole),
                           .min = min,
                           .max = max,
                           .initial = initial};
}

static void flags(void **state)
{
    (void)state;
    static const char *const words[] = {"on", "true", "yes", "1", "off", "false", "no", "0"};
    struct option row = {.type = OPTION_FLAG, .offset = offsetof(struct values, flag), .initial = "off"};
    struct err err;
    for (size_t i = 0; i < 8; i++) {
        assert_true(store(row, words[i], &err));
        assert_int_equal(values.flag, i < 4);
    }
    assert_false(store(row, "perhaps", &err));
    assert_string_equal(err.text, "--row: 'perhaps' is neither on nor off");
    assert_false(store(row, "", &err));
}

static void whole_numbers(void **state)
{
    (void)state;
    struct option row = whole(OPTION_COUNT, 1, 1000, "auto");
    struct err err;
    assert_true(store(row, "1", &err) && values.whole == 1);
    assert_true(store(row, "1000", &err) && values.whole == 1000);
    assert_true(store(row, "0x1F", &err) && values.whole == 31);
    assert_true(store(row, "auto", &err) && values.whole == SETTING_WORD);
    assert_false(store(row, "0", &err));
    assert_string_equal(err.text, "--row: 0 is less than the least possible value, 1");
    assert_false(store(row, "1001", &err));
    assert_string_equal(err.text, "--row: 1001 is more than the greatest possible value, 1000");
    static const char *const wrong[] = {"",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "1.0",
                                        "1e2",
                                        "0x",
                                        "0xg",
                                        "x",
                                        "none",
                                        "18446744073709551616",
                                        "99999999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        print_message("'%s'\n", wrong[i]);
        assert_false(store(row, wrong[i], &err));
        assert_int_equal(err.kind, ERR_USER);
        assert_non_null(strstr(err.text, "is not a whole number"));
        assert_int_equal(values.whole, 99); /* untouched */
    }
    /* a default that is a number is no word: "8x" must not be accepted because it was written there */
    assert_false(store(whole(OPTION_COUNT, 0, 10, "8x"), "8x", &err));
}

static void sizes_and_times(void **state)
{
    (void)state;
    struct err err;
    assert_true(store(whole(OPTION_BYTES, 1 << 20, UINT64_MAX - 1, "auto"), "20GiB", &err));
    assert_int_equal(values.whole, UINT64_C(20) << 30);
    assert_false(store(whole(OPTION_BYTES, 1 << 20, UINT64_MAX - 1, "auto"), "20X", &err));
    assert_string_equal(err.text, "--row: '20X' is not a size such as 512M or 20GiB");
    assert_false(store(whole(OPTION_BYTES, 1 << 20, UINT64_MAX - 1, "auto"), "1K", &err));
    assert_true(store(whole(OPTION_SECONDS, 0, 86400, "300"), "5m", &err) && values.whole == 300);
    assert_false(store(whole(OPTION_SECONDS, 0, 86400, "300"), "soon", &err));
    assert_non_null(strstr(err.text, "is not a time such as 300 or 5m"));
}

static void fractions(void **state)
{
    (void)state;
    struct option row = {.type = OPTION_NUMBER,
                         .offset = offsetof(struct values, number),
                         .number_min = 0,
                         .number_max = 2,
                         .initial = "model"};
    struct err err;
    assert_true(store(row, "0.7", &err) && values.number == 0.7);
    assert_true(store(row, "1e-3", &err) && values.number == 1e-3);
    assert_true(store(row, "model", &err) && isnan(values.number));
    static const char *const wrong[] = {"", "nan", "inf", "-0.1", "2.1", "0x1p0", " 1", "1,5", "1 ", "1e999", "."};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        print_message("'%s'\n", wrong[i]);
        assert_false(store(row, wrong[i], &err));
        assert_int_equal(err.kind, ERR_USER);
    }
    assert_false(store(row, "2.1", &err));
    assert_string_equal(err.text, "--row: 2.1 is not between 0 and 2");
}

static void choices_and_texts(void **state)
{
    (void)state;
    struct option choice = {
        .type = OPTION_CHOICE, .offset = offsetof(struct values, choice), .choices = {"f32", "f16", "q8"}};
    struct option text = {.type = OPTION_TEXT, .offset = offsetof(struct values, text)};
    struct err err;
    assert_true(store(choice, "f16", &err) && values.choice == 1);
    assert_false(store(choice, "f61", &err));
    assert_string_equal(err.text, "--row: there is no 'f61'; the nearest is 'f16'");
    assert_true(store(text, "any thing", &err));
    assert_string_equal(values.text, "any thing");
    assert_false(store(text, "", &err));
}

static void texts_may_come_more_than_once(void **state)
{
    (void)state;
    struct option row = {.type = OPTION_TEXTS, .name = "row", .offset = offsetof(struct values, texts)};
    struct values own = {0};
    struct err err = {0};
    char name[OPTION_TEXTS_MAX + 1][4];
    for (int i = 0; i <= OPTION_TEXTS_MAX; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        assert_int_equal(options_store(&row, &own, name[i], "--row", &err), i < OPTION_TEXTS_MAX);
    }
    assert_string_equal(err.text, "--row: given more than 16 times; leave some out");
    assert_int_equal(own.texts.n, OPTION_TEXTS_MAX);
    for (int i = 0; i < OPTION_TEXTS_MAX; i++) assert_string_equal(own.texts.text[i], name[i]);
    own.texts.n = 3;
    assert_false(options_store(&row, &own, "", "--row", &err));
    assert_int_equal(own.texts.n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_whole),
        cmocka_unit_test(the_help_of_every_command_tells_every_option),
        cmocka_unit_test(flags),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(sizes_and_times),
        cmocka_unit_test(fractions),
        cmocka_unit_test(choices_and_texts),
        cmocka_unit_test(texts_may_come_more_than_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
