/* What the bundled model says: questions in words, answers in words and calls, greedily, on the whole program's way
 * from a conversation to text. Only answers that the model is sure of, so that they hold for any kernels. */
#include "run/dialogue.h"
#include "support/check.h"
#include "support/lines.h"

#include <json-c/json_object.h>

#define DEMO "models/demo"

#define WEATHER                                                                                                 \
    "{\"name\":\"get_weather\",\"description\":\"Get the current weather of a city\",\"parameters\":{\"type\":" \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"description\":\"City name\"}},\"required\":"    \
    "[\"city\"]}}"
#define TIMER                                                                                                       \
    "{\"name\":\"set_timer\",\"description\":\"Start a timer\",\"parameters\":{\"type\":\"object\",\"properties\":" \
    "{\"minutes\":{\"type\":\"integer\",\"description\":\"Minutes\"},\"label\":{\"type\":\"string\","               \
    "\"description\":\"Label\"}},\"required\":[\"minutes\",\"label\"]}}"

struct subject {
    struct alloc alloc;
    struct engine *engine;
    struct text_model model;
    struct encoder *encoder;
    struct dialogue *dialogue;
    struct buf text;
};

static bool note(void *context, const struct answer_event *event, struct err *err)
{
    struct subject *s = context;
    if (event->part == ANSWER_CALL &&
        !buf_printf(&s->text, err, "%.*s", (int)event->tool->name_bytes, event->tool->name))
        return false;
    return buf_add(&s->text, event->text, event->bytes, err);
}

static int subject_open(void **state)
{
    static struct subject s;
    struct err err = {0};
    struct engine_settings settings = engine_settings_default(DEMO);
    s = (struct subject){0};
    if (!engine_open(&s.engine, &s.alloc, file_system_real(), &settings, &err)) fail_msg("%s", err.text);
    if (!text_model_open(&s.model, &s.alloc, file_system_real(), DEMO, engine_config(s.engine), &err))
        fail_msg("%s", err.text);
    s.encoder = encoder_new(&s.alloc, s.model.tokenizer, NULL, &err);
    if (!dialogue_new(&s.dialogue, s.engine, &s.model, clock_real(), &err)) fail_msg("%s", err.text);
    buf_init(&s.text, &s.alloc, 1 << 20);
    *state = &s;
    return 0;
}

static int subject_close(void **state)
{
    struct subject *s = *state;
    buf_fini(&s->text);
    dialogue_free(s->dialogue);
    encoder_free(s->encoder);
    text_model_close(&s->model);
    engine_close(s->engine);
    assert_int_equal(s->alloc.live, 0);
    return 0;
}

static void expect(struct subject *s, const char *messages, const char *tools, const char *want, enum stop_reason why)
{
    struct err err = {0};
    struct chat_tools declared = {0};
    struct token_list prompt;
    struct sampled token;
    struct sampling sampling = s->model.defaults;
    struct chat_request chat = {.messages = fixture_json(&s->alloc, messages),
                                .tools = tools ? fixture_json(&s->alloc, tools) : NULL};
    struct answer_request answer = {.is_chat = true, .emit = note, .context = s};
    sampling.temperature = 0;
    token_list_init(&prompt, &s->alloc, 10000);
    if (tools) assert_true(chat_tools_init(&declared, &s->alloc, chat.tools, &err));
    if (tools) answer.tools = &declared;
    if (!text_model_encode_chat(&s->model, s->encoder, &chat, &prompt, &answer.starts_in_think, &err))
        fail_msg("%s", err.text);
    const struct dialogue_request request = {
        .prompt = prompt.ids, .n_prompt = (uint32_t)prompt.n, .sampling = &sampling, .answer = &answer};
    buf_clear(&s->text);
    if (!dialogue_start(s->dialogue, &request, &err)) fail_msg("%s", err.text);
    while (dialogue_result(s->dialogue)->reason == STOP_NONE)
        if (!dialogue_next(s->dialogue, &token, &err)) fail_msg("%s", err.text);
    print_message("%s\n  %s\n", messages, s->text.data);
    assert_non_null(strstr(s->text.data, want));
    assert_int_equal(dialogue_result(s->dialogue)->reason, why);
    chat_tools_fini(&declared);
    token_list_fini(&prompt);
    json_object_put(chat.tools);
    json_object_put(chat.messages);
}

#define ASK(question) "[{\"role\":\"user\",\"content\":\"" question "\"}]"

static void it_answers(void **state)
{
    expect(*state, ASK("What is the capital of Norway?"), NULL, "Oslo", STOP_EOS);
    expect(*state, ASK("What is the capital of Italy?"), NULL, "Rome", STOP_EOS);
    expect(*state, ASK("What is this engine?"), NULL, "experts", STOP_EOS);
    expect(*state, ASK("Translate house into French."), NULL, "maison", STOP_EOS);
    expect(*state, ASK("What is 47 + 38?"), NULL, "85", STOP_EOS);
}

static void it_calls_tools_and_reads_their_results(void **state)
{
    static const char asked[] = "{\"role\":\"user\",\"content\":\"What is the weather in Osaka?\"}";
    char messages[1000];
    expect(*state, ASK("What is the weather in Osaka?"), "[" WEATHER "," TIMER "]", "get_weather{\"city\":\"Osaka\"}",
           STOP_TOOL);
    expect(*state, ASK("Set a timer for 12 minutes called tea."), "[" WEATHER "," TIMER "]",
           "set_timer{\"minutes\":12,\"label\":\"tea\"}", STOP_TOOL);
    snprintf(
        messages, sizeof messages,
        "[%s,{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":"
        "\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"Osaka\\\"}\"}}]},{\"role\":\"tool\",\"content\":"
        "\"{\\\"temperature\\\": 21, \\\"condition\\\": \\\"sunny\\\"}\"}]",
        asked);
    expect(*state, messages, "[" WEATHER "," TIMER "]", "sunny with 21 degrees", STOP_EOS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_answers),
        cmocka_unit_test(it_calls_tools_and_reads_their_results),
    };
    return cmocka_run_group_tests(tests, subject_open, subject_close);
}
