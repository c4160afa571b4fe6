/* Commands that are killed 200 times each, at system calls spread over their whole run, in chains of four; after each
 * chain the same command once more must end as if nothing had happened. */
#include "support/check.h"
#include "support/plain_hub.h"
#include "support/program.h"
#include "support/temp_folder.h"

#include <inttypes.h>
#include <stdlib.h>

#define FIXTURES "tests/fixtures/glm52-tiny/"

enum { KILLS = 200, CHAIN = 4 };

static struct temp_folder folder;
static struct plain_hub hub;
static struct program weir;
static uint64_t seed;

static int start(void **state)
{
    (void)state;
    plain_hub_start(&hub, 2);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    plain_hub_stop(&hub);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    plain_hub_begin(&hub, &folder, &weir);
    seed = 20260;
    return 0;
}

static int end(void **state)
{
    (void)state;
    program_fini(&weir);
    temp_folder_remove(&folder);
    return 0;
}

static unsigned draw(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((seed >> 33) % n);
}

struct killed {
    const char *const *words; /* the command */
    const char *leaves;       /* folder of what it makes, taken away before each chain */
    void (*check)(const struct killed *killed);
};

static void kill_again_and_again(const struct killed *k)
{
    unsigned n_killed = 0, n_chains = 0;
    remove_tree(k->leaves);
    unsigned n_calls = program_count_calls(&weir, k->words);
    print_message("seed %" PRIu64 ", %u system calls\n", seed, n_calls);
    for (; n_killed < KILLS; n_chains++) {
        remove_tree(k->leaves);
        /* A run that goes on has less to do than the first and may be through before its moment comes. */
        for (unsigned i = 0; i < CHAIN; i++) n_killed += program_run_killed(&weir, k->words, 1 + draw(n_calls));
        program_run(&weir, k->words);
        program_expect(&weir, 0, "", "");
        k->check(k);
        assert_true(n_chains < KILLS);
    }
    print_message("%u runs were killed, %u ran to their end behind them\n", n_killed, n_chains);
}

static char *wanted; /* text that must come out again */

static void check_models(const struct killed *k)
{
    (void)k;
    PROGRAM_RUN(&weir, "models", "--json");
    assert_string_equal(weir.out, wanted);
}

static void a_scan(void **state)
{
    (void)state;
    const char *const words[] = {"scan", "tests/fixtures", "models", NULL};
    program_run(&weir, words);
    program_expect(&weir, 0, "8 models, 8 of them new", "");
    PROGRAM_RUN(&weir, "models", "--json");
    wanted = strdup(weir.out);
    kill_again_and_again(&(struct killed){words, temp_path(&folder, ".local"), check_models});
    free(wanted);
}

static void check_cache(const struct killed *k)
{
    assert_same_folders(k->leaves, temp_path(&folder, "clean"));
}

static void a_get(void **state)
{
    (void)state;
    char cache[300], clean[300];
    snprintf(cache, sizeof cache, "%s", temp_path(&folder, "hub"));
    snprintf(clean, sizeof clean, "%s", temp_path(&folder, "clean"));
    const char *const words[] = {"get", "org/name", NULL};
    program_set(&weir, "HF_HUB_CACHE", clean);
    program_run(&weir, words);
    program_expect(&weir, 0, "/snapshots/", "");
    program_set(&weir, "HF_HUB_CACHE", cache);
    kill_again_and_again(&(struct killed){words, cache, check_cache});
}

static void a_convert(void **state)
{
    (void)state;
    char made[300], clean[300];
    snprintf(made, sizeof made, "%s", temp_path(&folder, "made"));
    snprintf(clean, sizeof clean, "%s", temp_path(&folder, "clean"));
    PROGRAM_RUN(&weir, "convert", FIXTURES "plain", clean, "--group", "32");
    program_expect(&weir, 0, "", "");
    const char *const words[] = {"convert", FIXTURES "plain", made, "--group", "32", NULL};
    kill_again_and_again(&(struct killed){words, made, check_cache});
}

static void check_report(const struct killed *k)
{
    (void)k;
    program_expect(&weir, 0, wanted, "");
}

static void a_verify(void **state)
{
    (void)state;
    const char *const words[] = {"verify", "models/demo", "--json", NULL};
    program_run(&weir, words);
    char *files = strstr(weir.out, "\"checksums_right\"");
    assert_non_null(files);
    wanted = strdup(files);
    kill_again_and_again(&(struct killed){words, temp_path(&folder, ".local"), check_report});
    free(wanted);
}

/* What is found depends on the machine; that a profile is whole, and nothing half-made beside it, does not. */
static void check_profile(const struct killed *k)
{
    PROGRAM_RUN(&weir, "serve", k->words[1], "--print-config");
    program_expect(&weir, 0, "io-depth = ", "");
    PROGRAM_RUN(&weir, "score", k->words[1], "--ids", "1 2 3");
    program_expect(&weir, 0, "perplexity", "");
}

static void a_tune(void **state)
{
    (void)state;
    char model[300];
    snprintf(model, sizeof model, "%s", temp_path(&folder, "model"));
    PROGRAM_RUN(&weir, "convert", FIXTURES "plain", model, "--group", "32");
    program_expect(&weir, 0, "", "");
    const char *const words[] = {"tune", model, "--only", "prefetch", "--runs", "1", "--threads", "1", NULL};
    kill_again_and_again(&(struct killed){words, temp_path(&folder, ".local"), check_profile});
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(a_scan), TEST(a_get), TEST(a_convert), TEST(a_verify), TEST(a_tune)};
    return cmocka_run_group_tests(tests, start, stop);
}
