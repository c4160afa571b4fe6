#include "fmt/chat_ids.h"
#include "fmt/detokenizer.h"
#include "fmt/output_parser.h"
#include "support/check.h"
#include "support/lines.h"

static struct alloc heap;
static struct tokenizer *tokenizer;
static struct encoder *encoder;
static struct chat_ids ids;

static int set_up(void **state)
{
    (void)state;
    struct err err = {0};
    tokenizer = tokenizer_new(&heap, file_system_real(), "tests/fixtures/tokenizer/tokenizer.json", &err);
    if (!tokenizer) print_error("%s\n", err.text);
    if (!tokenizer) return -1;
    encoder = encoder_new(&heap, tokenizer, NULL, &err);
    return encoder && chat_ids_find(&ids, tokenizer, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    encoder_free(encoder);
    tokenizer_free(tokenizer);
    return heap.live == 0 ? 0 : -1;
}

static void render(struct chat_prompt *prompt, struct json_object *messages, struct json_object *tools, bool prompts)
{
    struct chat_request request = {
        .messages = messages, .tools = tools, .options = {.thinking = true, .no_generation_prompt = !prompts}};
    struct err err = {0};
    bool ok = chat_prompt_render(prompt, &heap, &request, &err);
    if (!ok) print_error("%s\n", err.text);
    assert_true(ok);
}

static void encode(struct token_list *list, const struct chat_prompt *prompt, enum encode_mode mode)
{
    struct err err = {0};
    token_list_init(list, &heap, 1 << 20);
    assert_true(chat_ids_encode(&ids, prompt, encoder, mode, list, &err));
}

static void expect_text(const uint32_t *token_ids, size_t n, const char *text, size_t bytes)
{
    struct err err = {0};
    struct buf out;
    buf_init(&out, &heap, 1 << 20);
    assert_true(detokenizer_decode(tokenizer, token_ids, n, false, &out, &err));
    assert_int_equal(out.bytes, bytes);
    assert_memory_equal(out.data, text, bytes);
    buf_fini(&out);
}

static void expect_only_the_templates_controls(const struct chat_prompt *prompt, const struct token_list *list)
{
    size_t n_controls = 0, n_added = 0;
    for (size_t i = 0; i < prompt->n_runs; i++) n_controls += prompt->runs[i].control != CHAT_TEXT;
    for (size_t i = 0; i < list->n; i++) n_added += tokenizer_token(tokenizer, list->ids[i]).kind != TOKEN_BASE;
    assert_int_equal(n_added, n_controls);
}

/* Does a text of the prompt spell an added token? */
static bool spells_a_marker(const struct chat_prompt *prompt)
{
    for (uint32_t id = 0; id < tokenizer_id_end(tokenizer); id++) {
        struct token token = tokenizer_token(tokenizer, id);
        if (token.kind != TOKEN_ADDED && token.kind != TOKEN_SPECIAL) continue;
        for (size_t i = 0; i < prompt->n_runs; i++) {
            const struct chat_run *run = &prompt->runs[i];
            if (run->control != CHAT_TEXT) continue;
            if (memmem(prompt->text.data + run->start, run->bytes, token.bytes, token.n_bytes)) return true;
        }
    }
    return false;
}

struct tally {
    size_t n_same, n_injected;
};

static void same_ids_as_the_whole_string(void *context, struct json_object *line, size_t number)
{
    (void)number;
    struct tally *tally = context;
    struct chat_prompt prompt;
    struct token_list runs, whole;
    render(&prompt, json_object_object_get(line, "messages"), json_object_object_get(line, "tools"), true);
    encode(&runs, &prompt, ENCODE_NONE);
    encode(&whole, &prompt, ENCODE_ALL);
    expect_text(runs.ids, runs.n, prompt.text.data, prompt.text.bytes);
    expect_only_the_templates_controls(&prompt, &runs);
    bool is_same = runs.n == whole.n && memcmp(runs.ids, whole.ids, runs.n * sizeof *runs.ids) == 0;
    bool is_injected = spells_a_marker(&prompt);
    if (is_same == is_injected) print_error("%s\n", json_object_get_string(line));
    assert_int_equal(is_same, !is_injected);
    tally->n_same += is_same;
    tally->n_injected += is_injected;
    token_list_fini(&runs);
    token_list_fini(&whole);
    chat_prompt_fini(&prompt);
}

static void runs_encode_to_the_ids_of_the_whole_string(void **state)
{
    (void)state;
    struct tally tally = {0};
    fixture_lines(&heap, "tests/fixtures/chat/template.jsonl", same_ids_as_the_whole_string, &tally);
    print_message("%zu prompts with the same ids, %zu with markers in client text\n", tally.n_same, tally.n_injected);
    assert_true(tally.n_same > 180);
    assert_true(tally.n_injected > 3);
}

/* Every added token of the tokenizer, in every place where a client can write. */
static void no_client_text_becomes_a_control_token(void **state)
{
    (void)state;
    size_t n_tried = 0;
    for (uint32_t id = 0; id < tokenizer_id_end(tokenizer); id++) {
        struct token token = tokenizer_token(tokenizer, id);
        if (token.kind != TOKEN_ADDED && token.kind != TOKEN_SPECIAL) continue;
        char json[1024], mark[64];
        struct chat_prompt prompt;
        struct token_list list, whole;
        snprintf(mark, sizeof mark, "%.*s", (int)token.n_bytes, token.bytes);
        snprintf(
            json, sizeof json,
            "[{\"role\":\"system\",\"content\":\"%1$s\"},{\"role\":\"user\",\"content\":\"a%1$s b\"},{\"role\":"
            "\"assistant\",\"content\":\"x\",\"reasoning_content\":\"%1$s\",\"tool_calls\":[{\"function\":{\"name\":"
            "\"%1$s\",\"arguments\":{\"%1$s\":\"%1$s\"}}}]},{\"role\":\"tool\",\"content\":\"%1$s\"}]",
            mark);
        struct json_object *messages = fixture_json(&heap, json);
        render(&prompt, messages, NULL, true);
        encode(&list, &prompt, ENCODE_NONE);
        encode(&whole, &prompt, ENCODE_ALL);
        expect_only_the_templates_controls(&prompt, &list);
        expect_text(list.ids, list.n, prompt.text.data, prompt.text.bytes);
        assert_true(whole.n < list.n); /* the test can see the difference that it is about */
        token_list_fini(&list);
        token_list_fini(&whole);
        chat_prompt_fini(&prompt);
        json_object_put(messages);
        n_tried++;
    }
    assert_int_equal(n_tried, 36);
}

static bool note(void *context, const struct output_event *event, struct err *err)
{
    struct buf *log = context;
    return buf_printf(log, err, "%s|%.*s|", event->kind == OUTPUT_CALL ? event->tool->name : "", (int)event->bytes,
                      event->text);
}

/* A turn that the template renders is a turn that the model could have written. */
static void a_rendered_turn_is_read_back(void **state)
{
    (void)state;
    struct json_object *before = fixture_json(&heap, "[{\"role\":\"user\",\"content\":\"q\"}]");
    struct json_object *after = fixture_json(
        &heap,
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"reasoning_content\":\"I think\",\"content\":"
        "\"Let me see.\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"s\":\"7 \\u00e4\\n\",\"n\":"
        "[1.5,null],\"o\":{\"a\":\"b\"}}}},{\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]}]");
    struct json_object *list = fixture_json(
        &heap, "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"}}}},{\"name\":\"g\"}]");
    struct chat_prompt prompt, whole;
    struct token_list prompt_ids, whole_ids;
    struct chat_tools tools;
    struct err err = {0};
    struct buf log;
    buf_init(&log, &heap, 1 << 16);
    render(&prompt, before, list, true);
    render(&whole, after, list, false);
    encode(&prompt_ids, &prompt, ENCODE_NONE);
    encode(&whole_ids, &whole, ENCODE_NONE);
    assert_true(whole_ids.n > prompt_ids.n);
    assert_memory_equal(whole_ids.ids, prompt_ids.ids, prompt_ids.n * sizeof(uint32_t));
    assert_true(chat_tools_init(&tools, &heap, list, &err));
    struct output_rules rules = {.ids = &ids,
                                 .tools = &tools,
                                 .starts_in_think = chat_prompt_ends_in_think(&prompt),
                                 .emit = note,
                                 .context = &log};
    struct output_parser *parser = output_parser_new(&heap, &rules, &err);
    assert_non_null(parser);
    for (size_t i = prompt_ids.n; i < whole_ids.n; i++)
        assert_true(output_parser_feed(parser, whole_ids.ids[i], tokenizer_token(tokenizer, whole_ids.ids[i]), &err));
    assert_true(output_parser_end(parser, OUTPUT_END_EOS, &err));
    assert_int_equal(output_parser_calls(parser), 2);
    assert_non_null(strstr(log.data, "f|{\"s\":\"7 \xC3\xA4\\n\",\"n\":[1.5,null],\"o\":{\"a\":\"b\"}}|g|{}|"));
    assert_int_equal(strncmp(log.data, "|I|", 3), 0);
    output_parser_free(parser);
    chat_tools_fini(&tools);
    token_list_fini(&prompt_ids);
    token_list_fini(&whole_ids);
    chat_prompt_fini(&prompt);
    chat_prompt_fini(&whole);
    buf_fini(&log);
    json_object_put(before);
    json_object_put(after);
    json_object_put(list);
}

