#include "resid/usage.h"
#include "resid/streamed.h"
#include "run/session.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <inttypes.h>
#include <stdlib.h>

enum { LAYERS = 4, EXPERTS = 6 };

static const uint8_t identity[32] = {1, 2, 3}, other_identity[32] = {9};
static struct temp_folder folder;

static int make_folder(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static void make(struct usage *usage, struct alloc *alloc, const uint8_t of[32])
{
    struct err err = {0};
    if (!usage_init(usage, alloc, LAYERS, EXPERTS, of, &err)) fail_msg("%s", err.text);
}

static bool is_zero(const struct usage *usage)
{
    uint32_t sum = 0;
    for (int i = 0; i < LAYERS * EXPERTS; i++) sum |= usage->counts[i];
    return sum == 0;
}

static void counts_come_back_and_damage_is_seen(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct usage a, b;
    const char *path = temp_path(&folder, "usage");
    make(&a, &alloc, identity);
    make(&b, &alloc, identity);
    if (!usage_read(&b, file_system_real(), path, &err)) fail_msg("%s", err.text); /* not there: all zero */
    assert_true(is_zero(&b));
    a.n_passes = 77;
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) a.counts[i] = i * 1000003;
    if (!usage_write(&a, write_system_real(), path, &err)) fail_msg("%s", err.text);
    if (!usage_read(&b, file_system_real(), path, &err)) fail_msg("%s", err.text);
    assert_memory_equal(a.counts, b.counts, LAYERS * EXPERTS * sizeof *a.counts);
    assert_int_equal(b.n_passes, 77);

    size_t bytes;
    unsigned char *data = take_file(path, &bytes);
    for (size_t i = 0; i < bytes; i++) { /* any bit that flips */
        data[i] ^= 0x10;
        put_file(path, data, bytes);
        data[i] ^= 0x10;
        assert_false(usage_read(&b, file_system_real(), path, &err));
        assert_int_equal(err.kind, ERR_DATA);
        assert_true(is_zero(&b));
    }
    for (size_t n = 0; n < bytes; n++) { /* any cut */
        put_file(path, data, n);
        assert_false(usage_read(&b, file_system_real(), path, &err));
        assert_true(is_zero(&b));
    }
    put_file(path, data, bytes);
    free(data);
    usage_fini(&b);
    make(&b, &alloc, other_identity);
    assert_false(usage_read(&b, file_system_real(), path, &err));
    assert_non_null(strstr(err.text, "not the usage history of this model"));
    usage_fini(&a);
    usage_fini(&b);
    usage_fini(&b);
    assert_int_equal(alloc.live, 0);
}

static void the_other_engines_text(void **state)
{
    (void)state;
    static const bool has_experts[LAYERS] = {false, true, true, false};
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {
        {"", true},
        {"1 2 30\n", true},
        {"-1 3 6\n-2 1 3815245270\n1 2 30\n2 5 4294967295\n", true},
        {"-9 1 1\n1 2 30\r\n\n0 1 5\n3 1 5\n", true}, /* unknown marks and layers without experts */
        {"-1 4 6\n", false},
        {"-1 3 7\n", false},
        {"-2 2 3815245270\n", false},
        {"-2 1 5\n", false},
        {"1 2\n", false},
        {"1 2 3 4\n", false},
        {"1 6 3\n", false},
        {"4 1 3\n", false},
        {"1 -1 3\n", false},
        {"1 1 -3\n", false},
        {"1 1 4294967296\n", false},
        {"1 1 99999999999999999999\n", false},
        {"one two three\n", false},
    };
    const char *path = temp_path(&folder, "coli");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct usage u;
        make(&u, &alloc, identity);
        u.counts[0] = 1;
        put_file(path, cases[i].text, strlen(cases[i].text));
        bool ok = usage_import(&u, file_system_real(), path, has_experts, &err);
        if (ok != cases[i].ok) fail_msg("'%s': %s", cases[i].text, ok ? "was taken" : err.text);
        if (!ok) assert_int_equal(err.kind, ERR_DATA);
        if (!ok) assert_true(is_zero(&u));
        assert_int_equal(u.counts[0], 0);
        if (ok && strstr(cases[i].text, "1 2 30")) assert_int_equal(u.counts[EXPERTS + 2], 30);
        usage_fini(&u);
        assert_int_equal(alloc.live, 0);
    }
}

static void the_top_is_in_order(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct usage u;
    uint32_t keys[LAYERS * EXPERTS], random = 5;
    make(&u, &alloc, identity);
    for (int round = 0; round < 500; round++) {
        uint32_t n_above = 0;
        for (uint32_t i = 0; i < LAYERS * EXPERTS; i++) {
            random = random * 1664525 + 1013904223;
            u.counts[i] = random >> 28;
            n_above += u.counts[i] > 0;
        }
        uint32_t most = (uint32_t)round % (LAYERS * EXPERTS + 1), n = usage_top(&u, keys, most);
        assert_int_equal(n, most < n_above ? most : n_above);
        for (uint32_t i = 1; i < n; i++) assert_true(u.counts[keys[i - 1]] >= u.counts[keys[i]]);
        uint32_t n_better = 0; /* nothing that was left out is better than the last that was taken */
        for (uint32_t i = 0; n > 0 && i < LAYERS * EXPERTS; i++) n_better += u.counts[i] > u.counts[keys[n - 1]];
        assert_true(n_better < n || n == 0);
    }
    usage_fini(&u);
    assert_int_equal(alloc.live, 0);
}

/* A second run of a model begins with what the first one used, and computes the same. */
static void a_second_run_starts_warm(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {5, 900, 17, 333, 5, 900, 17, 333};
    enum { TOKENS = sizeof tokens / sizeof *tokens };
    float first[8];
    uint64_t misses[2];
    for (int run = 0; run < 2; run++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct engine *engine;
        struct session session;
        struct engine_settings settings = engine_settings_default("models/demo");
        settings.n_threads = 1;
        settings.ram_budget_bytes = UINT64_C(1) << 29;
        settings.experts_resident = 0.5;
        settings.streamed.usage_folder = folder.path;
        if (!engine_open(&engine, &alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
        session_init(&session, engine);
        for (int i = 0; i < TOKENS; i++)
            if (!session_feed(&session, tokens + i, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
        if (run == 0) memcpy(first, session.logits, sizeof first);
        assert_memory_equal(first, session.logits, sizeof first);
        const struct slots_stats *stats = slots_stats(streamed_slots(engine_streamed(engine)));
        misses[run] = stats->n_misses;
        printf("run %d: %" PRIu64 " misses, %" PRIu64 " hints, %" PRIu64 " of them used\n", run, stats->n_misses,
               stats->n_hints, stats->n_hint_hits);
        session_fini(&session);
        engine_close(engine);
        assert_int_equal(alloc.live, 0);
    }
    assert_true(misses[1] < misses[0]);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct err err = {0};
    const char *path = temp_path(&folder, "sweep");
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct usage u = {0};
        bool ok = usage_init(&u, &alloc, LAYERS, EXPERTS, identity, &err) &&
                  usage_write(&u, write_system_real(), path, &err) && usage_read(&u, file_system_real(), path, &err);
        usage_fini(&u);
        assert_int_equal(alloc.live, 0);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (ok && alloc.calls < k) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_come_back_and_damage_is_seen),
        cmocka_unit_test(the_other_engines_text),
        cmocka_unit_test(the_top_is_in_order),
        cmocka_unit_test(a_second_run_starts_warm),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
