/* Answers that are not streamed: kept alive by blanks in front of them where that is asked for; reasoning under two
 * names; white space inside JSON as the client wants it. */
#include "support/check.h"
#include "support/demo_server.h"
#include "support/json_answer.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <json-c/json.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static struct demo_server demo, plain;

static int start(void **state)
{
    (void)state;
    demo_server_init(&demo);
    demo.settings.whole_keep_alive_ns = 1000000;
    demo.settings.both_reasoning_fields = true;
    demo_server_start(&demo);
    demo_server_init(&plain);
    demo_server_start(&plain);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    demo_server_stop(&plain);
    return 0;
}

static size_t count_blanks(const struct client_answer *answer)
{
    size_t n = 0;
    while (n < answer->n_body && answer->body[n] == ' ') n++;
    return n;
}

/* Each protocol's answer is what it is without blanks, and comes behind some. */
static void blanks_stand_in_front_of_a_long_answer(void **state)
{
    (void)state;
    static const struct {
        const char *path, *json, *text; /* text: where the answer's is */
    } cases[] = {
        {CHAT, "{" HI ",\"max_tokens\":1000,\"ignore_eos\":true}", "/choices/0/message/content"},
        {"/v1/completions", "{\"prompt\":\"The\",\"max_tokens\":1000,\"ignore_eos\":true}", "/choices/0/text"},
        {"/v1/messages", "{" HI ",\"max_tokens\":1000,\"ignore_eos\":true}", "/content/0/text"},
        {"/v1/responses", "{\"input\":\"hi\",\"max_output_tokens\":1000,\"ignore_eos\":true}",
         "/output/0/content/0/text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct client_answer answer = client_ask(demo.port, cases[i].path, cases[i].json);
        assert_int_equal(answer.status, 200);
        assert_false(answer.is_cut);
        assert_string_equal(client_answer_header(&answer, "Content-Type"), "application/json");
        size_t n = count_blanks(&answer);
        print_message("%s: %zu blanks\n", cases[i].path, n);
        assert_true(n > 0);
        struct json_object *got = json_answer_parse(answer.body, answer.n_body);
        struct json_object *wanted = json_ask(plain.port, cases[i].path, cases[i].json, NULL, 200);
        assert_string_equal(json_text_at(got, cases[i].text), json_text_at(wanted, cases[i].text));
        assert_true(strlen(json_text_at(got, cases[i].text)) > 1000);
        json_object_put(got);
        json_object_put(wanted);
        client_answer_free(&answer);
    }
}

static void without_the_option_there_are_none(void **state)
{
    (void)state;
    struct client_answer answer = client_ask(plain.port, CHAT, "{" HI ",\"max_tokens\":300,\"ignore_eos\":true}");
    assert_int_equal(answer.status, 200);
    assert_int_equal(answer.body[0], '{');
    assert_non_null(client_answer_header(&answer, "Content-Length"));
    client_answer_free(&answer);
}

/* What is refused before it began keeps its status. */
static void refusals_keep_their_status(void **state)
{
    (void)state;
    json_object_put(json_ask(demo.port, CHAT, "{" HI ",\"temperature\":9}", NULL, 400));
    json_object_put(json_ask(demo.port, CHAT, "{}", NULL, 400));
}

/* Behind the 200 a failure can only be said in the body, in the form of the client's family. */
static void a_failure_behind_the_200_is_the_body(void **state)
{
    (void)state;
    static const struct {
        const char *path, *wanted;
    } cases[] = {
        {CHAT, "{\"error\":{\"message\":\"the request was cancelled\""},
        {"/v1/messages", "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\""},
    };
    for (size_t i = 0; i < 2; i++) {
        int fd = client_connect(demo.port);
        client_post(fd, cases[i].path, "{" HI ",\"max_tokens\":3500,\"ignore_eos\":true}", "x-request-id: whole-1\r\n");
        assert_true(client_read_until(fd, "200 OK", 30000));
        json_object_put(json_ask(demo.port, "/v1/requests/whole-1/cancel", "{}", NULL, 200));
        assert_true(client_read_until(fd, cases[i].wanted, 30000));
        close(fd);
    }
}

static void whoever_leaves_is_noticed(void **state)
{
    (void)state;
    int fd = client_connect(demo.port);
    client_post(fd, CHAT, "{" HI ",\"max_tokens\":3500,\"ignore_eos\":true}", NULL);
    assert_true(client_read_until(fd, "\r\n\r\n", 30000)); /* the head is there while the answer is being made */
    close(fd);
    demo_server_wait_idle(&demo, 10000);
}

/* --- the queue, and the key --- */

/* A connection that takes few bytes at a time: an answer that nobody reads stands still in its place. */
static int narrow_connect(uint16_t port)
{
    int bytes = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void wait_paused(const struct demo_server *server)
{
    struct service_stats stats;
    int64_t until = clock_now_ns(clock_real()) + INT64_C(60000000000);
    do {
        if (clock_now_ns(clock_real()) > until) fail_msg("no answer stands still after 60 s");
        clock_sleep_ns(clock_real(), 1000000);
        service_stats(server->service, &stats);
    } while (stats.n_paused == 0);
}

/* There is one place, and it is taken by an answer that stands still. A wrong key costs nothing; the right one waits
 * for its turn, and is told that there was none: with a status of its own, whatever it asked for, since it was not
 * committed before. */
static void waiting_has_an_end_and_keys_are_asked_for(void **state)
{
    (void)state;
    static const char key[] = "Authorization: Bearer right\r\n", other[] = "x-api-key: right\r\n";
    struct demo_server tight;
    struct err err = {0};
    demo_server_init(&tight);
    assert_true(access_add_keys(&tight.access, "keys", "right\n", &err));
    tight.service_settings.engine.n_sequences = 1;
    tight.settings.backlog_bytes_max = 64 << 10;
    tight.settings.queue_ns_max = 200000000;
    demo_server_start(&tight);
    int fd = narrow_connect(tight.port);
    client_post(fd, CHAT,
                "{" HI ",\"max_tokens\":3500,\"ignore_eos\":true,\"stream\":true,\"logprobs\":true,"
                "\"top_logprobs\":20}",
                key);
    wait_paused(&tight);
    static const char *const streams[] = {"true", "false"};
    for (int i = 0; i < 2; i++) {
        char json[128];
        snprintf(json, sizeof json, "{" HI ",\"max_tokens\":2,\"stream\":%s}", streams[i]);
        struct json_object *late = json_ask(tight.port, CHAT, json, other, 504);
        assert_string_equal(json_text_at(late, "/error/code"), "queue_timeout");
        assert_string_equal(json_text_at(late, "/error/type"), "server_error");
        json_object_put(late);
    }
    struct json_object *late = json_ask(tight.port, "/v1/messages", "{" HI ",\"max_tokens\":2}", key, 504);
    assert_string_equal(json_text_at(late, "/error/type"), "timeout_error");
    json_object_put(late);
    static const char *const wrong[] = {NULL, "Authorization: Bearer wrong\r\n", "x-api-key: righ\r\n"};
    for (int i = 0; i < 3; i++) {
        struct json_object *refused = json_ask(tight.port, CHAT, "{}", wrong[i], 401);
        assert_string_equal(json_text_at(refused, "/error/code"), "invalid_api_key");
        json_object_put(refused);
        json_object_put(json_ask(tight.port, "/stats", NULL, wrong[i], 401));
        json_object_put(json_ask(tight.port, "/v1/embeddings", "{}", wrong[i], 401));
        json_object_put(json_ask(tight.port, "/health", NULL, wrong[i], 200));
    }
    close(fd);
    demo_server_wait_idle(&tight, 10000);
    demo_server_stop(&tight);
}

/* What is asked and what is answered are nobody's business but the client's. */
static void the_log_has_no_words_of_anybody(void **state)
{
    (void)state;
    struct json_object *reply = json_ask(
        plain.port, CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"zebra4711\"}],\"max_tokens\":20,"
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"const\":\"okapi4712\"}}}}",
        NULL, 200);
    assert_string_equal(json_text_at(reply, "/choices/0/message/content"), "\"okapi4712\"");
    json_object_put(reply);
    json_object_put(json_ask(plain.port, CHAT, "{\"messages\":[{\"role\":\"zebra4711\"}]}", NULL, 400));
    pthread_mutex_lock(&plain.log_lock);
    assert_non_null(strstr(plain.log, "event=answer"));
    assert_null(strstr(plain.log, "zebra4711"));
    assert_null(strstr(plain.log, "okapi4712"));
    pthread_mutex_unlock(&plain.log_lock);
}

/* --- reasoning --- */

static void reasoning_has_two_names_if_it_is_asked_for(void **state)
{
    (void)state;
    static const char json[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 17 plus 25?\"}],"
                               "\"enable_thinking\":true}";
    struct json_object *both = json_ask(demo.port, CHAT, json, NULL, 200);
    struct json_object *one = json_ask(plain.port, CHAT, json, NULL, 200);
    assert_true(strlen(json_text_at(both, "/choices/0/message/reasoning")) > 10);
    assert_string_equal(json_text_at(both, "/choices/0/message/reasoning"),
                        json_text_at(both, "/choices/0/message/reasoning_content"));
    assert_string_equal(json_text_at(one, "/choices/0/message/reasoning_content"),
                        json_text_at(both, "/choices/0/message/reasoning_content"));
    assert_null(json_at(one, "/choices/0/message/reasoning"));
    json_object_put(both);
    json_object_put(one);
    struct client_answer answer =
        client_ask(demo.port, CHAT,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 17 plus 25?\"}],\"enable_thinking\":true,"
                   "\"stream\":true}");
    assert_non_null(strstr(answer.body, "\"reasoning\":\""));
    client_answer_free(&answer);
}

/* --- white space in JSON --- */

/* Whether all white space outside of strings is of these runs, which end with NULL. */
static bool has_only(const char *text, const char *const *runs)
{
    bool in_string = false;
    for (const char *c = text; *c; c++) {
        if (*c == '\\' && in_string) {
            c++;
            continue;
        }
        if (*c == '"') in_string = !in_string;
        if (in_string || !isspace((unsigned char)*c)) continue;
        size_t n = strspn(c, " \t\r\n"), i = 0;
        while (runs[i] && (strlen(runs[i]) != n || strncmp(runs[i], c, n) != 0)) i++;
        if (!runs[i]) return false;
        c += n - 1;
    }
    return true;
}

static void white_space_is_what_was_asked_for(void **state)
{
    (void)state;
    static const char *const none[] = {NULL}, *const one[] = {" ", NULL}, *const line[] = {"\n", NULL};
    static const struct {
        const char *blanks;
        const char *const *runs;
        const char *member; /* how the first member is written, so that blanks that must be there are */
    } cases[] = {
        {"\"whitespace_pattern\":\"\"", none, "\"a\":"},
        {"\"any_whitespace\":false", one, "\"a\": "},
        {"\"whitespace_pattern\":\"\\n\"", line, "\n\"a\"\n:\n"},
        {"\"whitespace_pattern\":\"[ ]?\"", one, "\"a\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int seed = 0; seed < 10; seed++) {
            char json[1024];
            snprintf(json, sizeof json,
                     "{" HI
                     ",\"temperature\":1.5,\"top_p\":1,\"seed\":%d,\"max_tokens\":200,\"structured_outputs\":{%s,"
                     "\"json\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":"
                     "\"boolean\"},\"minItems\":2,\"maxItems\":3},\"b\":{\"enum\":[[1,2]]}},\"required\":[\"a\","
                     "\"b\"]}}}",
                     seed, cases[i].blanks);
            struct json_object *reply = json_ask(plain.port, CHAT, json, NULL, 200);
            const char *text = json_text_at(reply, "/choices/0/message/content");
            assert_string_equal(json_text_at(reply, "/choices/0/finish_reason"), "stop");
            struct json_object *value = json_answer_parse(text, strlen(text));
            assert_int_equal(json_object_array_length(json_at(value, "/b")), 2);
            if (seed == 0) print_message("%s: %s\n", cases[i].blanks, text);
            if (!has_only(text, cases[i].runs) || !strstr(text, cases[i].member))
                fail_msg("%s: %s", cases[i].blanks, text);
            json_object_put(value);
            json_object_put(reply);
        }
    }
    assert_false(has_only("{ \"a\":1}", none)); /* the look at it does see */
    assert_true(has_only("{\"a b\":1}", none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blanks_stand_in_front_of_a_long_answer),
        cmocka_unit_test(without_the_option_there_are_none),
        cmocka_unit_test(refusals_keep_their_status),
        cmocka_unit_test(a_failure_behind_the_200_is_the_body),
        cmocka_unit_test(whoever_leaves_is_noticed),
        cmocka_unit_test(waiting_has_an_end_and_keys_are_asked_for),
        cmocka_unit_test(the_log_has_no_words_of_anybody),
        cmocka_unit_test(reasoning_has_two_names_if_it_is_asked_for),
        cmocka_unit_test(white_space_is_what_was_asked_for),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
