/* JSON written member by member: what it says, and that every failure is one, at the end. */
#include "serve/jot.h"
#include "support/check.h"

#include <json-c/json.h>

static void write_sample(struct jot *json)
{
    jot_open(json);
    jot_put_words(json, "words", "a \"b\" \n \xC3\xA4");
    jot_put_words(json, "none", NULL);
    jot_put_text(json, "nul", "a\0b", 3);
    jot_put_integer(json, "integer", INT64_MIN);
    jot_put_real(json, "real", 0.5);
    jot_put_bool(json, "yes", true);
    jot_put_open_list(json, "list");
    jot_integer(json, 1);
    jot_open(json);
    jot_close(json);
    jot_open_list(json);
    jot_close_list(json);
    jot_raw(json, "{\"x\":[]}", 8);
    jot_close_list(json);
    jot_put_value(json, "value", NULL);
    jot_close(json);
}

static const char sample[] =
    "{\"words\":\"a \\\"b\\\" \\n \xC3\xA4\",\"none\":null,\"nul\":\"a\\u0000b\",\"integer\":-9223372036854775808,"
    "\"real\":0.5,\"yes\":true,\"list\":[1,{},[],{\"x\":[]}],\"value\":null}";

static void it_writes_what_it_is_told(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct buf out;
    buf_init(&out, &alloc, 4096);
    struct jot json = jot_to(&out);
    write_sample(&json);
    assert_true(jot_end(&json, &err));
    assert_string_equal(out.data, sample);
    struct json_object *parsed = json_tokener_parse(out.data);
    assert_non_null(parsed);
    json_object_put(parsed);
    buf_fini(&out);
    assert_int_equal(alloc.live, 0);
}

static void the_first_failure_is_remembered(void **state)
{
    (void)state;
    /* Memory that fails at the k-th call, until none does; and a ceiling at every length. */
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct buf out;
        buf_init(&out, &alloc, 4096);
        struct jot json = jot_to(&out);
        write_sample(&json);
        bool ok = jot_end(&json, &err);
        buf_fini(&out);
        assert_int_equal(alloc.live, 0);
        if (ok) break;
        assert_int_equal(err.kind, ERR_NOMEM);
    }
    for (size_t n = 0; n < sizeof sample; n++) {
        struct alloc alloc = {0};
        struct err err = {0};
        struct buf out;
        buf_init(&out, &alloc, n);
        struct jot json = jot_to(&out);
        write_sample(&json);
        assert_int_equal(jot_end(&json, &err), n >= sizeof sample - 1);
        if (n < sizeof sample - 1) assert_int_equal(err.kind, ERR_BUSY);
        buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_writes_what_it_is_told),
        cmocka_unit_test(the_first_failure_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
