/* What the server does around an answer, with the demo model over real sockets: slow readers, turns that are repeated,
 * requests that are ended by name, the memory budget, numbers. */
#include "support/check.h"
#include "support/demo_server.h"
#include "support/json_answer.h"

#include <arpa/inet.h>
#include <json-c/json.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static struct demo_server demo;

static int start(void **state)
{
    (void)state;
    demo_server_init(&demo);
    demo.settings.backlog_bytes_max = 64 << 10;
    demo_server_start(&demo);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    return 0;
}

static struct service_stats stats_now(void)
{
    struct service_stats stats;
    service_stats(demo.service, &stats);
    return stats;
}

/* --- slow readers --- */

/* A connection that takes few bytes at a time, as one across a slow line does. */
static int narrow_connect(void)
{
    int bytes = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(demo.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void wait_paused(uint32_t n)
{
    int64_t until = clock_now_ns(clock_real()) + INT64_C(60000000000);
    while (stats_now().n_paused != n) {
        if (clock_now_ns(clock_real()) > until)
            fail_msg("%u answers stand still after 60 s, not %u", stats_now().n_paused, n);
        clock_sleep_ns(clock_real(), 1000000);
    }
}

/* It reads nothing: its answer stands still, another client is served meanwhile, and when it reads on it gets all of
 * its answer. Each token comes with the twenty likeliest, so that the answer is larger than what sockets buffer. */
static void a_slow_reader_stops_only_itself(void **state)
{
    (void)state;
    enum { TOKENS = 900 };
    char json[256];
    snprintf(json, sizeof json,
             "{" HI ",\"ignore_eos\":true,\"max_tokens\":%d,\"stream\":true,\"logprobs\":true,\"top_logprobs\":20,"
             "\"stream_options\":{\"include_usage\":true}}",
             TOKENS);
    int fd = narrow_connect();
    client_post(fd, CHAT, json, NULL);
    wait_paused(1);
    struct service_stats before = stats_now();
    json_object_put(json_ask(demo.port, CHAT, "{" HI ",\"max_tokens\":8}", NULL, 200));
    assert_int_equal(stats_now().n_paused, 1);
    /* Eight ids, and those of a pass that had not been counted yet; one more for each of eight passes otherwise. */
    assert_true(stats_now().scheduler.n_generated < before.scheduler.n_generated + 16);

    struct client_answer answer;
    client_read(fd, &answer);
    assert_int_equal(answer.status, 200);
    assert_false(answer.is_cut);
    assert_true(answer.n_body > 1 << 20);
    assert_non_null(strstr(answer.body, "data: [DONE]"));
    char usage[64];
    snprintf(usage, sizeof usage, "\"completion_tokens\":%d", TOKENS);
    assert_non_null(strstr(answer.body, usage));
    print_message("%zu bytes, %llu pauses\n", answer.n_body, (unsigned long long)stats_now().n_pauses);
    client_answer_free(&answer);
    close(fd);
}

/* Whoever leaves while its answer stands still is noticed too. */
static void a_slow_reader_may_leave(void **state)
{
    (void)state;
    int fd = narrow_connect();
    client_post(
        fd, CHAT,
        "{" HI ",\"ignore_eos\":true,\"max_tokens\":4000,\"stream\":true,\"logprobs\":true,\"top_logprobs\":20}", NULL);
    wait_paused(1);
    close(fd);
    demo_server_wait_idle(&demo, 10000);
}

/* --- turns that come back --- */

#define WEATHER \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}"

/* Tokens that the canonical spelling of the tool's name would begin with are forbidden, so the model's own ids are not
 * those that its text encodes to. */
static void forbid_spelling(char *out, size_t room)
{
    struct err err = {0};
    struct token_list ids;
    struct encoder *encoder = encoder_new(&demo.alloc, demo.model.tokenizer, NULL, &err);
    token_list_init(&ids, &demo.alloc, 64);
    assert_non_null(encoder);
    assert_true(encoder_encode(encoder, "get_weather", 11, ENCODE_NONE, &ids, &err));
    size_t n = (size_t)snprintf(out, room, "\"logit_bias\":{");
    for (size_t i = 0; i < ids.n; i++) {
        struct token token = tokenizer_token(demo.model.tokenizer, ids.ids[i]);
        if (token.n_bytes > 1)
            n += (size_t)snprintf(out + n, room - n, "%s\"%u\":-100", out[n - 1] == '{' ? "" : ",", ids.ids[i]);
    }
    snprintf(out + n, room - n, "}");
    assert_true(out[n - 1] != '{'); /* or the name has no token to forbid, and the test would show nothing */
    token_list_fini(&ids);
    encoder_free(encoder);
}

static int64_t cached_of(const char *path, const char *json, const char *pointer)
{
    struct json_object *reply = json_ask(demo.port, path, json, NULL, 200);
    int64_t n = json_int_at(reply, pointer);
    json_object_put(reply);
    return n;
}

static void chat_turns_take_the_models_own_tokens(void **state)
{
    (void)state;
    static const char *const thinking[] = {"false", "true"};
    for (int i = 0; i < 2; i++) {
        char bias[512], json[8192];
        forbid_spelling(bias, sizeof bias);
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"," WEATHER "}}]"
#define ASK "{\"role\":\"user\",\"content\":\"What is the weather in Oslo, run %d?\"}"
        snprintf(json, sizeof json,
                 "{\"messages\":[" ASK "]," TOOLS ",%s,\"tool_choice\":\"required\",\"parallel_tool_calls\":false,"
                 "\"enable_thinking\":%s,\"max_tokens\":200}",
                 i, bias, thinking[i]);
        struct json_object *first = json_ask(demo.port, CHAT, json, NULL, 200);
        assert_string_equal(json_text_at(first, "/choices/0/finish_reason"), "tool_calls");
        struct json_object *message = json_at(first, "/choices/0/message");
        const char *id = json_text_at(first, "/choices/0/message/tool_calls/0/id");
        int64_t n_first = json_int_at(first, "/usage/total_tokens");
        char again[4096];
        snprintf(again, sizeof again, "%s", json_object_to_json_string_ext(message, JSON_C_TO_STRING_PLAIN));
        print_message("thinking %s: %s\n", thinking[i], again);

        const char *form = "{\"messages\":[" ASK ",%s,{\"role\":\"tool\",\"content\":\"rain\"}]," TOOLS
                           ",\"enable_thinking\":%s,\"max_tokens\":4}";
        snprintf(json, sizeof json, form, i, again, thinking[i]);
        int64_t own = cached_of(CHAT, json, "/usage/prompt_tokens_details/cached_tokens");
        /* Wrong on purpose: under another id the same turn is nobody's. */
        memcpy(strstr(again, id), "other_", 6); /* no id of ours begins like this */
        snprintf(json, sizeof json, form, i, again, thinking[i]);
        int64_t foreign = cached_of(CHAT, json, "/usage/prompt_tokens_details/cached_tokens");
        print_message("%lld tokens so far; cached: own %lld, foreign %lld\n", (long long)n_first, (long long)own,
                      (long long)foreign);
        assert_true(own >= n_first - 1); /* the last token was given out and not fed */
        assert_true(foreign < own);
        json_object_put(first);
    }
}

/* The prompt says the same text, whoever's tokens it is made of; and a turn that was changed is the client's. */
static void own_tokens_say_what_the_template_says(void **state)
{
    (void)state;
    char bias[512], json[8192], again[4096];
    forbid_spelling(bias, sizeof bias);
    snprintf(json, sizeof json,
             "{\"messages\":[" ASK "]," TOOLS ",%s,\"tool_choice\":\"required\",\"parallel_tool_calls\":false,"
             "\"max_tokens\":200}",
             7, bias);
    struct json_object *first = json_ask(demo.port, CHAT, json, NULL, 200);
    const char *id = json_text_at(first, "/choices/0/message/tool_calls/0/id");
    snprintf(again, sizeof again, "%s",
             json_object_to_json_string_ext(json_at(first, "/choices/0/message"), JSON_C_TO_STRING_PLAIN));
    const char *form = "{\"messages\":[" ASK ",%s,{\"role\":\"tool\",\"content\":\"rain\"}]," TOOLS "}";
    snprintf(json, sizeof json, form, 7, again);
    struct json_object *own_count = json_ask(demo.port, "/tokenize", json, NULL, 200);
    struct json_object *own = json_ask(demo.port, "/apply-template", json, NULL, 200);
    memcpy(strstr(again, id), "other_", 6); /* no id of ours begins like this */
    snprintf(json, sizeof json, form, 7, again);
    struct json_object *foreign_count = json_ask(demo.port, "/tokenize", json, NULL, 200);
    struct json_object *foreign = json_ask(demo.port, "/apply-template", json, NULL, 200);
    print_message("%s\n", json_text_at(own, "/prompt"));
    assert_string_equal(json_text_at(own, "/prompt"), json_text_at(foreign, "/prompt"));
    assert_true(json_int_at(own_count, "/count") != json_int_at(foreign_count, "/count"));
    json_object_put(own);
    json_object_put(foreign);
    json_object_put(own_count);
    json_object_put(foreign_count);
    json_object_put(first);
}

static void messages_and_responses_do_so_too(void **state)
{
    (void)state;
    char json[8192], bias[512];
    forbid_spelling(bias, sizeof bias);
    snprintf(json, sizeof json,
             "{\"max_tokens\":200,\"messages\":[{\"role\":\"user\",\"content\":\"Weather in Rome?\"}],\"tools\":["
             "{\"name\":\"get_weather\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":"
             "\"string\"}}}}],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true},%s}",
             bias);
    struct json_object *first = json_ask(demo.port, "/v1/messages", json, NULL, 200);
    struct json_object *second = json_answer_parse(json, strlen(json)), *turns = json_at(second, "/messages");
    json_object_object_del(second, "tool_choice");
    struct json_object *turn = json_object_new_object(), *result = json_object_new_object();
    json_object_object_add(turn, "role", json_object_new_string("assistant"));
    json_object_object_add(turn, "content", json_object_get(json_at(first, "/content")));
    json_object_array_add(turns, turn);
    char block[256];
    size_t n_content = json_object_array_length(json_at(first, "/content"));
    snprintf(block, sizeof block, "/content/%zu/id", n_content - 1);
    int n = snprintf(json, sizeof json, "[{\"type\":\"tool_result\",\"tool_use_id\":\"%s\",\"content\":\"sun\"}]",
                     json_text_at(first, block));
    json_object_object_add(result, "role", json_object_new_string("user"));
    json_object_object_add(result, "content", json_answer_parse(json, (size_t)n));
    json_object_array_add(turns, result);
    int64_t n_first = json_int_at(first, "/usage/input_tokens") + json_int_at(first, "/usage/output_tokens") +
                      json_int_at(first, "/usage/cache_read_input_tokens");
    int64_t own = cached_of("/v1/messages", json_object_to_json_string(second), "/usage/cache_read_input_tokens");
    print_message("messages: %lld tokens so far, %lld cached\n", (long long)n_first, (long long)own);
    assert_true(own >= n_first - 1);
    json_object_put(first);
    json_object_put(second);

    snprintf(json, sizeof json,
             "{\"input\":\"Weather in Bern?\",\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\"," WEATHER
             "}],\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"max_output_tokens\":200,%s}",
             bias);
    first = json_ask(demo.port, "/v1/responses", json, NULL, 200);
    snprintf(json, sizeof json,
             "{\"previous_response_id\":\"%s\",\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"%s\","
             "\"output\":\"snow\"}],\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\"," WEATHER
             "}],\"max_output_tokens\":4}",
             json_text_at(first, "/id"), json_text_at(first, "/output/0/call_id"));
    n_first = json_int_at(first, "/usage/total_tokens");
    own = cached_of("/v1/responses", json, "/usage/input_tokens_details/cached_tokens");
    print_message("responses: %lld tokens so far, %lld cached\n", (long long)n_first, (long long)own);
    assert_true(own >= n_first - 1);
    json_object_put(first);
}

/* --- requests that are ended by name --- */

/* </think> is forbidden, so thinking would go on to the limit. */
static void thinking_ends_when_it_is_told_to(void **state)
{
    (void)state;
    char json[512];
    snprintf(json, sizeof json,
             "{" HI ",\"enable_thinking\":true,\"logit_bias\":{\"%u\":-100},\"ignore_eos\":true,\"max_tokens\":3500,"
             "\"stream\":true,\"stop\":\"\\u0000\"}",
             demo.model.chat.id[CHAT_THINK_END]);
    int fd = client_connect(demo.port);
    client_post(fd, CHAT, json, "x-request-id: think-1\r\n");
    assert_true(client_read_until(fd, "reasoning_content", 30000));
    json_object_put(json_ask(demo.port, "/v1/requests/think-1/end_thinking", "{}", NULL, 200));
    assert_true(client_read_until(fd, "\"delta\":{\"content\":", 30000));
    struct json_object *done = json_ask(demo.port, "/v1/requests/think-1/cancel", "{}", NULL, 200);
    assert_string_equal(json_text_at(done, "/id"), "think-1");
    json_object_put(done);
    assert_true(client_read_until(fd, "\"code\":\"cancelled\"", 30000));
    close(fd);
    demo_server_wait_idle(&demo, 5000);
    json_object_put(json_ask(demo.port, "/v1/requests/think-1/cancel", "{}", NULL, 404));
}

/* --- the budget --- */

static void the_budget_moves_while_the_server_runs(void **state)
{
    (void)state;
    char json[128];
    struct json_object *now = json_ask(demo.port, "/admin/budget", NULL, NULL, 200);
    int64_t least = json_int_at(now, "/least"), most = json_int_at(now, "/most");
    assert_int_equal(json_int_at(now, "/budget"), most);
    json_object_put(now);
    struct json_object *before = json_ask(demo.port, CHAT, "{" HI ",\"max_tokens\":16}", NULL, 200);

    snprintf(json, sizeof json, "{\"budget\":%lld}", (long long)least);
    now = json_ask(demo.port, "/admin/budget", json, NULL, 200);
    assert_int_equal(json_int_at(now, "/budget"), least);
    json_object_put(now);
    struct json_object *after = json_ask(demo.port, CHAT, "{" HI ",\"max_tokens\":16}", NULL, 200);
    struct json_object *stats = json_ask(demo.port, "/stats", NULL, NULL, 200);
    assert_int_equal(json_int_at(stats, "/memory/budget_bytes"), least); /* the guard's own, a pass later */
    json_object_put(stats);
    assert_string_equal(json_text_at(after, "/choices/0/message/content"),
                        json_text_at(before, "/choices/0/message/content"));
    json_object_put(before);
    json_object_put(after);

    snprintf(json, sizeof json, "{\"budget\":%lld}", (long long)most);
    json_object_put(json_ask(demo.port, "/admin/budget", json, NULL, 200));
    static const char *const wrong[] = {"{}", "{\"budget\":1}",       "{\"budget\":\"much\"}", "{\"budget\":true}",
                                        "[]", "{\"budget\":\"999T\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        json_object_put(json_ask(demo.port, "/admin/budget", wrong[i], NULL, 400));
}

/* --- numbers --- */

static double metric(const char *text, const char *name)
{
    char line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *found = strstr(text, line);
    if (!found) fail_msg("no %s among the metrics", name);
    return strtod(found + strlen(line), NULL);
}

static void metrics_have_histograms(void **state)
{
    (void)state;
    struct client_answer before = client_ask(demo.port, "/metrics", NULL);
    json_object_put(json_ask(demo.port, CHAT, "{" HI ",\"max_tokens\":5,\"ignore_eos\":true}", NULL, 200));
    struct client_answer after = client_ask(demo.port, "/metrics", NULL);
    for (int ms = 0; ms < 20000; ms++) { /* an answer may be read before it is counted */
        if (metric(after.body, "weir_answer_seconds_count") > metric(before.body, "weir_answer_seconds_count")) break;
        clock_sleep_ns(clock_real(), 1000000);
        client_answer_free(&after);
        after = client_ask(demo.port, "/metrics", NULL);
    }
    static const char *const names[] = {"weir_queue_seconds",        "weir_time_to_first_token_seconds",
                                        "weir_prompt_seconds",       "weir_time_per_token_seconds",
                                        "weir_answer_seconds",       "weir_request_prompt_tokens",
                                        "weir_request_answer_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s_count", names[i]);
        assert_true(metric(after.body, name) == metric(before.body, name) + 1);
        double count = metric(after.body, name);
        snprintf(name, sizeof name, "%s_bucket{le=\"+Inf\"}", names[i]);
        assert_true(metric(after.body, name) == count);
        snprintf(name, sizeof name, "%s_sum", names[i]);
        assert_true(metric(after.body, name) >= metric(before.body, name));
    }
    assert_true(metric(after.body, "weir_request_answer_tokens_sum") ==
                metric(before.body, "weir_request_answer_tokens_sum") + 5);
    client_answer_free(&before);
    client_answer_free(&after);
}

/* Numbers of the disk and of the passes, in both places. */
static void disk_and_stages_are_counted(void **state)
{
    (void)state;
    static const char *const stages[] = {"embed", "project", "attend", "router", "experts", "shared", "head"};
    char name[96];
    json_object_put(json_ask(demo.port, CHAT, "{" HI ",\"max_tokens\":5,\"ignore_eos\":true}", NULL, 200));
    struct json_object *stats =
        json_ask(demo.port, "/stats", NULL, NULL, 200); /* of the passes but the last at least */
    struct client_answer metrics = client_ask(demo.port, "/metrics", NULL);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        snprintf(name, sizeof name, "weir_stage_seconds_total{stage=\"%s\"}", stages[i]);
        assert_true(metric(metrics.body, name) > 0);
    }
    int64_t demanded = json_int_at(stats, "/disk/bytes_demanded");
    assert_true(demanded > 0);
    assert_true(metric(metrics.body, "weir_disk_bytes_demanded_total") >= (double)demanded);
    assert_true(json_int_at(stats, "/disk/bytes_hinted") >= 0);
    assert_true(json_int_at(stats, "/disk/reads_in_flight_most") > 0);
    assert_int_equal(json_int_at(stats, "/disk/failed"), 0);
    assert_true(metric(metrics.body, "weir_disk_busy_seconds_total") > 0);
    assert_true(metric(metrics.body, "weir_disk_io_errors_total") == 0);
    assert_true(json_int_at(stats, "/memory/held_bytes") > 1 << 20);
    assert_true(metric(metrics.body, "weir_held_bytes") > 1 << 20);
    json_object_put(stats);
    client_answer_free(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_reader_stops_only_itself),
        cmocka_unit_test(a_slow_reader_may_leave),
        cmocka_unit_test(chat_turns_take_the_models_own_tokens),
        cmocka_unit_test(own_tokens_say_what_the_template_says),
        cmocka_unit_test(messages_and_responses_do_so_too),
        cmocka_unit_test(thinking_ends_when_it_is_told_to),
        cmocka_unit_test(metrics_have_histograms),
        cmocka_unit_test(disk_and_stages_are_counted),
        cmocka_unit_test(the_budget_moves_while_the_server_runs),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
