#include "base/err.h"
#include "support/check.h"

static void the_message_and_its_kind(void **state)
{
    (void)state;
    struct err err = {0};
    assert_false(err_set(&err, ERR_DATA, "%s: %d bytes", "file", 12));
    assert_int_equal(err.kind, ERR_DATA);
    assert_string_equal(err.text, "file: 12 bytes");
    assert_false(err_context(&err, "layer %d", 3));
    assert_int_equal(err.kind, ERR_DATA);
    assert_string_equal(err.text, "layer 3: file: 12 bytes");
    assert_false(err_set(NULL, ERR_DATA, "nobody listens"));
    assert_false(err_context(NULL, "nobody listens"));
}

static void too_long_is_cut_visibly(void **state)
{
    (void)state;
    struct err err = {0};
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    err_set(&err, ERR_USER, "%s", big);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 4, "...");

    /* context keeps its place in front, the fact gives way at its end */
    err_set(&err, ERR_USER, "fact");
    err_context(&err, "%.1000s", big);
    assert_int_equal(err.text[0], 'x');
    assert_string_equal(err.text + 1000, ": fact");
    for (int i = 0; i < 200; i++) err_context(&err, "step %d", i);
    assert_true(strlen(err.text) < sizeof err.text);
    assert_memory_equal(err.text, "step 199: step 198: ", 20);

    /* context that leaves no room is dropped, not the fact */
    err_set(&err, ERR_USER, "fact");
    err_context(&err, "%s", big);
    assert_string_equal(err.text, "fact");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_message_and_its_kind),
        cmocka_unit_test(too_long_is_cut_visibly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
