/* What selftest compares would differ if anything were wrong: its model answers at all, the same every time, and
 * something else as soon as one weight or one row of a saved state is another. */
#include "cli/selftest.h"
#include "convert/convert.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <stdlib.h>
#include <sys/stat.h>

static struct temp_folder folder;
static struct selftest_way way;

static void convert(const char *source, const char *destination)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct convert_result result;
    const struct convert_job job = {.source = source,
                                    .destination = destination,
                                    .options = convert_options_default(),
                                    .alloc = &alloc,
                                    .fs = file_system_real(),
                                    .ws = write_system_real(),
                                    .clock = clock_real()};
    if (!convert_folder(&job, &result, &err)) fail_msg("%s", err.text);
    assert_int_equal(alloc.live, 0);
}

static void answer(struct transcript *out)
{
    struct alloc alloc = {0};
    struct err err = {0};
    if (!selftest_answer(out, &alloc, &way, &err)) fail_msg("%s", err.text);
    assert_int_equal(alloc.live, 0);
}

static int set_up(void **state)
{
    (void)state;
    static char container[300];
    struct alloc alloc = {0};
    struct err err = {0};
    temp_folder_make(&folder);
    char source[300];
    snprintf(source, sizeof source, "%s", temp_path(&folder, "checkpoint"));
    snprintf(container, sizeof container, "%s", temp_path(&folder, "container"));
    assert_int_equal(mkdir(source, 0700), 0);
    if (!selftest_model_write(&alloc, source, &err)) fail_msg("%s", err.text);
    assert_int_equal(alloc.live, 0);
    convert(source, container);
    way = (struct selftest_way){.folder = container, .n_threads = 1, .cpu_mask = UINT32_MAX, .experts_resident = 0.1};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static void another_weight_is_seen(void **state)
{
    (void)state;
    struct transcript want, got;
    char path[600];
    size_t bytes;
    answer(&want);
    answer(&got);
    assert_memory_equal(&want, &got, sizeof want);
    for (uint32_t i = 0; i < 12; i++) printf("%u ", want.ids[i]);
    printf("\n");

    snprintf(path, sizeof path, "%s/out-00000.safetensors", way.folder);
    unsigned char *data = take_file(path, &bytes);
    for (size_t i = bytes - bytes / 4; i < bytes; i += 64)
        data[i] ^= 0x30; /* four bits a block, in the quantised part */
    put_file(path, data, bytes);
    answer(&got);
    assert_memory_not_equal(want.digests, got.digests, sizeof want.digests);
    for (size_t i = bytes - bytes / 4; i < bytes; i += 64) data[i] ^= 0x30;
    put_file(path, data, bytes);
    answer(&got);
    assert_memory_equal(&want, &got, sizeof want);
    free(data);
}

static void a_killed_one_is_restored(void **state)
{
    (void)state;
    struct transcript want, got;
    struct alloc alloc = {0};
    struct err err = {0};
    uint32_t n_restored = 0;
    char path[300];
    snprintf(path, sizeof path, "%s", temp_path(&folder, "state"));
    answer(&want);
    if (!selftest_answer_killed(&got, &n_restored, &alloc, &way, path, &err)) fail_msg("%s", err.text);
    printf("%u tokens restored\n", n_restored);
    assert_true(n_restored > SELFTEST_PROMPT);
    assert_memory_equal(want.ids, got.ids, sizeof want.ids);
    uint32_t first = n_restored + 1 - SELFTEST_PROMPT;
    assert_true(first < SELFTEST_ANSWER);
    assert_memory_equal(want.digests + first, got.digests + first, sizeof want.digests - first * sizeof *want.digests);

    /* The process that is killed tells why it cannot answer. */
    snprintf(path, sizeof path, "%s", temp_path(&folder, "nowhere/state"));
    assert_false(selftest_answer_killed(&got, &n_restored, &alloc, &way, path, &err));
    printf("%s\n", err.text);
    assert_non_null(strstr(err.text, "nowhere/state"));
    assert_int_equal(alloc.live, 0);
}

/* Through a server, too, another token than the reference's is seen; and drafts are made, or nothing is tested. */
static void a_wrong_answer_of_a_server_is_seen(void **state)
{
    (void)state;
    struct transcript want, got;
    struct served served;
    struct alloc alloc = {0};
    struct err err = {0};
    uint32_t n_drafted = 0;
    char states[300], text[100], right[SELFTEST_TOKEN_TEXT], wrong[SELFTEST_TOKEN_TEXT];
    answer(&want);
    for (uint32_t i = 0; i < SELFTEST_ANSWER; i++) assert_true(selftest_token_is_readable(want.ids[i]));
    struct selftest_way drafting = way;
    drafting.n_drafts = 3;
    if (!selftest_scheduled(&got, &n_drafted, &alloc, &drafting, &err)) fail_msg("%s", err.text);
    assert_memory_equal(want.ids, got.ids, sizeof want.ids);
    assert_true(n_drafted > 0);

    snprintf(states, sizeof states, "%s", temp_path(&folder, "states"));
    assert_int_equal(mkdir(states, 0700), 0);
    if (!selftest_serve(&served, &alloc, &drafting, states, &want, &err)) fail_msg("%s", err.text);
    printf("%u tokens from disk, %u drafted, killed at byte %u\n", served.n_cached, served.n_drafted,
           served.n_killed_at);
    assert_true(served.n_cached > 0 && served.n_drafted > 0 && served.n_killed_at > 0);

    remove_tree(states);
    assert_int_equal(mkdir(states, 0700), 0);
    selftest_token_text(right, want.ids[41]);
    want.ids[41] = want.ids[41] == 'A' ? 'B' : 'A';
    selftest_token_text(wrong, want.ids[41]);
    assert_false(selftest_serve(&served, &alloc, &drafting, states, &want, &err));
    snprintf(text, sizeof text, "token 41 of the served answer is '%s', not '%s'", right, wrong);
    assert_string_equal(err.text, text);

    /* a server that cannot start says why */
    drafting.folder = "tests/fixtures/nowhere";
    assert_false(selftest_serve(&served, &alloc, &drafting, states, &want, &err));
    printf("%s\n", err.text);
    assert_non_null(strstr(err.text, "nowhere/config.json"));
    assert_int_equal(alloc.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_weight_is_seen),
        cmocka_unit_test(a_killed_one_is_restored),
        cmocka_unit_test(a_wrong_answer_of_a_server_is_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
