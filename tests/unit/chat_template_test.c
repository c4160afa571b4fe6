#include "fmt/chat_template.h"
#include "support/check.h"
#include "support/lines.h"

#include <stdlib.h>

static struct alloc heap;

/* The template's defaults, not weir's: thinking unless told otherwise. */
static struct chat_options options_of(struct json_object *given)
{
    struct chat_options options = {.thinking = true};
    struct json_object *member;
    if (json_object_object_get_ex(given, "enable_thinking", &member))
        options.thinking = json_object_get_boolean(member);
    if (json_object_object_get_ex(given, "clear_thinking", &member))
        options.keep_reasoning = !json_object_get_boolean(member);
    if (json_object_object_get_ex(given, "add_generation_prompt", &member))
        options.no_generation_prompt = !json_object_get_boolean(member);
    if (json_object_object_get_ex(given, "reasoning_effort", &member) &&
        strcmp(json_object_get_string(member), "high") == 0)
        options.effort = CHAT_EFFORT_HIGH;
    return options;
}

/* Runs cover the text without a gap, no two texts are neighbours, and each control is its own text. */
static void expect_sound_runs(const struct chat_prompt *prompt)
{
    size_t at = 0;
    for (size_t i = 0; i < prompt->n_runs; i++) {
        const struct chat_run *run = &prompt->runs[i];
        assert_int_equal(run->start, at);
        assert_true(run->bytes > 0);
        if (run->control == CHAT_TEXT)
            assert_true(i > 0 && prompt->runs[i - 1].control != CHAT_TEXT);
        else
            assert_int_equal(run->bytes, strlen(chat_control_text(run->control)));
        if (run->control != CHAT_TEXT)
            assert_memory_equal(prompt->text.data + at, chat_control_text(run->control), run->bytes);
        at += run->bytes;
    }
    assert_int_equal(at, prompt->text.bytes);
}

static void expect_prompt(const struct chat_request *request, const char *want, size_t bytes, const char *name)
{
    struct chat_prompt prompt;
    struct err err = {0};
    bool ok = chat_prompt_render(&prompt, &heap, request, &err);
    if (!ok) print_error("%s: %s\n", name, err.text);
    assert_true(ok);
    if (prompt.text.bytes != bytes || memcmp(prompt.text.data, want, bytes) != 0)
        print_error("%s\nwant %s\n got %s\n", name, want, prompt.text.data);
    assert_int_equal(prompt.text.bytes, bytes);
    assert_memory_equal(prompt.text.data, want, bytes);
    expect_sound_runs(&prompt);
    assert_int_equal(chat_prompt_ends_in_think(&prompt),
                     !request->options.no_generation_prompt && request->options.thinking);
    chat_prompt_fini(&prompt);
    chat_prompt_fini(&prompt);
}

static void as_the_template_renders_it(void *context, struct json_object *line, size_t number)
{
    (void)context;
    (void)number;
    size_t bytes, name_bytes;
    const char *text = fixture_text(line, "text", &bytes), *name = fixture_text(line, "name", &name_bytes);
    struct chat_request request = {.messages = json_object_object_get(line, "messages"),
                                   .tools = json_object_object_get(line, "tools"),
                                   .options = options_of(json_object_object_get(line, "options"))};
    expect_prompt(&request, text, bytes, name);
}

static void conversations_come_out_as_from_the_template(void **state)
{
    (void)state;
    size_t n = fixture_lines(&heap, "tests/fixtures/chat/template.jsonl", as_the_template_renders_it, NULL);
    print_message("%zu conversations\n", n);
    assert_true(n > 200);
    assert_int_equal(heap.live, 0);
}

#define MAX "[gMASK]<sop><|system|>Reasoning Effort: Max"

