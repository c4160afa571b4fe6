#include "cli/command_line.h"
#include "cli/commands.h"
#include "support/check.h"

#include <stdlib.h>

struct result {
    int code;
    char *out, *log;
};

static struct result run(const char *const *words)
{
    const char *argv[10] = {"weir"};
    char *environment[] = {NULL};
    struct result result = {0};
    size_t n_out, n_log;
    for (size_t i = 0; words[i]; i++) argv[i + 1] = words[i];
    FILE *out = open_memstream(&result.out, &n_out), *log = open_memstream(&result.log, &n_log);
    assert_non_null(out);
    assert_non_null(log);
    result.code = command_line_run((char *const *)argv, environment, out, log);
    fclose(out);
    fclose(log);
    return result;
}

static void expect(const char *const *words, int code, const char *out, const char *log)
{
    struct result result = run(words);
    print_message("weir %s: %d\n", words[0] ? words[0] : "", result.code);
    assert_int_equal(result.code, code);
    assert_non_null(strstr(result.out, out));
    assert_non_null(strstr(result.log, log));
    if (code != 0) assert_string_equal(result.out, ""); /* stdout is for results */
    if (code == 0) assert_string_equal(result.log, "");
    free(result.out);
    free(result.log);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void a_friendly_start(void **state)
{
    (void)state;
    const char *nothing[] = {NULL};
    expect(nothing, 0, "usage: weir COMMAND", "");
    expect(WORDS("--help"), 0, "usage: weir COMMAND", "");
    expect(WORDS("-h"), 0, "usage: weir COMMAND", "");
    expect(WORDS("help"), 0, "usage: weir COMMAND", "");
    expect(WORDS("help", "version"), 0, "usage: weir version", "");
    expect(WORDS("--version"), 0, "weir ", "");
    expect(WORDS("version"), 0, "built by ", "");
    expect(WORDS("version", "--json"), 0, "\"version\":", "");
}

static void usage_errors_name_what_was_meant(void **state)
{
    (void)state;
    expect(WORDS("vresion"), 2, "", "weir: there is no command 'vresion'; the nearest is 'version'");
    expect(WORDS("help", "vresion"), 2, "", "the nearest is 'version'");
    expect(WORDS("help", "a", "b"), 2, "", "weir: help: 'b' is one operand too many");
    expect(WORDS("version", "x"), 2, "", "weir: version: 'x' is one operand too many");
    expect(WORDS("version", "--jsn"), 2, "", "the nearest is --json");
    expect(WORDS("version", "--json=perhaps"), 2, "", "'perhaps'");
    expect(WORDS(""), 2, "", "there is no command ''");
}

static void every_command_can_be_found_and_explained(void **state)
{
    (void)state;
    for (unsigned i = 0; i < COMMAND_COUNT; i++) {
        const struct command *command = commands_at(i);
        struct err err = {0};
        char usage[64];
        assert_ptr_equal(commands_find(command->name, &err), command);
        if (command->alias) assert_ptr_equal(commands_find(command->alias, &err), command);
        assert_true(command->n_operands_min <= command->n_operands_max);
        assert_int_equal(command->n_operands_max > 0, *command->operands != 0);
        assert_true(command->purpose[strlen(command->purpose) - 1] != '.');
        snprintf(usage, sizeof usage, "usage: weir %s", command->name);
        expect(WORDS("help", command->name), 0, usage, "");
        if (command->n_operands_min > 0) expect(WORDS(command->name), 2, "", "needs");
    }
}

static void every_kind_of_error_has_its_exit_code(void **state)
{
    (void)state;
    static const struct {
        enum err_kind kind;
        int code;
    } cases[] = {{ERR_NONE, 0}, {ERR_FAILED, 1}, {ERR_USER, 2}, {ERR_FIT, 3},         {ERR_DATA, 4},
                 {ERR_IO, 1},   {ERR_NOMEM, 1},  {ERR_BUSY, 1}, {ERR_CANCELLED, 130}, {ERR_NETWORK, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(commands_exit_code(cases[i].kind), cases[i].code);
}

static void an_answer_nobody_received_is_no_success(void **state)
{
    (void)state;
    const char *argv[] = {"weir", "version", NULL};
    char *environment[] = {NULL}, *text = NULL;
    size_t bytes;
    FILE *out = fopen("/dev/full", "w"), *log = open_memstream(&text, &bytes);
    if (!out) skip();
    assert_int_equal(command_line_run((char *const *)argv, environment, out, log), 1);
    fclose(out);
    fclose(log);
    assert_non_null(strstr(text, "weir: cannot write the output: No space left on device"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_friendly_start),
        cmocka_unit_test(usage_errors_name_what_was_meant),
        cmocka_unit_test(every_command_can_be_found_and_explained),
        cmocka_unit_test(every_kind_of_error_has_its_exit_code),
        cmocka_unit_test(an_answer_nobody_received_is_no_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
