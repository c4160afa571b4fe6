/* Members of a request, by type, and what becomes of those that are not read. */
#include "serve/fields.h"
#include "support/check.h"

#include <json-c/json.h>

static const struct field_rule first[] = {
    {"known", FIELD_READ, NULL},
    {"store", FIELD_IGNORED, NULL},
    {"functions", FIELD_REFUSED, "send tools"},
    {NULL, FIELD_READ, NULL},
};

static struct problem read_all(const char *json, bool strict, struct sampling *sampling, struct arena *arena)
{
    struct problem problem = {0};
    struct json_object *body = json_tokener_parse(json);
    const struct field_rules rules = {.rules = {first, NULL}, .strict = strict};
    assert_non_null(body);
    bool ok = fields_read(body, &rules, sampling, arena, &problem);
    assert_int_equal(ok, problem.kind == PROBLEM_NONE);
    json_object_put(body);
    return problem;
}

static void members_that_are_not_read(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        bool strict;
        enum problem_kind kind;
        const char *param;
    } cases[] = {
        {"{\"known\":1,\"store\":true}", false, PROBLEM_NONE, ""},
        {"{\"anything\":1}", false, PROBLEM_NONE, ""},
        {"{\"anything\":1}", true, PROBLEM_INVALID_VALUE, "anything"},
        {"{\"functions\":[]}", false, PROBLEM_NONE, ""},
        {"{\"functions\":null}", false, PROBLEM_NONE, ""},
        {"{\"functions\":false}", true, PROBLEM_NONE, ""},
        {"{\"functions\":[{}]}", false, PROBLEM_UNSUPPORTED, "functions"},
        {"{\"temperature\":\"1\"}", false, PROBLEM_INVALID_TYPE, "temperature"},
        {"{\"temperature\":true}", false, PROBLEM_INVALID_TYPE, "temperature"},
        {"{\"temperature\":2.5}", false, PROBLEM_INVALID_VALUE, "temperature"},
        {"{\"mirostat\":1}", false, PROBLEM_UNSUPPORTED, "mirostat"},
        {"{\"mirostat\":0}", true, PROBLEM_NONE, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct alloc alloc = {0};
        struct arena arena;
        struct sampling sampling = {0};
        arena_init(&arena, &alloc, 1 << 20);
        struct problem problem = read_all(cases[i].json, cases[i].strict, &sampling, &arena);
        if (problem.kind != cases[i].kind || strcmp(problem.param, cases[i].param) != 0)
            fail_msg("%s: kind %d, param '%s': %s", cases[i].json, problem.kind, problem.param, problem.text);
        arena_fini(&arena);
        assert_int_equal(alloc.live, 0);
    }
}

static void the_newer_limit_wins_and_both_are_checked(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct arena arena;
    struct sampling sampling = {0};
    arena_init(&arena, &alloc, 1 << 20);
    assert_int_equal(read_all("{\"max_completion_tokens\":7,\"max_tokens\":9}", false, &sampling, &arena).kind,
                     PROBLEM_NONE);
    assert_int_equal(sampling.max_tokens, 7);
    sampling = (struct sampling){0};
    assert_int_equal(read_all("{\"max_tokens\":9,\"max_completion_tokens\":7}", false, &sampling, &arena).kind,
                     PROBLEM_NONE);
    assert_int_equal(sampling.max_tokens, 7);
    assert_int_equal(read_all("{\"max_tokens\":\"x\",\"max_completion_tokens\":7}", false, &sampling, &arena).kind,
                     PROBLEM_INVALID_TYPE);
    arena_fini(&arena);
}

static void readers_leave_alone_what_is_absent(void **state)
{
    (void)state;
    struct problem problem = {0};
    struct json_object *body = json_tokener_parse("{\"n\":null,\"text\":\"a\",\"number\":5,\"yes\":true,\"list\":[1]}"),
                       *list = NULL;
    const char *text = "kept";
    int64_t number = 3;
    bool yes = false;
    assert_true(field_text(body, "n", &text, &problem));
    assert_string_equal(text, "kept");
    assert_true(field_integer(body, "none", 0, 9, &number, &problem));
    assert_int_equal(number, 3);
    assert_true(field_text(body, "text", &text, &problem) && field_integer(body, "number", 0, 5, &number, &problem) &&
                field_bool(body, "yes", &yes, &problem) && field_list(body, "list", &list, &problem));
    assert_string_equal(text, "a");
    assert_true(number == 5 && yes && list);
    assert_false(field_integer(body, "number", 0, 4, &number, &problem));
    assert_int_equal(problem.kind, PROBLEM_INVALID_VALUE);
    assert_non_null(strstr(problem.text, "0 to 4"));
    assert_false(field_bool(body, "number", &yes, &problem));
    assert_int_equal(problem.kind, PROBLEM_INVALID_TYPE);
    assert_string_equal(field_word(body, "number"), "");
    assert_true(field_is(body, "text", "a"));
    json_object_put(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_are_not_read),
        cmocka_unit_test(the_newer_limit_wins_and_both_are_checked),
        cmocka_unit_test(readers_leave_alone_what_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
