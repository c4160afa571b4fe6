/* What whoever operates a server relies on: readiness, a graceful end, who may ask, and a log that tells nothing of
 * what was said. The program is the whole of `weir serve`. */
#include "support/check.h"
#include "support/client.h"
#include "support/served.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define MODEL "models/demo"
#define CHAT "/v1/chat/completions"
#define BEGUN "\"delta\":{\"content\":\"" /* and not only the chunk that comes while it waits */
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}]"

static void must_end_well(struct served *s)
{
    int code = served_wait_end(s);
    char *log = served_log(s);
    if (code != 0) fail_msg("exit code %d; its log:\n%s", code, log);
    free(log);
}

/* --- readiness --- */

static void the_service_manager_hears_when_it_is_ready_and_when_it_stops(void **state)
{
    (void)state;
    struct served s;
    struct client_answer answer;
    SERVED_START(&s, MODEL, "--temperature", "0");
    assert_true(served_wait_notified(&s, "READY=1"));
    served_wait_listening(&s);
    int fd = client_connect(s.port);
    client_get(fd, "/health", NULL);
    client_read(fd, &answer);
    assert_int_equal(answer.status, 200); /* and not 503, as while it loads */
    client_answer_free(&answer);
    close(fd);
    assert_null(strstr(s.notified, "STOPPING=1"));
    served_signal(&s, SIGTERM);
    must_end_well(&s);
    printf("it was told:\n%s", s.notified);
    assert_non_null(strstr(s.notified, "STOPPING=1"));
    served_fini(&s);
}

static void a_model_that_does_not_open_is_never_ready(void **state)
{
    (void)state;
    struct served s;
    SERVED_START(&s, MODEL, "--ram-budget", "1M");
    assert_false(served_wait_notified(&s, "READY=1"));
    assert_int_equal(served_wait_end(&s), 3);
    char *log = served_log(&s);
    assert_non_null(strstr(log, "weir: "));
    free(log);
    served_fini(&s);
}

/* --- the end --- */

