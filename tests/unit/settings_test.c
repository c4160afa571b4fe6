#include "cli/settings.h"
#include "cli/commands.h"
#include "support/check.h"
#include "support/mem_files.h"
#include "support/temp_folder.h"

#include <sys/stat.h>

/* The sources of one reading; NULL: that source is silent. */
struct given {
    const char *arguments[8], *environment[8];
    const char *config; /* text of the file that --config names */
};

struct outcome {
    struct alloc alloc;
    struct settings settings;
    struct operands operands;
    struct err err;
    bool ok;
};

static void read_given(struct outcome *o, const struct given *given, uint64_t fail_at)
{
    struct mem_files files = {0};
    const char *arguments[12] = {0};
    size_t n = 0;
    if (given->config) {
        mem_files_add(&files, "weir.ini", (void *)given->config, strlen(given->config));
        arguments[n++] = "--config=weir.ini";
    }
    for (size_t i = 0; given->arguments[i]; i++) arguments[n++] = given->arguments[i];
    struct settings_source source = {(char *const *)arguments, (char *const *)given->environment,
                                     mem_files_system(&files)};
    *o = (struct outcome){.alloc.fail_at = fail_at};
    o->ok = settings_read(&o->settings, &o->operands, &o->alloc, COMMAND_VERSION, &source, &o->err);
    if (!o->ok) assert_int_equal(o->alloc.live, 0);
    for (int i = 0; i < MEM_OPEN_MAX; i++) assert_int_equal(files.open[i], 0);
}

static void finish(struct outcome *o)
{
    settings_fini(&o->settings);
    settings_fini(&o->settings);
    assert_int_equal(o->alloc.live, 0);
}

static void refused(const struct given *given, const char *message)
{
    struct outcome o;
    read_given(&o, given, 0);
    print_message("%s\n", o.err.text);
    assert_false(o.ok);
    assert_int_equal(o.err.kind, ERR_USER);
    assert_non_null(strstr(o.err.text, message));
    finish(&o);
}

/* Every combination of silent, on and off in the three sources: the strongest that speaks wins, and is remembered. */
static void the_stronger_source_wins(void **state)
{
    (void)state;
    static const char *const line[] = {NULL, "--json", "--json=off"};
    static const char *const variable[] = {NULL, "WEIR_JSON=on", "WEIR_JSON=0"};
    static const char *const config[] = {NULL, "json = yes\n", "json: no\n"};
    for (int i = 0; i < 27; i++) {
        int a = i / 9, b = i / 3 % 3, c = i % 3;
        struct given given = {{line[a]}, {"HOME_OF=x", variable[b]}, config[c]};
        struct outcome o;
        int speaks = a ? a : b ? b : c;
        enum origin origin = a ? ORIGIN_COMMAND_LINE : b ? ORIGIN_ENVIRONMENT : c ? ORIGIN_CONFIG : ORIGIN_DEFAULT;
        read_given(&o, &given, 0);
        print_message("line %d, environment %d, file %d\n", a, b, c);
        assert_true(o.ok);
        assert_int_equal(o.settings.json, speaks == 1);
        assert_int_equal(settings_origin(&o.settings, "json"), origin);
        finish(&o);
    }
}

static void a_wrong_value_is_refused_even_where_it_would_lose(void **state)
{
    (void)state;
    refused(&(struct given){.arguments = {"--json"}, .environment = {"WEIR_JSON=mabye"}},
            "WEIR_JSON: 'mabye' is neither on nor off");
    refused(&(struct given){.arguments = {"--json"}, .config = "# note\njson = mabye\n"},
            "weir.ini:2: json: 'mabye' is neither on nor off");
}

