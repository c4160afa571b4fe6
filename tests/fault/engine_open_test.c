/* Every failure while a model opens, from the first header to the forward pass, for a container that streams and for a
 * checkpoint: the k-th allocation or the k-th call to the file system fails, for every k. Each time a clean error, and
 * nothing is left: no memory, no descriptor, no thread. */
#include "run/engine.h"
#include "support/check.h"
#include "support/faulty_files.h"

#include <dirent.h>

static const char *const models[] = {"models/demo", "tests/fixtures/glm52-tiny/mtp"};

static struct engine_settings settings_for(const char *dir)
{
    struct engine_settings settings = engine_settings_default(dir);
    settings.n_threads = 2;
    settings.context_tokens = 128;
    settings.pass_rows = 16;
    settings.experts_resident = 0.05;
    settings.ram_budget_bytes = UINT64_C(1) << 30; /* stated: facts about the machine may then be unknown */
    settings.streamed.direct = DIRECT_OFF;         /* nothing is measured: every run makes the same calls */
    return settings;
}

static unsigned count_entries(const char *dir)
{
    unsigned n = 0;
    DIR *open = opendir(dir);
    assert_non_null(open);
    while (readdir(open)) n++;
    closedir(open);
    return n;
}

/* A thread that was joined may be listed for a moment longer. */
static void expect_threads(unsigned wanted)
{
    int64_t until_ns = clock_now_ns(clock_real()) + INT64_C(60000000000);
    unsigned n;
    while ((n = count_entries("/proc/self/task")) != wanted) {
        if (clock_now_ns(clock_real()) > until_ns) fail_msg("%u entries for threads, not %u", n, wanted);
        clock_sleep_ns(clock_real(), 1000000);
    }
}

static void expect_told(const struct err *err)
{
    assert_int_not_equal(err->kind, ERR_NONE);
    assert_true(strlen(err->text) > 10);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    unsigned descriptors = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    for (size_t m = 0; m < 2; m++) {
        struct engine_settings settings = settings_for(models[m]);
        uint64_t k = 1;
        for (;; k++) {
            struct alloc alloc = {.fail_at = k};
            struct engine *engine = NULL;
            struct err err = {0};
            bool ok = engine_open(&engine, &alloc, file_system_real(), &settings, &err);
            bool reached = alloc.calls >= k;
            if (ok) engine_close(engine);
            if (!ok) expect_told(&err);
            if (!ok && err.kind != ERR_NOMEM) fail_msg("allocation %lu: %s", (unsigned long)k, err.text);
            assert_int_equal(alloc.live, 0);
            if (ok && !reached) break; /* ran to the end: every point has been tried */
        }
        print_message("%s: %lu allocations\n", models[m], (unsigned long)(k - 1));
        assert_true(k > 20);
    }
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    expect_threads(threads);
}

static void every_file_call_may_fail(void **state)
{
    (void)state;
    unsigned descriptors = count_entries("/proc/self/fd");
    for (size_t m = 0; m < 2; m++) {
        struct engine_settings settings = settings_for(models[m]);
        uint64_t n_failed = 0;
        for (uint64_t k = 1;; k++) {
            struct faulty_files faulty = {.fail_at = k, .read_most = k % 2 ? 1000 : 0, .interrupts = k % 3 == 0};
            struct alloc alloc = {0};
            struct engine *engine = NULL;
            struct err err = {0};
            bool ok = engine_open(&engine, &alloc, faulty_files_system(&faulty), &settings, &err);
            bool reached = faulty.calls >= k;
            if (ok) engine_close(engine);
            if (!ok) expect_told(&err);
            n_failed += !ok;
            assert_int_equal(alloc.live, 0);
            assert_int_equal(faulty.n_open, 0);
            if (ok && !reached) break;
        }
        print_message("%s: %lu failed calls\n", models[m], (unsigned long)n_failed);
        assert_true(n_failed > 5);
    }
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_file_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
