#include "fmt/token_list.h"

#include "support/check.h"

static struct alloc heap;

static void lists_are_read_as_people_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        uint32_t ids[3];
    } good[] = {
        {"1", 1, {1}},
        {"1 2 3", 3, {1, 2, 3}},
        {"1,2,\n3\r\n", 3, {1, 2, 3}},
        {"[154820, 0]", 2, {154820, 0}},
        {"4294967295", 1, {UINT32_MAX}},
    };
    static const char *const bad[] = {"", " ,[]", "x", "1 -2", "1.5", "4294967296", "99999999999", "1;2"};
    struct token_list list;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct err err = {0};
        assert_true(token_list_parse(&list, &heap, "test", good[i].text, &err));
        assert_int_equal(list.n, good[i].n);
        assert_memory_equal(list.ids, good[i].ids, list.n * sizeof *list.ids);
        token_list_fini(&list);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = {0};
        assert_false(token_list_parse(&list, &heap, "test", bad[i], &err));
        assert_int_equal(err.kind, ERR_USER);
        assert_int_equal(strncmp(err.text, "test: ", 6), 0);
        token_list_fini(&list);
    }
    assert_int_equal(heap.live, 0);
}

static void the_ceiling_holds(void **state)
{
    (void)state;
    struct token_list list;
    struct err err = {0};
    uint32_t ids[300] = {7};
    token_list_init(&list, &heap, 200);
    assert_true(token_list_add(&list, ids, 199, &err));
    assert_false(token_list_add(&list, ids, 2, &err));
    assert_int_equal(err.kind, ERR_BUSY);
    assert_int_equal(list.n, 199);
    assert_true(token_list_add(&list, ids, 1, &err));
    assert_true(token_list_add(&list, ids, 0, &err));
    assert_int_equal(list.ids[199], 7);
    token_list_fini(&list);
    token_list_fini(&list);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_as_people_write_them),
        cmocka_unit_test(the_ceiling_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
