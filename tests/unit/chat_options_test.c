#include "fmt/chat_options.h"
#include "support/check.h"
#include "support/lines.h"

static struct alloc heap;

static const struct {
    const char *request;
    bool thinking;
    enum chat_effort effort;
    bool keep;
} cases[] = {
    {"{}", false, CHAT_EFFORT_MAX, false},
    {"{\"reasoning_effort\":\"high\"}", true, CHAT_EFFORT_HIGH, false},
    {"{\"reasoning_effort\":\"low\"}", true, CHAT_EFFORT_HIGH, false},
    {"{\"reasoning_effort\":\"max\"}", true, CHAT_EFFORT_MAX, false},
    {"{\"reasoning_effort\":null}", false, CHAT_EFFORT_MAX, false},
    {"{\"reasoning_effort\":\"none\"}", false, CHAT_EFFORT_MAX, false},
    {"{\"reasoning\":{\"effort\":\"medium\",\"summary\":\"auto\"}}", true, CHAT_EFFORT_HIGH, false},
    {"{\"reasoning\":null}", false, CHAT_EFFORT_MAX, false},
    {"{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5}}", true, CHAT_EFFORT_MAX, false},
    {"{\"thinking\":{\"type\":\"adaptive\"}}", true, CHAT_EFFORT_MAX, false},
    {"{\"thinking\":{\"type\":\"disabled\"},\"reasoning_effort\":\"high\"}", false, CHAT_EFFORT_HIGH, false},
    {"{\"enable_thinking\":true,\"thinking\":{\"type\":\"disabled\"}}", true, CHAT_EFFORT_MAX, false},
    {"{\"enable_thinking\":false,\"reasoning_effort\":\"max\"}", false, CHAT_EFFORT_MAX, false},
    {"{\"chat_template_kwargs\":{\"enable_thinking\":true},\"enable_thinking\":false}", true, CHAT_EFFORT_MAX, false},
    {"{\"chat_template_kwargs\":{\"thinking\":true,\"other\":1},\"reasoning_effort\":\"none\"}", true, CHAT_EFFORT_MAX,
     false},
    {"{\"chat_template_kwargs\":{\"clear_thinking\":false}}", false, CHAT_EFFORT_MAX, true},
    {"{\"clear_thinking\":false}", false, CHAT_EFFORT_MAX, true},
    {"{\"clear_thinking\":true}", false, CHAT_EFFORT_MAX, false},
};

static void the_strongest_word_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_object *request = fixture_json(&heap, cases[i].request);
        struct chat_options options = {0};
        struct err err = {0};
        bool ok = chat_options_read(&options, request, &err);
        if (!ok || options.thinking != cases[i].thinking) print_error("%s: %s\n", cases[i].request, err.text);
        assert_true(ok);
        assert_int_equal(options.thinking, cases[i].thinking);
        assert_int_equal(options.effort, cases[i].effort);
        assert_int_equal(options.keep_reasoning, cases[i].keep);
        json_object_put(request);
    }
}

static void silence_leaves_the_default(void **state)
{
    (void)state;
    struct json_object *request = fixture_json(&heap, "{\"messages\":[]}");
    struct chat_options options = {.thinking = true, .keep_reasoning = true};
    struct err err = {0};
    assert_true(chat_options_read(&options, request, &err));
    assert_true(options.thinking);
    assert_true(options.keep_reasoning);
    json_object_put(request);
}

static void wrong_types_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"{\"reasoning_effort\":3}", "reasoning_effort: must be a string"},
        {"{\"reasoning_effort\":\"huge\"}", "reasoning_effort: 'huge' is none of"},
        {"{\"reasoning\":{\"effort\":\"huge\"}}", "reasoning.effort: 'huge' is none of"},
        {"{\"chat_template_kwargs\":{\"reasoning_effort\":3}}", "chat_template_kwargs.reasoning_effort: must be"},
        {"{\"thinking\":{\"type\":\"on\"}}", "thinking.type: must be"},
        {"{\"thinking\":\"on\"}", "thinking: must be true or false"},
        {"{\"enable_thinking\":1}", "enable_thinking: must be true or false"},
        {"{\"clear_thinking\":\"no\"}", "clear_thinking: must be true or false"},
        {"{\"chat_template_kwargs\":[]}", "chat_template_kwargs: must be an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json_object *request = fixture_json(&heap, bad[i][0]);
        struct chat_options options = {0};
        struct err err = {0};
        assert_false(chat_options_read(&options, request, &err));
        assert_int_equal(err.kind, ERR_USER);
        if (strncmp(err.text, bad[i][1], strlen(bad[i][1])) != 0) print_error("%s\n", err.text);
        assert_int_equal(strncmp(err.text, bad[i][1], strlen(bad[i][1])), 0);
        json_object_put(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_strongest_word_counts),
        cmocka_unit_test(silence_leaves_the_default),
        cmocka_unit_test(wrong_types_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