static void wrong_names_are_refused_with_the_nearest(void **state)
{
    (void)state;
    refused(&(struct given){.arguments = {"--jsno"}}, "version has no option --jsno; the nearest is --json");
    refused(&(struct given){.arguments = {"--jso"}}, "--jso; the nearest is --json"); /* no abbreviations */
    refused(&(struct given){.arguments = {"--confg", "x"}}, "the nearest is --config");
    refused(&(struct given){.arguments = {"--JSON"}}, "no option --JSON");
    refused(&(struct given){.arguments = {"-j"}}, "'-j' is no option");
    refused(&(struct given){.arguments = {"--="}}, "no option --");
    refused(&(struct given){.environment = {"WEIR_JSN=on"}}, "WEIR_JSN is set in the environment, but there is no such "
                                                             "option; the nearest is WEIR_JSON");
    refused(&(struct given){.environment = {"WEIR_json=on"}}, "the nearest is WEIR_JSON");
    refused(&(struct given){.environment = {"WEIR_"}}, "no such option");
    refused(&(struct given){.environment = {"WEIR_JSON"}}, "WEIR_JSON: '' is neither");
    refused(&(struct given){.config = "\n; note\nconfg = 3\n"},
            "weir.ini:3: there is no option 'confg'; the nearest is");
}

static void values_are_needed_and_taken(void **state)
{
    (void)state;
    refused(&(struct given){.arguments = {"--config"}}, "--config needs a value");
    refused(&(struct given){.arguments = {"--config", "--json"}}, "--config needs a value");
    refused(&(struct given){.arguments = {"--config="}}, "--config: the value is empty");
    refused(&(struct given){.arguments = {"--config", "absent.ini"}}, "absent.ini: cannot open");

    struct outcome o; /* a flag takes no word of the line: what follows is an operand */
    read_given(&o, &(struct given){.arguments = {"--json", "off", "-", "--", "--json", "-x"}}, 0);
    assert_true(o.ok);
    assert_true(o.settings.json);
    assert_int_equal(o.operands.n_words, 4);
    assert_string_equal(o.operands.words[0], "off");
    assert_string_equal(o.operands.words[1], "-");
    assert_string_equal(o.operands.words[3], "-x");
    finish(&o);

    read_given(&o, &(struct given){.arguments = {"--nonsense", "-h"}}, 0); /* help is given whatever else is wrong */
    assert_true(o.ok && o.operands.wants_help);
    finish(&o);
}

static void files_that_are_no_configuration(void **state)
{
    (void)state;
    char line[300];
    refused(&(struct given){.config = "json\n"}, "weir.ini:1: not of the form name = value");
    refused(&(struct given){.config = "json = on\nnonsense\n"}, "weir.ini:2: not of the form");
    refused(&(struct given){.config = "[version]\njson = on\n"},
            "weir.ini:2: section [version]: there are no sections");
    refused(&(struct given){.config = "json = on\njson = on\n"}, "weir.ini:2: 'json' was given before");
    refused(&(struct given){.config = "json = on\n  off\n"}, "weir.ini:2: 'json' was given before");
    refused(&(struct given){.config = "config = other.ini\n"}, "weir.ini:1: a configuration file cannot name another");
    memset(line, ' ', sizeof line);
    memcpy(line + 250, "json = on\n", 11);
    refused(&(struct given){.config = line}, "weir.ini:1: a line of 259 bytes");

    struct outcome o;
    read_given(&o, &(struct given){.config = "\xef\xbb\xbf; saved by an editor\r\njson = on ; really\r\n"}, 0);
    assert_true(o.ok && o.settings.json);
    assert_string_equal(o.settings.config_path, "weir.ini");
    finish(&o);
    read_given(&o, &(struct given){.config = "json = on"}, 0); /* no newline at the end */
    assert_true(o.ok && o.settings.json);
    finish(&o);
}

