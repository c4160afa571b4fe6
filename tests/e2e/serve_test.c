/* The server with the demo model, over real sockets: chat, streams, errors, and clients that leave. */
#include "fmt/json_doc.h"
#include "support/check.h"
#include "support/demo_server.h"
#include "support/client.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"

static struct demo_server demo;

static int start(void **state)
{
    (void)state;
    demo_server_init(&demo);
    demo_server_start(&demo);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    return 0;
}

static struct json_object *parse(const char *text, size_t bytes)
{
    struct json_object *value;
    struct alloc alloc = {0};
    struct err err = {0};
    if (!json_doc_parse(&value, &alloc, &json_rules_request, "answer", text, bytes, &err))
        fail_msg("%s\n%.*s", err.text, (int)bytes, text);
    return value;
}

static struct json_object *at(struct json_object *value, const char *path)
{
    struct json_object *found;
    if (json_pointer_get(value, path, &found) != 0) return NULL;
    return found;
}

static const char *text_at(struct json_object *value, const char *path)
{
    struct json_object *found = at(value, path);
    return json_object_is_type(found, json_type_string) ? json_object_get_string(found) : "(none)";
}

static struct json_object *ask_ok(const char *path, const char *json)
{
    struct client_answer answer = client_ask(demo.port, path, json);
    if (answer.status != 200) fail_msg("%s: status %d: %s", json, answer.status, answer.body);
    struct json_object *value = parse(answer.body, answer.n_body);
    client_answer_free(&answer);
    return value;
}

static void expect_error(const char *path, const char *json, int status, const char *code, const char *param)
{
    struct client_answer answer = client_ask(demo.port, path, json);
    if (answer.status != status) fail_msg("%s: status %d, wanted %d: %s", json, answer.status, status, answer.body);
    struct json_object *value = parse(answer.body, answer.n_body);
    if (strcmp(text_at(value, "/error/code"), code) != 0) fail_msg("%s: %s, wanted %s", json, answer.body, code);
    if (param && strcmp(text_at(value, "/error/param"), param) != 0)
        fail_msg("%s: %s, wanted the parameter %s", json, answer.body, param);
    assert_true(strlen(text_at(value, "/error/message")) > 10);
    assert_non_null(client_answer_header(&answer, "x-request-id"));
    json_object_put(value);
    client_answer_free(&answer);
}

static void a_chat_is_answered(void **state)
{
    (void)state;
    struct json_object *reply =
        ask_ok(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}],\"seed\":1}");
    print_message("%s\n", json_object_to_json_string(reply));
    assert_string_equal(text_at(reply, "/object"), "chat.completion");
    assert_string_equal(text_at(reply, "/choices/0/message/role"), "assistant");
    assert_non_null(strstr(text_at(reply, "/choices/0/message/content"), "Paris"));
    assert_string_equal(text_at(reply, "/choices/0/finish_reason"), "stop");
    assert_true(json_object_get_int(at(reply, "/usage/prompt_tokens")) > 5);
    assert_true(json_object_get_int(at(reply, "/usage/completion_tokens")) > 1);
    assert_null(at(reply, "/choices/0/message/tool_calls"));
    json_object_put(reply);
}

/* Steps through the events of a stream. NULL: no more. */
static char *next_event(char **rest)
{
    char *event = *rest, *end = event ? strstr(event, "\n\n") : NULL;
    if (!end) return NULL;
    *end = 0;
    *rest = end + 2;
    return event;
}