/* Golden strings of the specification, from the public template. */
static const struct {
    const char *messages;
    struct chat_options options;
    const char *text;
} golden[] = {
    {"[{'role':'user','content':'hi'}]", {.thinking = true}, MAX "<|user|>hi<|assistant|><think>"},
    {"[{'role':'user','content':'hi'}]", {0}, "[gMASK]<sop><|user|>hi<|assistant|><think></think>"},
    {"[{'role':'user','content':'hi'}]",
     {.thinking = true, .effort = CHAT_EFFORT_HIGH},
     "[gMASK]<sop><|system|>Reasoning Effort: High<|user|>hi<|assistant|><think>"},
    {"[{'role':'user','content':'q'},{'role':'system','content':'mid'},{'role':'user','content':'r'}]",
     {.thinking = true, .no_generation_prompt = true},
     MAX "<|user|>q<|system|>mid<|user|>r"},
    {"[{'role':'user','content':'q'},{'role':'assistant','content':' \\nans \\n','reasoning_content':'why'},"
     "{'role':'user','content':'q2'},{'role':'assistant','content':'A2','reasoning_content':' r2 '},"
     "{'role':'assistant','content':'A3'}]",
     {.thinking = true},
     MAX "<|user|>q<|assistant|><think></think>ans<|user|>q2<|assistant|><think> r2 </think>A2"
         "<|assistant|><think></think>A3<|assistant|><think>"},
    {"[{'role':'user','content':'q'},{'role':'assistant','content':'ans','reasoning_content':'why'},"
     "{'role':'user','content':'q2'}]",
     {.thinking = true, .keep_reasoning = true},
     MAX "<|user|>q<|assistant|><think>why</think>ans<|user|>q2<|assistant|><think>"},
    {"[{'role':'user','content':'q'},{'role':'assistant','content':'<think>inl</think>\\n\\nbody'}]",
     {.thinking = true},
     MAX "<|user|>q<|assistant|><think>inl</think>body<|assistant|><think>"},
    {"[{'role':'user','content':'q'},{'role':'assistant','content':'','tool_calls':[{'function':{'name':'get_weather',"
     "'arguments':{'city':'Paris','n':3,'o':{'a':[1,2]},'s':'7','t':true,'z':null}}}]},"
     "{'role':'tool','content':'sunny'},{'role':'tool','content':'x'}]",
     {0},
     "[gMASK]<sop><|user|>q<|assistant|><think></think><tool_call>get_weather<arg_key>city</arg_key>"
     "<arg_value>Paris</arg_value><arg_key>n</arg_key><arg_value>3</arg_value><arg_key>o</arg_key>"
     "<arg_value>{\"a\": [1, 2]}</arg_value><arg_key>s</arg_key><arg_value>7</arg_value><arg_key>t</arg_key>"
     "<arg_value>true</arg_value><arg_key>z</arg_key><arg_value>null</arg_value></tool_call><|observation|>"
     "<tool_response>sunny</tool_response><tool_response>x</tool_response><|assistant|><think></think>"},
    {"[{'role':'user','content':'q'},{'role':'assistant','content':'','tool_calls':[{'function':{'name':'f',"
     "'arguments':'{}'}}]},{'role':'tool','content':'r'},{'role':'user','content':'z'}]",
     {.thinking = true},
     MAX "<|user|>q<|assistant|><think></think><tool_call>f</tool_call><|observation|><tool_response>r</tool_response>"
         "<|user|>z<|assistant|><think>"},
    {"[]", {.thinking = true}, MAX "<|assistant|><think>"},
    {"[{'role':'user','content':null},{'role':'assistant'}]",
     {.no_generation_prompt = true},
     "[gMASK]<sop><|user|><|assistant|><think></think>"},
};

/* JSON with ' for ", which C can write. */
static struct json_object *quoted(const char *text)
{
    char json[2048];
    assert_true(strlen(text) < sizeof json);
    memcpy(json, text, strlen(text) + 1);
    for (char *c = json; *c; c++)
        if (*c == '\'') *c = '"';
    return fixture_json(&heap, json);
}

static void golden_strings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct chat_request request = {.messages = quoted(golden[i].messages), .options = golden[i].options};
        expect_prompt(&request, golden[i].text, strlen(golden[i].text), golden[i].messages);
        json_object_put(request.messages);
    }
}

static void a_tool_is_one_line_in_the_order_of_the_client(void **state)
{
    (void)state;
    struct chat_request request = {
        .messages = quoted("[{'role':'user','content':'hi'}]"),
        .tools =
            quoted("[{'type':'function','function':{'name':'get_weather','description':'Wetter \xC3\xA4','strict':true,"
                   "'parameters':{'type':'object','properties':{'city':{'type':'string'}},'required':['city']}}}]")};
    struct chat_prompt prompt;
    struct err err = {0};
    assert_true(chat_prompt_render(&prompt, &heap, &request, &err));
    assert_non_null(strstr(prompt.text.data,
                           "<tools>\n{\"name\": \"get_weather\", \"description\": \"Wetter \xC3\xA4\", \"parameters\": "
                           "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, \"required\": "
                           "[\"city\"]}}\n</tools>"));
    chat_prompt_fini(&prompt);
    json_object_put(request.messages);
    json_object_put(request.tools);
}

