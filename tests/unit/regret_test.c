#include "resid/regret.h"
#include "support/check.h"

enum { LAYERS = 3, EXPERTS = 16 };

/* A circle that is one larger than memory: recency misses always, foresight nearly never. */
static void a_circle_costs_recency_all(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct regret regret;
    struct regret_figures figures;
    if (!regret_init(&regret, &alloc, LAYERS, EXPERTS, &err)) fail_msg("%s", err.text);
    for (uint32_t i = 0; i < 900; i++) {
        uint32_t key = i % 9;
        regret_add(&regret, &key, 1, 1);
    }
    if (!regret_now(&regret, &alloc, 8, &figures, &err)) fail_msg("%s", err.text);
    assert_int_equal(figures.n_wants, 900);
    assert_int_equal(figures.n_misses, 900);
    assert_in_range(figures.n_misses_best, 100, 130); /* one of eight or nine, less the start */
    regret_fini(&regret);
    regret_fini(&regret);
    assert_int_equal(alloc.live, 0);
}

static void a_full_window_forgets_its_older_half(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct regret regret;
    struct regret_figures figures;
    uint32_t keys[EXPERTS];
    if (!regret_init(&regret, &alloc, LAYERS, EXPERTS, &err)) fail_msg("%s", err.text);
    uint64_t calls = alloc.calls;
    for (uint32_t i = 0; i < 100000; i++) {
        uint32_t n = 1 + i * 7 % EXPERTS;
        for (uint32_t k = 0; k < n; k++) keys[k] = i % LAYERS * EXPERTS + k;
        regret_add(&regret, keys, n, i < 90000 ? n : 0);
    }
    assert_int_equal(alloc.calls, calls); /* nothing is allocated on the way */
    if (!regret_now(&regret, &alloc, 48, &figures, &err)) fail_msg("%s", err.text);
    assert_in_range(figures.n_wants, 1000, 8192);
    assert_int_equal(figures.n_misses, 0); /* the misses are long gone */
    assert_int_equal(figures.n_misses_best, 0);
    regret_fini(&regret);
    for (uint64_t k = 1;; k++) {
        struct alloc failing = {.fail_at = k};
        bool ok = regret_init(&regret, &failing, LAYERS, EXPERTS, &err);
        if (ok) regret_fini(&regret);
        assert_int_equal(failing.live, 0);
        if (ok) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_circle_costs_recency_all),
        cmocka_unit_test(a_full_window_forgets_its_older_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