static void a_stream_says_the_same(void **state)
{
    (void)state;
    static const char question[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 17 plus 25?\"}],"
                                   "\"enable_thinking\":true";
    char json[256], reasoning[1024] = "", content[1024] = "", id[64] = "";
    snprintf(json, sizeof json, "%s}", question);
    struct json_object *whole = ask_ok(CHAT, json);
    snprintf(json, sizeof json, "%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}}", question);
    struct client_answer answer = client_ask(demo.port, CHAT, json);
    assert_int_equal(answer.status, 200);
    assert_string_equal(client_answer_header(&answer, "Content-Type"), "text/event-stream; charset=utf-8");
    assert_string_equal(client_answer_header(&answer, "X-Accel-Buffering"), "no");
    assert_false(answer.is_cut);
    enum { ROLE, REASONING, CONTENT, FINISH, USAGE, DONE } stage = ROLE;
    char *rest = answer.body;
    for (char *event; (event = next_event(&rest));) {
        assert_true(stage < DONE);
        assert_memory_equal(event, "data: ", 6);
        if (strcmp(event, "data: [DONE]") == 0) {
            assert_int_equal(stage, USAGE);
            stage = DONE;
            continue;
        }
        struct json_object *chunk = parse(event + 6, strlen(event + 6));
        assert_string_equal(text_at(chunk, "/object"), "chat.completion.chunk");
        if (stage == ROLE) snprintf(id, sizeof id, "%s", text_at(chunk, "/id"));
        assert_string_equal(text_at(chunk, "/id"), id);
        struct json_object *delta = at(chunk, "/choices/0/delta");
        if (stage == ROLE) {
            assert_string_equal(text_at(delta, "/role"), "assistant");
            assert_string_equal(text_at(delta, "/content"), "");
            stage = REASONING;
        } else if (json_object_object_get(delta, "reasoning_content")) {
            assert_int_equal(stage, REASONING);
            strcat(reasoning, text_at(delta, "/reasoning_content"));
        } else if (json_object_object_get(delta, "content")) {
            assert_true(stage == REASONING || stage == CONTENT);
            stage = CONTENT;
            strcat(content, text_at(delta, "/content"));
        } else if (delta) {
            assert_int_equal(stage, CONTENT);
            assert_string_equal(text_at(chunk, "/choices/0/finish_reason"), "stop");
            stage = FINISH;
        } else {
            assert_int_equal(stage, FINISH);
            assert_int_equal(json_object_array_length(at(chunk, "/choices")), 0);
            assert_true(
                json_object_equal(at(chunk, "/usage/completion_tokens"), at(whole, "/usage/completion_tokens")));
            stage = USAGE;
        }
        json_object_put(chunk);
    }
    assert_int_equal(stage, DONE);
    print_message("reasoning '%s', content '%s'\n", reasoning, content);
    assert_string_equal(reasoning, text_at(whole, "/choices/0/message/reasoning_content"));
    assert_string_equal(content, text_at(whole, "/choices/0/message/content"));
    assert_true(strlen(reasoning) > 0);
    client_answer_free(&answer);
    json_object_put(whole);
}

static void wrong_requests_name_the_field(void **state)
{
    (void)state;
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
    static const struct {
        const char *json;
        int status;
        const char *code, *param;
    } cases[] = {
        {"{", 400, "invalid_json", NULL},
        {"[]", 400, "invalid_json", NULL},
        {"", 400, "invalid_json", NULL},
        {"{\"messages\":\"hi\"}", 400, "invalid_type", "messages"},
        {"{}", 400, "missing_field", "messages"},
        {"{\"messages\":[]}", 400, "invalid_value", "messages"},
        {"{\"messages\":[{\"role\":\"function\",\"content\":\"x\"}]}", 400, "unsupported_parameter", "messages[0]"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"http://"
         "x\"}}]}]}",
         400, "unsupported_content", "messages[0].content[0]"},
        {"{" HI ",\"temperature\":3}", 400, "invalid_value", "temperature"},
        {"{" HI ",\"temperature\":\"1\"}", 400, "invalid_type", "temperature"},
        {"{" HI ",\"max_tokens\":0}", 400, "invalid_value", "max_tokens"},
        {"{" HI ",\"max_tokens\":-1}", 400, "invalid_value", "max_tokens"},
        {"{" HI ",\"max_tokens\":1.5}", 400, "invalid_type", "max_tokens"},
        {"{" HI ",\"max_tokens\":\"5\"}", 400, "invalid_type", "max_tokens"},
        {"{" HI ",\"n\":2}", 400, "unsupported_parameter", "n"},
        {"{" HI ",\"stream\":1}", 400, "invalid_type", "stream"},
        {"{" HI ",\"top_logprobs\":3}", 400, "invalid_value", "top_logprobs"},
        {"{" HI ",\"functions\":[{\"name\":\"f\"}]}", 400, "unsupported_parameter", "functions"},
        {"{" HI ",\"modalities\":[\"audio\"]}", 400, "unsupported_parameter", "modalities"},
        {"{" HI ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]}", 400, "invalid_value",
         "tools[0]"},
        {"{" HI ",\"tool_choice\":\"required\"}", 400, "invalid_value", "tool_choice"},
        {"{" HI ",\"reasoning_effort\":\"much\"}", 400, "invalid_value", "reasoning_effort"},
        {"{" HI ",\"stream_options\":{}}", 400, "invalid_value", "stream_options"},
        {"{" HI ",\"mirostat\":2}", 400, "unsupported_parameter", "mirostat"},
        {"{" HI ",\"logit_bias\":{\"99999\":1}}", 400, "invalid_value", "logit_bias"},
        {"{" HI ",\"stop\":[\"\"]}", 400, "invalid_value", "stop"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(CHAT, cases[i].json, cases[i].status, cases[i].code, cases[i].param);
    expect_error("/v1/embeddings", "{}", 400, "unsupported_endpoint", NULL);
    expect_error("/v1/nothing", "{}", 404, "not_found", NULL);
    expect_error(CHAT, NULL, 405, "method_not_allowed", NULL);
}

/* Large limits are reduced to the room there is. */
static void limits_are_clamped(void **state)
{
    (void)state;
    static const char *const limits[] = {"32000", "1000000000", "null"};
    for (size_t i = 0; i < 3; i++) {
        char json[160];
        snprintf(json, sizeof json, "{" HI ",\"max_tokens\":%s}", limits[i]);
        struct json_object *reply = ask_ok(CHAT, json);
        assert_string_equal(text_at(reply, "/choices/0/finish_reason"), "stop");
        json_object_put(reply);
    }
    struct json_object *reply = ask_ok(CHAT, "{" HI ",\"max_tokens\":2,\"max_completion_tokens\":1}");
    assert_string_equal(text_at(reply, "/choices/0/finish_reason"), "length");
    assert_int_equal(json_object_get_int(at(reply, "/usage/completion_tokens")), 1);
    json_object_put(reply);
}

/* A body with many words between its head and its end. */
static char *long_body(const char *head, size_t words, const char *end, const char *more)
{
    size_t room = words * 4 + 256;
    char *json = malloc(room);
    size_t n = (size_t)snprintf(json, room, "{%s", head);
    for (size_t i = 0; i < words; i++) n += (size_t)snprintf(json + n, room - n, "%zu ", (i * 7) % 10);
    snprintf(json + n, room - n, "%s%s}", end, more);
    return json;
}

static char *long_question(size_t words, const char *more)
{
    return long_body("\"messages\":[{\"role\":\"user\",\"content\":\"", words, "\"}]", more);
}

static void a_prompt_that_is_too_long_is_refused_at_once(void **state)
{
    (void)state;
    char *json = long_question(6000, ",\"stream\":true");
    expect_error(CHAT, json, 400, "context_length_exceeded", "messages");
    free(json);
    json = long_body("\"prompt\":\"", 6000, "\"", "");
    expect_error("/v1/completions", json, 400, "context_length_exceeded", "prompt");
    free(json);
    json = long_body("\"input\":\"", 6000, "\"", "");
    expect_error("/v1/responses", json, 400, "context_length_exceeded", "input");
    free(json);
}

/* A client that leaves frees its place, wherever its request is. */
static void a_client_that_leaves_ends_its_request(void **state)
{
    (void)state;
    static const char *const streams[] = {"true", "false"};
    for (int s = 0; s < 2; s++) {
        char more[128];
        snprintf(more, sizeof more, ",\"stream\":%s,\"ignore_eos\":true,\"max_tokens\":4000", streams[s]);
        char *prefill = long_question(1900, more), *decode = long_question(1, more);
        const struct {
            const char *what, *json;
            int wait_ms;
        } phases[] = {{"reading the prompt", prefill, 150}, {"answering", decode, 300}};
        for (size_t i = 0; i < 2; i++) {
            int fd = client_connect(demo.port);
            struct service_stats stats;
            client_post(fd, CHAT, phases[i].json, NULL);
            client_read_until(fd, "never", phases[i].wait_ms);
            service_stats(demo.service, &stats);
            assert_int_equal(stats.n_open, 1);
            close(fd);
            int ms = demo_server_wait_idle(&demo, 2000);
            print_message("stream %s, %s: noticed after %d ms\n", streams[s], phases[i].what, ms);
        }
        free(prefill);
        free(decode);
    }
}

/* More than can run: some wait, the rest is told to come later; who leaves the queue is never run. */
static void the_queue_has_an_end(void **state)
{
    (void)state;
    enum { CLIENTS = 90 };
    int fds[CLIENTS];
    char *json = long_question(1, ",\"ignore_eos\":true,\"max_tokens\":3000,\"stream\":true");
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_connect(demo.port);
        client_post(fds[i], CHAT, json, NULL);
    }
    struct client_answer answer = {0};
    int n_full = 0;
    for (int tries = 0; tries < 200 && n_full == 0; tries++) {
        answer = client_ask(demo.port, CHAT, json);
        if (answer.status == 429) {
            n_full++;
            int seconds = atoi(client_answer_header(&answer, "Retry-After"));
            assert_in_range(seconds, 1, 60);
        }
        client_answer_free(&answer);
    }
    assert_int_equal(n_full, 1);
    struct client_answer health = client_ask(demo.port, "/health", NULL);
    assert_int_equal(health.status, 200);
    client_answer_free(&health);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    int ms = demo_server_wait_idle(&demo, 3000);
    struct service_stats stats;
    service_stats(demo.service, &stats);
    print_message("idle %d ms after %d clients left\n", ms, CLIENTS);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_is_answered),
        cmocka_unit_test(a_stream_says_the_same),
        cmocka_unit_test(wrong_requests_name_the_field),
        cmocka_unit_test(limits_are_clamped),
        cmocka_unit_test(a_prompt_that_is_too_long_is_refused_at_once),
        cmocka_unit_test(a_client_that_leaves_ends_its_request),
        cmocka_unit_test(the_queue_has_an_end),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
