#include "base/buf.h"
#include "support/check.h"

static void grows_and_stays_a_text(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct buf buf;
    buf_init(&buf, &alloc, 1 << 16);
    assert_null(buf.data);
    for (int i = 0; i < 1000; i++) {
        assert_true(buf_add_char(&buf, (char)('a' + i % 26), &err));
        assert_int_equal(buf.bytes, i + 1);
        assert_int_equal(buf.data[buf.bytes], 0);
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(buf.data[i], 'a' + i % 26);
    buf_clear(&buf);
    assert_true(buf_printf(&buf, &err, "%d-%s", 42, "x") && buf_add_text(&buf, "yz", &err) &&
                buf_add(&buf, "\0!", 2, &err));
    assert_memory_equal(buf.data, "42-xyz\0!\0", 9);
    assert_int_equal(buf.bytes, 8);

    char *taken = buf_take(&buf);
    assert_string_equal(taken, "42-xyz");
    assert_int_equal(buf.bytes, 0);
    alloc_put(&alloc, taken);
    assert_null(buf_take(&buf));
    buf_fini(&buf);
    buf_fini(&buf);
    assert_int_equal(alloc.live, 0);
}

static void the_ceiling_holds(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct buf buf;
    buf_init(&buf, &alloc, 10);
    struct err err = {0};
    assert_true(buf_add_text(&buf, "0123456789", &err));
    assert_false(buf_add_char(&buf, 'x', &err));
    assert_int_equal(err.kind, ERR_BUSY);
    assert_false(buf_printf(&buf, &err, "%d", 1));
    assert_true(buf_add(&buf, "", 0, &err));
    assert_string_equal(buf.data, "0123456789");
    buf_fini(&buf);
}

static void nothing_leaks_whatever_allocation_fails(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct buf buf;
        bool ok = true;
        buf_init(&buf, &alloc, 1 << 12);
        for (int i = 0; ok && i < 400; i++) ok = buf_printf(&buf, &err, "%d", i % 10);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (!ok && buf.data) assert_int_equal(buf.data[buf.bytes], 0);
        buf_fini(&buf);
        assert_int_equal(alloc.live, 0);
        if (ok) {
            print_message("%d allocations were made to fail\n", (int)k - 1);
            assert_true(k > 3);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_a_text),
        cmocka_unit_test(the_ceiling_holds),
        cmocka_unit_test(nothing_leaks_whatever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
