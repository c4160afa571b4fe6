/* Refusals: statuses, types and codes of both families, and messages that hold no more than they should. */
#include "serve/problem.h"
#include "support/check.h"

static char *body_of(const struct problem *problem, enum error_family family, struct buf *out, struct alloc *alloc)
{
    struct err err = {0};
    buf_init(out, alloc, 8192);
    assert_true(problem_write(problem, family, "req_1", out, &err));
    return out->data;
}

static void both_families_have_their_shape(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct problem problem;
    struct buf out;
    assert_false(problem_set(&problem, PROBLEM_INVALID_VALUE, "top_p", "top_p: %d is \"too\" much", 7));
    assert_string_equal(body_of(&problem, FAMILY_OPENAI, &out, &alloc),
                        "{\"error\":{\"message\":\"top_p: 7 is \\\"too\\\" much\",\"type\":\"invalid_request_error\","
                        "\"param\":\"top_p\",\"code\":\"invalid_value\"}}");
    buf_fini(&out);
    assert_string_equal(body_of(&problem, FAMILY_ANTHROPIC, &out, &alloc),
                        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"top_p: 7 is "
                        "\\\"too\\\" much\"},\"request_id\":\"req_1\"}");
    buf_fini(&out);
    assert_int_equal(alloc.live, 0);
}

static void every_status_is_the_specified_one(void **state)
{
    (void)state;
    static const struct {
        enum problem_kind kind;
        unsigned openai, anthropic;
        const char *code;
    } cases[] = {
        {PROBLEM_INVALID_JSON, 400, 400, "invalid_json"},
        {PROBLEM_MISSING_FIELD, 400, 400, "missing_field"},
        {PROBLEM_CONTEXT, 400, 400, "context_length_exceeded"},
        {PROBLEM_CONFLICT, 400, 400, "conflicting_constraints"},
        {PROBLEM_KEY, 401, 401, "invalid_api_key"},
        {PROBLEM_FORBIDDEN, 403, 403, NULL},
        {PROBLEM_MODEL_NOT_FOUND, 404, 404, "model_not_found"},
        {PROBLEM_TOO_LARGE, 413, 413, "request_too_large"},
        {PROBLEM_HEADERS, 431, 431, "headers_too_large"},
        {PROBLEM_QUEUE_FULL, 429, 429, "queue_full"},
        {PROBLEM_NUMERICAL, 500, 500, "numerical_error"},
        {PROBLEM_ENGINE, 502, 502, "engine_unavailable"},
        {PROBLEM_LOADING, 503, 529, "loading"},
        {PROBLEM_SHUTTING_DOWN, 503, 529, "shutting_down"},
        {PROBLEM_QUEUE_TIMEOUT, 504, 504, "queue_timeout"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct problem problem = {.kind = cases[i].kind};
        assert_int_equal(problem_status(&problem, FAMILY_OPENAI), cases[i].openai);
        assert_int_equal(problem_status(&problem, FAMILY_ANTHROPIC), cases[i].anthropic);
        if (cases[i].code)
            assert_string_equal(problem_code(&problem), cases[i].code);
        else
            assert_null(problem_code(&problem));
    }
}

static void errors_from_below_keep_their_secrets(void **state)
{
    (void)state;
    struct err err = {0};
    struct problem problem;
    err_set(&err, ERR_USER, "messages[2].content: must be a string");
    problem_from(&problem, PROBLEM_INVALID_TYPE, &err);
    assert_int_equal(problem.kind, PROBLEM_INVALID_TYPE);
    assert_string_equal(problem.param, "messages[2].content");
    err_set(&err, ERR_IO, "/home/someone/secret.safetensors: cannot be read");
    problem_from(&problem, PROBLEM_INVALID_TYPE, &err);
    assert_int_equal(problem.kind, PROBLEM_INTERNAL);
    assert_null(strstr(problem.text, "secret"));
    assert_string_equal(problem.param, "");
    err_set(&err, ERR_FAILED, "numerical_error: a NaN at 7");
    problem_from(&problem, PROBLEM_INVALID_TYPE, &err);
    assert_int_equal(problem.kind, PROBLEM_NUMERICAL);
    err_set(&err, ERR_FAILED, "engine_unavailable: the engine's process was killed by signal 9 (Killed)");
    problem_from(&problem, PROBLEM_INVALID_TYPE, &err);
    assert_int_equal(problem.kind, PROBLEM_ENGINE);
}

static void words_of_clients_choose_no_status(void **state)
{
    (void)state;
    static const char *const words[] = {"grammar_dead_end", "grammar_limit", "engine_unavailable", "numerical_error"};
    struct err err = {0};
    struct problem problem;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        err_set(&err, ERR_USER, "messages[0].role: '%s' is none of system, user", words[i]);
        problem_from(&problem, PROBLEM_INVALID_VALUE, &err);
        assert_int_equal(problem.kind, PROBLEM_INVALID_VALUE);
        assert_string_equal(problem.param, "messages[0].role");
        err_set(&err, ERR_IO, "/models/%s/model.safetensors: cannot be read", words[i]);
        problem_from(&problem, PROBLEM_INVALID_VALUE, &err);
        assert_int_equal(problem.kind, PROBLEM_INTERNAL);
        assert_null(strstr(problem.text, words[i]));
    }
}

static void a_long_quote_is_cut_and_stays_text(void **state)
{
    (void)state;
    char quote[3001];
    struct problem problem;
    struct alloc alloc = {0};
    struct buf out;
    for (size_t i = 0; i + 2 < sizeof quote; i += 2) memcpy(quote + i, "\xC3\xA4", 2);
    quote[sizeof quote - 1] = 0;
    problem_set(&problem, PROBLEM_INVALID_VALUE, quote, "x%s", quote);
    assert_true(strlen(problem.text) < sizeof problem.text);
    assert_string_equal(problem.text + strlen(problem.text) - 3, "...");
    assert_non_null(body_of(&problem, FAMILY_OPENAI, &out, &alloc)); /* the writer wants valid UTF-8 */
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_families_have_their_shape),       cmocka_unit_test(every_status_is_the_specified_one),
        cmocka_unit_test(errors_from_below_keep_their_secrets), cmocka_unit_test(words_of_clients_choose_no_status),
        cmocka_unit_test(a_long_quote_is_cut_and_stays_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