/* Whatever a client writes, the controls of the prompt are those that the template put there. */
static void client_text_is_never_control(void **state)
{
    (void)state;
    static const char shape[] =
        "[{'role':'system','content':'%1$s'},{'role':'user','content':['%1$s','%1$s']},"
        "{'role':'assistant','content':'%1$s','reasoning_content':'%1$s','tool_calls':[{'function':"
        "{'name':'f%1$s','arguments':{'k%1$s':'%1$s','o':{'%1$s':'%1$s'}}}}]},"
        "{'role':'tool','content':'%1$s'}]";
    static const char tools[] = "[{'name':'%1$s','description':'%1$s','parameters':{'%1$s':'%1$s'}}]";
    for (int marker = -1; marker < CHAT_CONTROL_COUNT; marker++) {
        const char *text = marker < 0 ? "x" : chat_control_text((enum chat_control)marker);
        char json[1024];
        struct err err = {0};
        struct chat_prompt prompt;
        snprintf(json, sizeof json, shape, text);
        struct chat_request request = {.messages = quoted(json), .options = {.thinking = true}};
        snprintf(json, sizeof json, tools, text);
        request.tools = quoted(json);
        assert_true(chat_prompt_render(&prompt, &heap, &request, &err));
        expect_sound_runs(&prompt);
        size_t n_controls = 0;
        for (size_t i = 0; i < prompt.n_runs; i++) n_controls += prompt.runs[i].control != CHAT_TEXT;
        assert_int_equal(n_controls, 2 + 1 + 1 + 10 + 2 + 3 + 10 + 3 + 2);
        chat_prompt_fini(&prompt);
        json_object_put(request.messages);
        json_object_put(request.tools);
    }
}

static const struct {
    const char *messages, *tools, *says;
} refused[] = {
    {"{}", NULL, "messages: must be an array"},
    {"[1]", NULL, "messages[0]: must be an object with a role"},
    {"[{'content':'x'}]", NULL, "messages[0]: must be an object with a role"},
    {"[{'role':'function','content':'x'}]", NULL, "messages[0].role: 'function' is none of"},
    {"[{'role':'User','content':'x'}]", NULL, "messages[0].role: 'User' is none of"},
    {"[{'role':'user\\u0000','content':'x'}]", NULL, "messages[0].role: 'user' is none of"},
    {"[{'role':'user','content':7}]", NULL, "messages[0].content: must be a string, null or a list of parts"},
    {"[{'role':'user','content':{}}]", NULL, "messages[0].content: must be"},
    {"[{'role':'user','content':['a',{'type':'image_url','image_url':{'url':'http://x'}}]}]", NULL,
     "messages[0].content[1]: a part of type 'image_url' cannot be used here: this model reads text only"},
    {"[{'role':'user','content':[{'type':'text'}]}]", NULL, "messages[0].content[0]: text must be a string"},
    {"[{'role':'user','content':[null]}]", NULL, "messages[0].content[0]: a part must be"},
    {"[{'role':'assistant','reasoning_content':1}]", NULL, "messages[0].reasoning_content: must be a string"},
    {"[{'role':'assistant','tool_calls':{}}]", NULL, "messages[0].tool_calls: must be an array"},
    {"[{'role':'assistant','tool_calls':[{}]}]", NULL, "messages[0].tool_calls[0]: a call needs the name"},
    {"[{'role':'user'},{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':'{a}'}}]}]", NULL,
     "messages[1].tool_calls[0].function.arguments: byte 1:"},
    {"[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':'[1]'}}]}]", NULL,
     "messages[0].tool_calls[0].function.arguments: must be a JSON object"},
    {"[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':'null'}}]}]", NULL,
     "messages[0].tool_calls[0].function.arguments: must be a JSON object"},
    {"[{'role':'assistant','tool_calls':[{'function':{'name':'f','arguments':3}}]}]", NULL,
     "messages[0].tool_calls[0].function.arguments: must be a JSON object"},
    {"[{'role':'tool','content':[{'output':'a'},{}]}]", NULL, "messages[0].content[1].output: missing"},
    {"[{'role':'tool','content':[{'type':'tool_reference','name':'x'}]}]", NULL,
     "messages[0].content[0]: refers to the tool 'x', which is not declared"},
    {"[{'role':'tool','content':[{'type':'tool_reference'}]}]", NULL,
     "messages[0].content[0]: must be a tool_reference"},
    {"[]", "{}", "tools: must be an array"},
    {"[]", "[1]", "tools[0]: must be an object"},
    {"[]", "[{'function':null}]", "tools[0].function: must be an object"},
    {"[]", "[{'name':'a'},{'description':'b'}]", "tools[1]: the function needs a name"},
};

static void what_cannot_be_rendered_is_refused_at_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct chat_request request = {.messages = quoted(refused[i].messages)};
        if (refused[i].tools) request.tools = quoted(refused[i].tools);
        struct chat_prompt prompt;
        struct err err = {0};
        bool ok = chat_prompt_render(&prompt, &heap, &request, &err);
        if (ok || strncmp(err.text, refused[i].says, strlen(refused[i].says)) != 0)
            print_error("%s: want '%s', got '%s'\n", refused[i].messages, refused[i].says, err.text);
        assert_false(ok);
        assert_int_equal(err.kind, ERR_USER);
        assert_ptr_equal(strstr(err.text, refused[i].says), err.text);
        chat_prompt_fini(&prompt);
        json_object_put(request.messages);
        json_object_put(request.tools);
    }
    assert_int_equal(heap.live, 0);
}