static void the_users_own_file_is_found(void **state)
{
    (void)state;
    struct temp_folder folder;
    char xdg[320], home[320], *environment[] = {xdg, home, NULL}, *none[] = {NULL};
    struct alloc alloc = {0};
    struct settings settings;
    struct operands operands;
    struct err err = {0};
    temp_folder_make(&folder);
    snprintf(xdg, sizeof xdg, "XDG_CONFIG_HOME=%s/xdg", folder.path);
    snprintf(home, sizeof home, "HOME=%s", folder.path);
    struct settings_source source = {none, environment, file_system_real()};

    assert_true(settings_read(&settings, &operands, &alloc, COMMAND_VERSION, &source, &err)); /* none there: fine */
    assert_null(settings.config_path);
    settings_fini(&settings);

    assert_int_equal(mkdir(temp_path(&folder, "xdg"), 0700), 0);
    assert_int_equal(mkdir(temp_path(&folder, "xdg/weir"), 0700), 0);
    put_file(temp_path(&folder, "xdg/weir/config.ini"), "json = on\n", 10);
    assert_true(settings_read(&settings, &operands, &alloc, COMMAND_VERSION, &source, &err));
    assert_true(settings.json);
    settings_fini(&settings);

    xdg[strlen("XDG_CONFIG_HOME=")] = 0; /* empty counts as unset: ~/.config */
    assert_int_equal(rename(temp_path(&folder, "xdg"), temp_path(&folder, ".config")), 0);
    assert_true(settings_read(&settings, &operands, &alloc, COMMAND_VERSION, &source, &err));
    assert_true(settings.json);
    settings_fini(&settings);
    assert_int_equal(alloc.live, 0);
    temp_folder_remove(&folder);
}

static void the_surroundings_are_looked_at(void **state)
{
    static const struct {
        struct given given;
        const char *state_folder;
        bool no_colour, dumb_terminal;
    } cases[] = {
        {{.environment = {"TERM=xterm", "HOME=/home/a"}}, "/home/a/.local/state/weir", false, false},
        {{.environment = {"XDG_STATE_HOME=/s", "HOME=/home/a", "NO_COLOR=1"}}, "/s/weir", true, true},
        {{.environment = {"XDG_STATE_HOME=", "HOME=/b", "NO_COLOR=", "TERM=dumb"}},
         "/b/.local/state/weir",
         false,
         true},
        {{.environment = {"TERM=vt100"}}, NULL, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome o;
        read_given(&o, &cases[i].given, 0);
        print_message("%zu: %s\n", i, o.settings.state_folder ? o.settings.state_folder : "(none)");
        assert_true(o.ok);
        assert_true(!cases[i].state_folder == !o.settings.state_folder);
        if (cases[i].state_folder) assert_string_equal(o.settings.state_folder, cases[i].state_folder);
        assert_int_equal(o.settings.no_colour, cases[i].no_colour);
        assert_int_equal(o.settings.dumb_terminal, cases[i].dumb_terminal);
        finish(&o);
    }
}

/* Of an option that may be repeated, the strongest source's values count, all of them. */
static void repeated_values_come_from_one_source(void **state)
{
    struct outcome o;
    (void)state;
    read_given(&o, &(struct given){.environment = {"WEIR_STOP=x"}, .config = "stop = y\n"}, 0);
    assert_true(o.ok);
    assert_int_equal(o.settings.stop.n, 1);
    assert_string_equal(o.settings.stop.text[0], "x");
    finish(&o);
    read_given(&o, &(struct given){.config = "stop = y\n"}, 0);
    assert_true(o.ok);
    assert_int_equal(o.settings.stop.n, 1);
    finish(&o);
    refused(&(struct given){.config = "stop = y\nstop = z\n"}, "'stop' was given before");
}

static void nothing_leaks_whatever_allocation_fails(void **state)
{
    (void)state;
    struct given given = {{"--json", "word"}, {"WEIR_JSON=on"}, "json = off\n"};
    for (uint64_t k = 1;; k++) {
        struct outcome o;
        read_given(&o, &given, k);
        if (!o.ok) assert_int_equal(o.err.kind, ERR_NOMEM);
        finish(&o);
        if (o.ok) {
            print_message("%d allocations were made to fail\n", (int)k - 1);
            assert_true(k > 2);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stronger_source_wins),
        cmocka_unit_test(a_wrong_value_is_refused_even_where_it_would_lose),
        cmocka_unit_test(wrong_names_are_refused_with_the_nearest),
        cmocka_unit_test(values_are_needed_and_taken),
        cmocka_unit_test(files_that_are_no_configuration),
        cmocka_unit_test(the_users_own_file_is_found),
        cmocka_unit_test(the_surroundings_are_looked_at),
        cmocka_unit_test(repeated_values_come_from_one_source),
        cmocka_unit_test(nothing_leaks_whatever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
