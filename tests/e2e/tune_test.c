/* weir tune and the profiles it leaves, as a person meets them. */
#include "cli/profile.h"
#include "support/check.h"
#include "support/program.h"
#include "support/temp_folder.h"

#include <stdlib.h>
#include <sys/stat.h>

#define FIXTURES "tests/fixtures/glm52-tiny/"

static struct temp_folder folder;
static struct program weir;
static char model[300], profile[4096];

/* A small container, and where its profile would be. */
static int begin(void **state)
{
    (void)state;
    struct location place;
    struct err err = {0};
    temp_folder_make(&folder);
    snprintf(model, sizeof model, "%s", temp_path(&folder, "model"));
    weir = (struct program){0};
    program_set(&weir, "XDG_STATE_HOME", folder.path);
    PROGRAM_RUN(&weir, "convert", FIXTURES "plain", model, "--group", "32");
    program_expect(&weir, 0, "", "");
    const struct settings settings = {.state_folder = temp_path(&folder, "weir")};
    const struct command_context context = {.settings = &settings};
    if (!profile_locate(&place, &context, model, &err)) fail_msg("%s", err.text);
    snprintf(profile, sizeof profile, "%s", place.path);
    return 0;
}

static int end(void **state)
{
    (void)state;
    program_fini(&weir);
    temp_folder_remove(&folder);
    return 0;
}

static void write_profile(const char *lines)
{
    struct alloc alloc = {0};
    struct err err = {0};
    if (!profile_write(profile, &alloc, lines, strlen(lines), &err)) fail_msg("%s", err.text);
    assert_int_equal(alloc.live, 0);
}

static void tries_what_is_left_open(void **state)
{
    (void)state;
    PROGRAM_RUN(&weir, "tune", model, "--only", "policy,io-depth", "--runs", "1", "--json");
    program_expect(&weir, 0, "{\"profile\":", "weir: a run takes ");
    program_expect(&weir, 0, "{\"trial\":\"io-depth 16 instead of ", "");
    program_expect(&weir, 0, "{\"trial\":\"policy lru instead of ", "");
    assert_null(strstr(weir.out, "prefetch"));
    PROGRAM_RUN(&weir, "tune", model, "--only", "policy,io-depth", "--runs", "1", "--policy", "lfu");
    program_expect(&weir, 0, "", "io-depth 4 instead of auto: takes ");
    assert_null(strstr(weir.log, "policy"));
}

static void wrong_words(void **state)
{
    (void)state;
    PROGRAM_RUN(&weir, "tune", model, "--only", "io-deep");
    program_expect(&weir, 2, "", "--only: 'io-deep' is not tried; the nearest that is is 'io-depth'");
    PROGRAM_RUN(&weir, "tune", model, "--only", "policy", "--policy", "lru");
    program_expect(&weir, 2, "", "all that would be tried is stated already; leave some of it out");
    PROGRAM_RUN(&weir, "tune");
    program_expect(&weir, 2, "", "tune needs MODEL");
    PROGRAM_RUN(&weir, "tune", temp_path(&folder, "nothing"), "--only", "policy");
    program_expect(&weir, 4, "", "nothing");
    PROGRAM_RUN(&weir, "tune", model, "--ram-budget", "2M", "--only", "policy");
    program_expect(&weir, 3, "", "needs at least ");
    program_set(&weir, "XDG_STATE_HOME", "");
    program_set(&weir, "HOME", "");
    PROGRAM_RUN(&weir, "tune", model, "--only", "policy");
    program_expect(&weir, 2, "", "neither XDG_STATE_HOME nor HOME is set, so there is no place for a profile");
}

static void the_usage_history_stays_as_it_was(void **state)
{
    (void)state;
    char usage[400];
    PROGRAM_RUN(&weir, "score", model, "--ids", "1 2 3 4 5 6 7 8", "--experts-resident", "50%");
    program_expect(&weir, 0, "perplexity", "");
    snprintf(usage, sizeof usage, "%s", temp_path(&folder, "before"));
    char command[1000];
    snprintf(command, sizeof command, "cp -r %s/weir %s", folder.path, usage);
    assert_int_equal(system(command), 0);
    PROGRAM_RUN(&weir, "tune", model, "--only", "prefetch", "--runs", "1", "--experts-resident", "50%");
    program_expect(&weir, 0, "", "prefetch off instead of on");
    remove_tree(temp_path(&folder, "weir/profiles"));
    assert_same_folders(temp_path(&folder, "weir"), usage);
}

static void a_profile_gives_way_to_all_else(void **state)
{
    (void)state;
    write_profile("io-depth = 7\npolicy = lru\n");
    PROGRAM_RUN(&weir, "serve", model, "--print-config");
    program_expect(&weir, 0, "io-depth = 7  ; ", "");
    program_expect(&weir, 0, profile, "");
    PROGRAM_RUN(&weir, "serve", model, "--print-config", "--io-depth", "9");
    program_expect(&weir, 0, "io-depth = 9  ; command line", "");
    program_expect(&weir, 0, "policy = lru  ; ", "");
    PROGRAM_RUN(&weir, "serve", model, "--print-config", "--profile", "off");
    program_expect(&weir, 0, "io-depth = auto  ; default", "");
    program_set(&weir, "WEIR_IO_DEPTH", "5");
    PROGRAM_RUN(&weir, "serve", model, "--print-config");
    program_expect(&weir, 0, "io-depth = 5  ; WEIR_IO_DEPTH", "");
    PROGRAM_RUN(&weir, "score", model, "--ids", "1 2 3"); /* it is really taken */
    program_expect(&weir, 0, "perplexity", "");
    write_profile("policy = best\n");
    PROGRAM_RUN(&weir, "score", model, "--ids", "1 2 3");
    program_expect(&weir, 2, "", "best");
}

static void a_broken_profile(void **state)
{
    (void)state;
    write_profile("io-depth = 7\nio-deep = 7\n");
    PROGRAM_RUN(&weir, "score", model, "--ids", "1 2 3");
    program_expect(&weir, 2, "", "the model's profile (weir tune makes it anew, --profile off does without): ");
    program_expect(&weir, 2, "", ".ini:2: there is no option 'io-deep'; the nearest is 'io-depth'");
    PROGRAM_RUN(&weir, "score", model, "--ids", "1 2 3", "--profile", "off");
    program_expect(&weir, 0, "perplexity", "");
    write_profile(""); /* nothing to keep: none is left */
    assert_false(file_exists(profile));
    write_profile("");

    struct alloc alloc = {0};
    struct err err = {0};
    assert_int_equal(mkdir(profile, 0700), 0); /* what stands in the way is named, with what to do */
    assert_false(profile_write(profile, &alloc, "", 0, &err));
    assert_non_null(strstr(err.text, ": cannot be removed: "));
    assert_non_null(strstr(err.text, "; remove it by hand, or choose another XDG_STATE_HOME"));
    assert_int_equal(alloc.live, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tries_what_is_left_open),         TEST(wrong_words),      TEST(the_usage_history_stays_as_it_was),
        TEST(a_profile_gives_way_to_all_else), TEST(a_broken_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