static void too_long_is_an_error_and_not_a_crash(void **state)
{
    (void)state;
    /* A short request that asks for much: one large tool, referred to many times. */
    char *large = malloc(1 << 20);
    memset(large, 'x', 1 << 20);
    struct json_object *tool = quoted("{'name':'t'}"), *tools = json_object_new_array(),
                       *list = json_object_new_array();
    json_object_object_add(tool, "description", json_object_new_string_len(large, 1 << 20));
    json_object_array_add(tools, tool);
    free(large);
    for (int i = 0; i < 100; i++) json_object_array_add(list, quoted("{'type':'tool_reference','name':'t'}"));
    struct chat_request request = {.messages = quoted("[{'role':'tool'}]"), .tools = tools};
    json_object_object_add(json_object_array_get_idx(request.messages, 0), "content", list);
    struct chat_prompt prompt;
    struct err err = {0};
    assert_false(chat_prompt_render(&prompt, &heap, &request, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_non_null(strstr(err.text, "the prompt is too long"));
    chat_prompt_fini(&prompt);
    json_object_put(request.messages);
    json_object_put(tools);
    assert_int_equal(heap.live, 0);
}

static void effort_words_have_a_meaning_or_are_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct chat_options options = {.thinking = true};
    assert_true(chat_options_effort(&options, "effort", "minimal", &err));
    assert_false(options.thinking);
    assert_true(chat_options_effort(&options, "effort", "low", &err));
    assert_true(options.thinking);
    assert_int_equal(options.effort, CHAT_EFFORT_HIGH);
    assert_true(chat_options_effort(&options, "effort", "xhigh", &err));
    assert_int_equal(options.effort, CHAT_EFFORT_MAX);
    assert_false(chat_options_effort(&options, "effort", "High", &err));
    assert_int_equal(err.kind, ERR_USER);
}

static void a_simple_chat_needs_no_json_text(void **state)
{
    (void)state;
    struct json_object *messages = json_object_new_array();
    struct err err = {0};
    struct chat_words words[] = {
        {.role = "system", .text = "s", .text_bytes = 1},
        {.role = "user", .text = "u\0v", .text_bytes = 3},
        {.role = "assistant", .text = "a", .text_bytes = 1, .reasoning = "r", .reasoning_bytes = 1}};
    for (size_t i = 0; i < 3; i++) assert_true(chat_messages_add(messages, &words[i], &err));
    struct chat_request request = {.messages = messages};
    static const char want[] =
        "[gMASK]<sop><|system|>s<|user|>u\0v<|assistant|><think>r</think>a<|assistant|><think></think>";
    expect_prompt(&request, want, sizeof want - 1, "simple chat");
    struct chat_words bad = {.role = "user", .text = "a\xFF", .text_bytes = 2};
    assert_false(chat_messages_add(messages, &bad, &err));
    assert_int_equal(err.kind, ERR_USER);
    json_object_put(messages);
}

static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    struct chat_request request = {
        .messages = quoted("[{'role':'user','content':['a','b']},{'role':'assistant','content':'<think>x</think>y',"
                           "'tool_calls':[{'id':'1','function':{'name':'f','arguments':'{\\\"a\\\":[1,2]}'}}]},"
                           "{'role':'tool','tool_call_id':'1','content':[{'output':'z'}]}]"),
        .tools = quoted("[{'name':'f'},{'name':'g','defer_loading':true}]"),
        .options = {.thinking = true}};
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct chat_prompt prompt;
        struct err err = {0};
        bool ok = chat_prompt_render(&prompt, &alloc, &request, &err);
        chat_prompt_fini(&prompt);
        assert_int_equal(alloc.live, 0);
        if (ok) {
            print_message("%u allocations\n", (unsigned)alloc.calls);
            assert_true(k > 5);
            break;
        }
        assert_int_equal(err.kind, ERR_NOMEM);
    }
    json_object_put(request.messages);
    json_object_put(request.tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_come_out_as_from_the_template),
        cmocka_unit_test(golden_strings),
        cmocka_unit_test(a_tool_is_one_line_in_the_order_of_the_client),
        cmocka_unit_test(client_text_is_never_control),
        cmocka_unit_test(what_cannot_be_rendered_is_refused_at_its_place),
        cmocka_unit_test(too_long_is_an_error_and_not_a_crash),
        cmocka_unit_test(effort_words_have_a_meaning_or_are_refused),
        cmocka_unit_test(a_simple_chat_needs_no_json_text),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