/* With little room for what it does not read. */
static int connect_narrow(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes = 4096;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static bool can_connect(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool can = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (!can) assert_int_equal(errno, ECONNREFUSED);
    close(fd);
    return can;
}

/* One answer goes on while it is told to stop. False: the answer was over too early for anything to be seen. */
static bool stop_beside_an_answer(void)
{
    struct served s;
    struct client_answer late;
    SERVED_START(&s, MODEL, "--temperature", "0", "--context-length", "8192", "--drain-time", "300");
    assert_true(served_wait_notified(&s, "READY=1"));
    served_wait_listening(&s);

    int idle = client_connect(s.port); /* that stays open behind its answer */
    client_get(idle, "/health", NULL);
    client_read(idle, &late);
    assert_int_equal(late.status, 200);
    client_answer_free(&late);

    int fd = connect_narrow(s.port);
    client_post(
        fd, CHAT,
        "{" HI ",\"stream\":true,\"ignore_eos\":true,\"max_tokens\":1200,\"logprobs\":true,\"top_logprobs\":20}", NULL);
    served_wait_log(&s, "event=ready");
    assert_true(client_read_until(fd, BEGUN, 30000)); /* of which nothing more is read for now */
    served_signal(&s, SIGTERM);
    served_wait_log(&s, "event=stopping open_requests=");
    char *log = served_log(&s);
    bool was_early = strstr(log, "event=stopping open_requests=0") != NULL;
    free(log);

    client_post(idle, CHAT, "{" HI "}", NULL);
    client_read(idle, &late);
    bool was_seen = !was_early && late.status != 0;
    if (was_seen) {
        assert_int_equal(late.status, 503);
        assert_non_null(strstr(late.body, "\"shutting_down\""));
        assert_non_null(client_answer_header(&late, "Retry-After"));
        assert_false(can_connect(s.port));
    }
    client_answer_free(&late);
    close(idle);

    char *rest = client_read_to_end(fd);
    assert_non_null(strstr(rest, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(rest, "data: [DONE]"));
    free(rest);
    close(fd);
    must_end_well(&s);
    served_fini(&s);
    return was_seen;
}

static void an_answer_that_goes_on_may_end_and_new_ones_are_refused(void **state)
{
    (void)state;
    enum { TRIES = 10 };
    int tries = 1;
    while (!stop_beside_an_answer() && tries < TRIES) tries++;
    printf("seen at attempt %d\n", tries);
    assert_true(tries < TRIES);
}

static void a_second_signal_ends_the_wait(void **state)
{
    (void)state;
    struct served s;
    SERVED_START(&s, MODEL, "--temperature", "0", "--context-length", "32768", "--drain-time", "300");
    assert_true(served_wait_notified(&s, "READY=1"));
    served_wait_listening(&s);
    int fd = client_connect(s.port);
    client_post(fd, CHAT, "{" HI ",\"stream\":true,\"ignore_eos\":true,\"max_tokens\":32000}", NULL);
    assert_true(client_read_until(fd, BEGUN, 30000));
    served_signal(&s, SIGTERM);
    served_wait_log(&s, "event=stopping open_requests=1");
    served_signal(&s, SIGTERM);
    char *rest = client_read_to_end(fd);
    assert_non_null(strstr(rest, "\"shutting_down\""));
    assert_null(strstr(rest, "[DONE]"));
    free(rest);
    close(fd);
    must_end_well(&s);
    served_fini(&s);
}

/* --- who may ask --- */

#define PAGE "https://ui.example"

static struct served guarded;

static int start_guarded(void **state)
{
    (void)state;
    SERVED_START(&guarded, MODEL, "--temperature", "0", "--cors-origin", PAGE, "--cors-origin", "null", "--allow-host",
                 "weir.example");
    if (!served_wait_notified(&guarded, "READY=1")) return -1;
    served_wait_listening(&guarded);
    return 0;
}

static int stop_guarded(void **state)
{
    (void)state;
    served_fini(&guarded);
    return 0;
}

/* `lines` are whole header lines with their ends, Host among them. */
static void ask_raw(const char *method, const char *path, const char *lines, const char *body,
                    struct client_answer *answer)
{
    char head[2048];
    int fd = client_connect(guarded.port);
    snprintf(head, sizeof head, "%s %s HTTP/1.1\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n", method, path,
             lines, strlen(body));
    client_send_text(fd, head);
    client_send_text(fd, body);
    client_read(fd, answer);
    close(fd);
}

static void expect_header(const struct client_answer *answer, const char *name, const char *value)
{
    const char *got = client_answer_header(answer, name);
    if (!value && !got) return;
    if (!value || !got || strcmp(got, value) != 0)
        fail_msg("%s: '%s' instead of '%s' in\n%s", name, got ? got : "(none)", value ? value : "(none)", answer->head);
}

static void a_page_that_is_listed_may_ask(void **state)
{
    (void)state;
    struct client_answer a;
    ask_raw("OPTIONS", CHAT,
            "Host: localhost\r\nOrigin: " PAGE "\r\nAccess-Control-Request-Method: POST\r\n"
            "Access-Control-Request-Headers: content-type, x-evil, X-Stainless-Lang, authorization\r\n",
            "", &a);
    assert_int_equal(a.status, 204);
    expect_header(&a, "Access-Control-Allow-Origin", PAGE);
    expect_header(&a, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    expect_header(&a, "Access-Control-Allow-Headers", "content-type, X-Stainless-Lang, authorization");
    expect_header(&a, "Access-Control-Max-Age", "600");
    expect_header(&a, "Vary", "Origin");
    expect_header(&a, "Access-Control-Allow-Private-Network", NULL);
    client_answer_free(&a);

    ask_raw("OPTIONS", CHAT, "Host: localhost\r\nOrigin: " PAGE "\r\nAccess-Control-Request-Private-Network: true\r\n",
            "", &a);
    assert_int_equal(a.status, 204);
    expect_header(&a, "Access-Control-Allow-Private-Network", "true");
    client_answer_free(&a);

    ask_raw("POST", CHAT, "Host: localhost\r\nContent-Type: application/json\r\nOrigin: " PAGE "\r\n",
            "{" HI ",\"max_tokens\":4}", &a);
    assert_int_equal(a.status, 200);
    expect_header(&a, "Access-Control-Allow-Origin", PAGE);
    expect_header(&a, "Access-Control-Expose-Headers", "x-request-id, x-dropped-tools, retry-after");
    client_answer_free(&a);

    ask_raw("POST", CHAT, "Host: localhost\r\nContent-Type: application/json\r\nOrigin: null\r\n",
            "{" HI ",\"max_tokens\":4}", &a); /* listed too */
    assert_int_equal(a.status, 200);
    expect_header(&a, "Access-Control-Allow-Origin", "null");
    client_answer_free(&a);
}

static void a_page_that_is_not_listed_may_not(void **state)
{
    (void)state;
    static const char *const origins[] = {"https://evil.example",
                                          "http://ui.example",
                                          "https://ui.example.evil.example",
                                          "https://ui.example:8443",
                                          "file://",
                                          "vscode-webview://x",
                                          "*"};
    struct client_answer a;
    char lines[512];
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        snprintf(lines, sizeof lines, "Host: localhost\r\nContent-Type: application/json\r\nOrigin: %s\r\n",
                 origins[i]);
        ask_raw("OPTIONS", CHAT, lines, "", &a);
        assert_int_equal(a.status, 403);
        expect_header(&a, "Access-Control-Allow-Origin", NULL);
        client_answer_free(&a);
        ask_raw("POST", CHAT, lines, "{" HI ",\"max_tokens\":4}", &a);
        assert_int_equal(a.status, 403);
        expect_header(&a, "Access-Control-Allow-Origin", NULL);
        assert_non_null(strstr(a.body, "permission_error"));
        client_answer_free(&a);
    }
    ask_raw("POST", CHAT, "Host: localhost\r\nContent-Type: application/json\r\nSec-Fetch-Site: cross-site\r\n",
            "{" HI ",\"max_tokens\":4}", &a);
    assert_int_equal(a.status, 403);
    client_answer_free(&a);
    ask_raw("POST", CHAT, "Host: localhost\r\nContent-Type: text/plain\r\n", "{" HI ",\"max_tokens\":4}", &a);
    assert_int_equal(a.status, 415); /* what a page may send without asking first */
    client_answer_free(&a);
}

static void only_names_of_this_machine_are_answered(void **state)
{
    (void)state;
    char own[64];
    snprintf(own, sizeof own, "127.0.0.1:%u", guarded.port);
    const struct {
        const char *host;
        int status;
    } hosts[] = {
        {own, 200},
        {"localhost", 200},
        {"LOCALHOST:1", 200},
        {"[::1]:8080", 200},
        {"weir.example", 200},
        {"weir.example:80", 200},
        {"evil.example", 403},
        {"localhost.evil.example", 403},
        {"127.0.0.2", 403},
        {"192.168.0.10", 403},
        {"weir.example.evil", 403},
    };
    struct client_answer a;
    char lines[256];
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        snprintf(lines, sizeof lines, "Host: %s\r\n", hosts[i].host);
        ask_raw("GET", "/v1/models", lines, "", &a);
        if (a.status != hosts[i].status) fail_msg("Host %s: %d, not %d", hosts[i].host, a.status, hosts[i].status);
        client_answer_free(&a);
    }
    ask_raw("GET", "/v1/models", "", "", &a);
    assert_int_equal(a.status, 400); /* HTTP/1.1 without a Host */
    client_answer_free(&a);
}

/* --- the log --- */

#define SECRET "Zanzibar7391"
#define SAID(role) "\"role\":\"" role "\",\"content\":\"What is the capital of France? " SECRET "\""

static void the_log_tells_nothing_of_what_was_said(void **state)
{
    (void)state;
    static const struct {
        const char *path, *json;
    } requests[] = {
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}]}"},
        {CHAT, "{\"messages\":[{" SAID("system") "},{" SAID("user") "}],\"stream\":true}"},
        {CHAT,
         "{\"messages\":[{" SAID("user") "}],\"logprobs\":true,\"stop\":[\"" SECRET "\"],\"user\":\"" SECRET "\"}"},
        {CHAT, "{\"messages\":[{" SAID("user") "}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                                               "\"description\":\"" SECRET
                                               "\",\"parameters\":{\"type\":\"object\",\"properties\":{\"" SECRET
                                               "\":{\"type\":\"string\"}}}}}],\"tool_choice\":\"required\"}"},
        {CHAT, "{\"messages\":[{" SAID("user") "}],\"response_format\":{\"type\":\"json_object\"},\"max_tokens\":8}"},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"" SECRET "\"}"}, /* cut off */
        {CHAT, "{\"messages\":[{\"role\":\"" SECRET "\",\"content\":\"x\"}]}"},
        {CHAT, "{\"messages\":[{" SAID("user") "}],\"temperature\":\"" SECRET "\"}"},
        {CHAT, "{\"messages\":[{" SAID("user") "}],\"model\":\"" SECRET "\",\"max_tokens\":4}"},
        {"/v1/completions", "{\"prompt\":\"The capital of France is " SECRET "\",\"echo\":true,\"max_tokens\":8}"},
        {"/v1/messages", "{\"max_tokens\":8,\"system\":\"" SECRET "\",\"messages\":[{" SAID("user") "}]}"},
        {"/v1/messages/count_tokens", "{\"messages\":[{" SAID("user") "}]}"},
        {"/v1/responses", "{\"input\":\"" SECRET "\",\"instructions\":\"" SECRET "\",\"max_output_tokens\":16}"},
        {"/tokenize", "{\"content\":\"" SECRET "\"}"},
        {"/apply-template", "{\"messages\":[{" SAID("user") "}]}"},
    };
    struct client_answer a;
    size_t n = sizeof requests / sizeof *requests, n_lines = 0;
    bool has_answered = false;
    for (size_t i = 0; i < n; i++) {
        a = client_ask(guarded.port, requests[i].path, requests[i].json);
        has_answered = has_answered || (a.status == 200 && strstr(a.body, "Paris"));
        client_answer_free(&a);
    }
    assert_true(has_answered); /* so that there is something to keep silent about */
    ask_raw("GET", "/v1/models?q=" SECRET, "Host: localhost\r\nAuthorization: Bearer " SECRET "\r\n", "", &a);
    assert_int_equal(a.status, 200);
    client_answer_free(&a);
    int fd = client_connect(guarded.port); /* one that is left in the middle */
    client_post(fd, CHAT, "{\"messages\":[{" SAID("user") "}],\"stream\":true,\"ignore_eos\":true,\"max_tokens\":3000}",
                NULL);
    assert_true(client_read_until(fd, BEGUN, 30000));
    close(fd);
    served_signal(&guarded, SIGTERM);
    must_end_well(&guarded);

    char *log = served_log(&guarded);
    assert_null(strstr(log, SECRET));
    assert_null(strstr(log, "Paris"));
    for (char *rest = log, *line; (line = strsep(&rest, "\n")); n_lines++) {
        if (!*line) continue; /* behind the last end of a line */
        bool is_structured =
            strncmp(line, "time=20", 7) == 0 && strstr(line, "Z component=") && strstr(line, " event=");
        if (!is_structured) fail_msg("not a line of key=value words: %s", line);
    }
    printf("%d lines of log, behind %d requests\n", (int)n_lines, (int)n + 2);
    assert_true(n_lines > n);
    free(log);
}

int main(void)
{
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(the_service_manager_hears_when_it_is_ready_and_when_it_stops),
        cmocka_unit_test(a_model_that_does_not_open_is_never_ready),
        cmocka_unit_test(an_answer_that_goes_on_may_end_and_new_ones_are_refused),
        cmocka_unit_test(a_second_signal_ends_the_wait),
    };
    const struct CMUnitTest asked[] = {
        cmocka_unit_test(a_page_that_is_listed_may_ask), cmocka_unit_test(a_page_that_is_not_listed_may_not),
        cmocka_unit_test(only_names_of_this_machine_are_answered),
        cmocka_unit_test(the_log_tells_nothing_of_what_was_said), /* the last: it stops the server */
    };
    int failed = cmocka_run_group_tests_name("alone", alone, NULL, NULL);
    return failed + cmocka_run_group_tests_name("asked", asked, start_guarded, stop_guarded);
}
