#include "base/alloc.h"
#include "base/checked.h"
#include "support/check.h"

static void blocks_are_zeroed_aligned_and_counted(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    uint64_t total = 0;
    unsigned char *blocks[130];
    for (size_t n = 0; n < 130; n++) {
        blocks[n] = alloc_get(&alloc, n, &err);
        assert_non_null(blocks[n]);
        assert_int_equal((uintptr_t)blocks[n] % 64, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(blocks[n][i], 0);
        memset(blocks[n], 0xff, n);
        total += n;
        assert_int_equal(alloc.live, n + 1);
        assert_int_equal(alloc.live_bytes, total);
    }
    for (size_t n = 0; n < 130; n++) alloc_put(&alloc, blocks[n]);
    alloc_put(&alloc, NULL);
    assert_int_equal(alloc.live, 0);
    assert_int_equal(alloc.live_bytes, 0);
}

static void resizing_keeps_the_old_bytes(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    char *block = alloc_resize(&alloc, NULL, 4, &err);
    assert_non_null(block);
    memcpy(block, "abcd", 4);
    block = alloc_resize(&alloc, block, 100, &err);
    assert_memory_equal(block, "abcd\0\0", 6);
    block = alloc_resize(&alloc, block, 2, &err);
    assert_memory_equal(block, "ab", 2);
    assert_int_equal(alloc.live, 1);

    alloc.fail_at = alloc.calls + 1; /* a failed growth leaves the block as it was */
    assert_null(alloc_resize(&alloc, block, 1000, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
    assert_memory_equal(block, "ab", 2);
    alloc_put(&alloc, block);
    assert_int_equal(alloc.live, 0);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 63, UINT64_MAX / 2 + 1};
    struct alloc alloc = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct err err = {0};
        assert_null(alloc_get(&alloc, sizes[i], &err));
        assert_int_equal(err.kind, ERR_NOMEM);
    }
    struct err err = {0};
    assert_null(alloc_get_array(&alloc, UINT64_C(1) << 33, UINT64_C(1) << 33, &err));
    assert_int_equal(err.kind, ERR_NOMEM);
    assert_int_equal(alloc.live, 0);
}

static void the_chosen_call_fails_and_no_other(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 5; k++) {
        struct alloc alloc = {.fail_at = k};
        for (uint64_t call = 1; call <= 5; call++) {
            struct err err = {0};
            char *text = alloc_text(&alloc, "text", &err);
            assert_int_equal(text == NULL, call == k);
            if (text) assert_string_equal(text, "text");
            alloc_put(&alloc, text);
        }
        assert_int_equal(alloc.live, 0);
        assert_int_equal(alloc.calls, 5);
    }
}

static void overflow_is_told(void **state)
{
    (void)state;
    uint64_t out;
    assert_true(checked_add(&out, UINT64_MAX - 1, 1) && out == UINT64_MAX);
    assert_false(checked_add(&out, UINT64_MAX, 1));
    assert_true(checked_mul(&out, UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1));
    assert_false(checked_mul(&out, UINT64_C(1) << 32, UINT64_C(1) << 32));
    assert_int_equal(div_up(0, 7), 0);
    assert_int_equal(div_up(UINT64_MAX, 2), UINT64_C(1) << 63);
    assert_int_equal(round_up(65, 64), 128);
    assert_int_equal(round_down(127, 64), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_aligned_and_counted),
        cmocka_unit_test(resizing_keeps_the_old_bytes),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(the_chosen_call_fails_and_no_other),
        cmocka_unit_test(overflow_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