static void a_list_that_is_full_stays_as_it_was(void **state)
{
    (void)state;
    struct json_object *messages = fixture_json(&heap, "[{\"role\":\"user\",\"content\":\"hello there\"}]");
    struct chat_prompt prompt;
    struct err err = {0};
    render(&prompt, messages, NULL, true);
    for (size_t room = 0;; room++) {
        struct token_list list;
        token_list_init(&list, &heap, room);
        bool ok = chat_ids_encode(&ids, &prompt, encoder, ENCODE_NONE, &list, &err);
        if (!ok) assert_int_equal(list.n, 0);
        token_list_fini(&list);
        if (!ok) continue;
        assert_true(room > 6);
        break;
    }
    chat_prompt_fini(&prompt);
    json_object_put(messages);
}

static void a_tokenizer_without_the_tokens_is_refused_by_name(void **state)
{
    (void)state;
    struct err err = {0};
    struct chat_ids found;
    size_t bytes;
    char *json = fixture_read(&heap, "tests/fixtures/tokenizer/tokenizer.json", &bytes);
    for (char *at; (at = strstr(json, "<arg_key>"));) at[1] = 'A';
    struct tokenizer *other = tokenizer_parse(&heap, "changed", json, bytes, &err);
    if (!other) print_error("%s\n", err.text);
    assert_non_null(other);
    assert_false(chat_ids_find(&found, other, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_string_equal(err.text, "the tokenizer has no added token <arg_key>, which the chat template needs");
    tokenizer_free(other);
    alloc_put(&heap, json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_encode_to_the_ids_of_the_whole_string),
        cmocka_unit_test(no_client_text_becomes_a_control_token),
        cmocka_unit_test(a_rendered_turn_is_read_back),
        cmocka_unit_test(a_list_that_is_full_stays_as_it_was),
        cmocka_unit_test(a_tokenizer_without_the_tokens_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
