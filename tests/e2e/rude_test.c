/* Clients that are rude: what each of them gets, that nobody else notices, and that nothing of them stays.
 *
 * After each the server must be as it was: no open request, no connection, no descriptor. No assertion depends on how
 * fast anything is; the deadlines are there to end a test that hangs. */
#include "fmt/json_doc.h"
#include "serve/server_int.h"
#include "support/check.h"
#include "support/client.h"
#include "support/demo_server.h"

#include <assert.h>
#include <dirent.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHAT "/v1/chat/completions"
#define HOST "Host: localhost\r\n"
#define JSON_TYPE "Content-Type: application/json\r\n"
#define POST_CHAT "POST " CHAT " HTTP/1.1\r\n" HOST JSON_TYPE
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

enum { DEADLINE_MS = 30000, SOON_MS = 5000, IMPATIENT_S = 1, BODY_MAX = 1 << 20, PASS_ROWS = 16, LONG_WORDS = 1900 };

static struct demo_server demo;
static int n_descriptors;

static int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static int64_t now_ms(void)
{
    return clock_now_ns(clock_real()) / 1000000;
}

/* Waits for a fact about the server. */
static void wait_for(const char *what, bool (*holds)(void))
{
    int64_t until = now_ms() + DEADLINE_MS;
    while (!holds()) {
        if (now_ms() > until) fail_msg("%s: not so for %d s", what, DEADLINE_MS / 1000);
        clock_sleep_ns(clock_real(), 1000000);
    }
}

/* The same, but it may not come to it. */
static bool comes_to(bool (*holds)(void))
{
    int64_t until = now_ms() + SOON_MS;
    while (!holds() && now_ms() < until) clock_sleep_ns(clock_real(), 1000000);
    return holds();
}

static struct service_stats stats(void)
{
    struct service_stats stats;
    service_stats(demo.service, &stats);
    return stats;
}

static bool is_idle(void)
{
    return stats().n_open == 0 && stats().scheduler.n_running == 0 && stats().scheduler.n_waiting == 0 &&
           httpd_connections(demo.server->http) == 0;
}

/* A polite client is answered. An impatient server may cut even that one, when this machine does something else for a
 * while; then it comes again. */
static void must_answer(const char *path, const char *json)
{
    int status = 0;
    for (int tries = 0; tries < 20 && status == 0; tries++) {
        struct client_answer answer = client_ask(demo.port, path, json);
        status = answer.status;
        client_answer_free(&answer);
    }
    assert_int_equal(status, 200);
}

/* As it was before: this is the end of every test. */
static int settle(void **state)
{
    (void)state;
    wait_for("no request and no connection is left", is_idle);
    /* A descriptor is closed a little after its connection is counted out. */
    int64_t until = now_ms() + DEADLINE_MS;
    int was = n_descriptors, now;
    while ((now = count_descriptors()) != was && now_ms() < until) clock_sleep_ns(clock_real(), 1000000);
    n_descriptors = now; /* so that one leak is one failure */
    if (was != now) fail_msg("%d descriptors, and there were %d", now, was);
    const struct server_counts *c = &demo.server->counts;
    assert_int_equal(atomic_load(&c->n_requests), atomic_load(&c->n_ok) + atomic_load(&c->n_refused) +
                                                      atomic_load(&c->n_failed) + atomic_load(&c->n_left));
    assert_null(demo.server->calls);
    must_answer("/health", NULL);
    wait_for("no connection is left", is_idle);
    return 0;
}

static int start(void **state)
{
    demo_server_init(&demo);
    demo.service_settings.engine.n_sequences = 2;
    demo.service_settings.engine.pass_rows = PASS_ROWS;
    demo.settings.body_bytes_max = BODY_MAX;
    if (*state) demo.settings.silence_s = demo.settings.stall_s = IMPATIENT_S;
    demo_server_start(&demo);
    n_descriptors = count_descriptors();
    return 0;
}

static int start_impatient(void **state)
{
    static bool yes = true;
    *state = &yes;
    return start(state);
}

static int stop(void **state)
{
    (void)state;
    demo_server_stop(&demo);
    return 0;
}

/* --- things that are sent as they are --- */

enum ending { STAYS, CLOSES, ANY };

struct rude {
    const char *what, *bytes;
    size_t n;
    int status;       /* 0: the connection ends without an answer */
    const char *code; /* of the error in the body; NULL: the body is not ours, or none */
    enum ending ending;
    bool half_closes; /* the client says that nothing more will come */
};

#define SENT(text) text, sizeof(text) - 1

/* True when the server closed; whatever it still says before that is dropped. */
static bool is_closed(int fd)
{
    char rest[4096];
    struct pollfd event = {.fd = fd, .events = POLLIN};
    while (poll(&event, 1, DEADLINE_MS) == 1)
        if (recv(fd, rest, sizeof rest, 0) <= 0) return true;
    return false;
}

static void check_code(const struct rude *r, const struct client_answer *answer)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct json_object *body, *code = NULL;
    if (!json_doc_parse(&body, &alloc, &json_rules_request, "answer", answer->body, answer->n_body, &err))
        fail_msg("%s: %s: %s", r->what, err.text, answer->body);
    json_pointer_get(body, "/error/code", &code);
    const char *word = code ? json_object_get_string(code) : "none";
    if (strcmp(word, r->code) != 0) fail_msg("%s: code %s, wanted %s: %s", r->what, word, r->code, answer->body);
    json_object_put(body);
}

static void try_rude(const struct rude *r)
{
    struct client_answer answer;
    int fd = client_connect(demo.port);
    client_send(fd, r->bytes, r->n);
    if (r->half_closes) shutdown(fd, SHUT_WR);
    client_read(fd, &answer);
    if (answer.status != r->status)
        fail_msg("%s: status %d, wanted %d: %s", r->what, answer.status, r->status, answer.body ? answer.body : "");
    if (r->code) check_code(r, &answer);
    if (r->code && !client_answer_header(&answer, "x-request-id")) fail_msg("%s: no x-request-id", r->what);
    if (r->ending == CLOSES && !is_closed(fd)) fail_msg("%s: the connection stays", r->what);
    client_answer_free(&answer);
    if (r->ending == STAYS) { /* and is good for another request */
        client_get(fd, "/health", NULL);
        client_read(fd, &answer);
        if (answer.status != 200) fail_msg("%s: the connection is of no use any more", r->what);
        client_answer_free(&answer);
    }
    close(fd);
}

static void try_all(const struct rude *all, size_t n)
{
    for (size_t i = 0; i < n; i++) try_rude(&all[i]);
    print_message("%zu kinds\n", n);
}

#define BODY "{" HI ",\"max_tokens\":1}" /* 60 bytes */
#define LENGTH "Content-Length: 60\r\n"
static_assert(sizeof BODY - 1 == 60, "the length that is announced");

static void halves_are_dropped(void **state)
{
    (void)state;
    static const struct rude all[] = {
        {"nothing at all", SENT(""), 0, NULL, CLOSES, true},
        {"half a request line", SENT("POST /v1/ch"), 0, NULL, CLOSES, true},
        {"half a header", SENT("POST " CHAT " HTTP/1.1\r\nHost: local"), 0, NULL, CLOSES, true},
        {"headers without their end", SENT(POST_CHAT LENGTH), 0, NULL, CLOSES, true},
        {"no body", SENT(POST_CHAT LENGTH "\r\n"), 0, NULL, CLOSES, true},
        {"half a body", SENT(POST_CHAT LENGTH "\r\n{" HI), 0, NULL, CLOSES, true},
        {"a length beyond the body", SENT(POST_CHAT "Content-Length: 70\r\n\r\n" BODY), 0, NULL, CLOSES, true},
        {"half a chunk", SENT(POST_CHAT "Transfer-Encoding: chunked\r\n\r\n3c\r\n{" HI), 0, NULL, CLOSES, true},
        {"chunks without an end", SENT(POST_CHAT "Transfer-Encoding: chunked\r\n\r\n3c\r\n" BODY "\r\n"), 0, NULL,
         CLOSES, true},
        {"a TLS greeting", SENT("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00"), 0, NULL, CLOSES,
         true},
        {"line ends only", SENT("\r\n\r\n\r\n\r\n"), 0, NULL, CLOSES, true},
    };
    try_all(all, sizeof all / sizeof *all);
}

/* A length that is not one number, said once, is refused before anything of the body is looked at, and the connection
 * ends: what follows could be anything. */
static void lengths_are_believed_only_when_clear(void **state)
{
    (void)state;
#define CHUNKED POST_CHAT "Transfer-Encoding: chunked\r\n\r\n"
    static const struct rude all[] = {
        {"a length in letters", SENT(POST_CHAT "Content-Length: abc\r\n\r\n" BODY), 400, NULL, CLOSES, false},
        {"a negative length", SENT(POST_CHAT "Content-Length: -1\r\n\r\n" BODY), 400, NULL, CLOSES, false},
        {"a length with a sign", SENT(POST_CHAT "Content-Length: +60\r\n\r\n" BODY), 400, NULL, CLOSES, false},
        {"a hexadecimal length", SENT(POST_CHAT "Content-Length: 0x3c\r\n\r\n" BODY), 400, NULL, CLOSES, false},
        {"two numbers", SENT(POST_CHAT "Content-Length: 60, 60\r\n\r\n" BODY), 400, NULL, CLOSES, false},
        {"beyond 64 bits", SENT(POST_CHAT "Content-Length: 99999999999999999999999\r\n\r\n" BODY), 413, NULL, CLOSES,
         false},
        {"64 bits", SENT(POST_CHAT "Content-Length: 18446744073709551615\r\n\r\n" BODY), 413, "request_too_large",
         CLOSES, false},
        {"more than is allowed", SENT(POST_CHAT "Content-Length: 268435456\r\n\r\n"), 413, "request_too_large", CLOSES,
         false},
        {"two lengths", SENT(POST_CHAT LENGTH "Content-Length: 5\r\n\r\n" BODY), 400, "invalid_request", CLOSES, false},
        {"one length twice", SENT(POST_CHAT LENGTH LENGTH "\r\n" BODY), 400, "invalid_request", CLOSES, false},
        {"a length and chunks", SENT(POST_CHAT LENGTH "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400,
         "invalid_request", CLOSES, false},
        {"two codings", SENT(POST_CHAT "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
         400, "invalid_request", CLOSES, false},
        {"a compressed transfer", SENT(POST_CHAT "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 400,
         "invalid_request", CLOSES, false},
        {"an unknown coding", SENT(POST_CHAT "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), 400, "invalid_request",
         CLOSES, false},
        {"a length too short for the JSON", SENT(POST_CHAT "Content-Length: 56\r\n\r\n" BODY), 400, "invalid_json", ANY,
         false},
        {"chunks", SENT(CHUNKED "3c\r\n" BODY "\r\n0\r\n\r\n"), 200, NULL, STAYS, false},
        {"chunks with names and trailers", SENT(CHUNKED "3c;a=\"b\"\r\n" BODY "\r\n0\r\nX-Sum: 1\r\n\r\n"), 200, NULL,
         STAYS, false},
        {"a chunk of no number", SENT(CHUNKED "zz\r\n" BODY), 400, NULL, CLOSES, false},
        {"a negative chunk", SENT(CHUNKED "-3c\r\n" BODY), 400, NULL, CLOSES, false},
        {"a chunk beyond 64 bits", SENT(CHUNKED "fffffffffffffffff\r\n" BODY), 413, NULL, CLOSES, false},
        {"a chunk longer than it says", SENT(CHUNKED "3c\r\n" BODY "XX0\r\n\r\n"), 400, NULL, CLOSES, false},
    };
    try_all(all, sizeof all / sizeof *all);
}

static void heads_have_limits(void **state)
{
    (void)state;
    enum { ROOM = 1 << 20 };
    static const struct {
        const char *what, *before, *repeated, *after;
        size_t times;
        int status;
        const char *code;
    } all[] = {
        {"a path of 17 KiB", "GET /", "a", " HTTP/1.1\r\n" HOST "\r\n", 17 << 10, 431, "headers_too_large"},
        {"a path of 600 KiB", "GET /", "a", " HTTP/1.1\r\n" HOST "\r\n", 600 << 10, 414, NULL},
        {"a header of 60 KiB", "GET /health HTTP/1.1\r\n" HOST "X: ", "a", "\r\n\r\n", 60 << 10, 200, NULL},
        {"a header of 66 KiB", "GET /health HTTP/1.1\r\n" HOST "X: ", "a", "\r\n\r\n", 66 << 10, 431,
         "headers_too_large"},
        {"a header of 600 KiB", "GET /health HTTP/1.1\r\n" HOST "X: ", "a", "\r\n\r\n", 600 << 10, 431, NULL},
        {"100 headers", "GET /health HTTP/1.1\r\n" HOST, "X: a\r\n", "\r\n", 99, 200, NULL},
        {"101 headers", "GET /health HTTP/1.1\r\n" HOST, "X: a\r\n", "\r\n", 100, 431, "headers_too_large"},
        {"10,000 headers", "GET /health HTTP/1.1\r\n" HOST, "X: a\r\n", "\r\n", 10000, 431, NULL},
        {"a method of 5 KiB", "", "F", " /health HTTP/1.1\r\n" HOST "\r\n", 5 << 10, 405, "method_not_allowed"},
    };
    char *text = malloc(ROOM);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].before), each = strlen(all[i].repeated);
        assert_true(n + each * all[i].times + strlen(all[i].after) < ROOM);
        memcpy(text, all[i].before, n);
        for (size_t k = 0; k < all[i].times; k++, n += each) memcpy(text + n, all[i].repeated, each);
        memcpy(text + n, all[i].after, strlen(all[i].after));
        n += strlen(all[i].after);
        const struct rude r = {all[i].what, text, n, all[i].status, all[i].code, ANY, false};
        try_rude(&r);
    }
    free(text);
}

static void odd_heads_are_answered(void **state)
{
    (void)state;
#define GET "GET /health HTTP/1.1\r\n" HOST
    static const struct rude all[] = {
        {"no HTTP at all", SENT("hello\r\n\r\n"), 0, NULL, CLOSES, true},
        {"HTTP/0.9", SENT("GET /health\r\n\r\n"), 400, NULL, CLOSES, false},
        {"HTTP/1.0", SENT("GET /health HTTP/1.0\r\n\r\n"), 200, NULL, CLOSES, false},
        {"HTTP/2", SENT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, NULL, CLOSES, false},
        {"a header without a colon", SENT(GET "nonsense\r\n\r\n"), 400, NULL, CLOSES, false},
        {"a NUL in a header", SENT(GET "X: a\0b\r\n\r\n"), 200, NULL, STAYS, false},
        {"bytes that are not UTF-8 in a header", SENT(GET "X: \xff\xfe\r\n\r\n"), 200, NULL, STAYS, false},
        {"bytes that are not UTF-8 in a path", SENT("GET /\xff\xfe HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found", STAYS,
         false},
        {"the same, escaped", SENT("GET /%ff%fe HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found", STAYS, false},
        {"an escaped NUL in a path", SENT("GET /health%00/x HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found", STAYS, false},
        {"a control character in a path", SENT("GET /hea\001lth HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found", STAYS,
         false},
        {"half an escape", SENT("GET /health%2 HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found", STAYS, false},
        {"an escaped letter", SENT("GET /h%65alth HTTP/1.1\r\n" HOST "\r\n"), 200, NULL, STAYS, false},
        {"dots", SENT("GET /../../etc/passwd HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found", STAYS, false},
        {"no Host", SENT("GET /health HTTP/1.1\r\n\r\n"), 400, "invalid_request", ANY, false},
        {"a Host with a space in front of the colon", SENT("GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n"), 400,
         "invalid_request", ANY, false},
        {"two Hosts", SENT(GET HOST "\r\n"), 400, "invalid_request", ANY, false},
        {"another server's address", SENT("GET http://localhost/health HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found",
         STAYS, false},
        {"an upgrade", SENT(GET "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), 200, NULL, STAYS, false},
        {"a GET with a body", SENT(GET "Content-Length: 3\r\n\r\nabc"), 200, NULL, STAYS, false},
        {"an unknown method", SENT("FOO /health HTTP/1.1\r\n" HOST "\r\n"), 405, "method_not_allowed", STAYS, false},
        {"a method in small letters", SENT("get /health HTTP/1.1\r\n" HOST "\r\n"), 405, "method_not_allowed", STAYS,
         false},
        {"PUT with a body", SENT("PUT " CHAT " HTTP/1.1\r\n" HOST LENGTH "\r\n" BODY), 405, "method_not_allowed", STAYS,
         false},
        {"CONNECT", SENT("CONNECT localhost:80 HTTP/1.1\r\n" HOST "\r\n"), 404, "not_found", ANY, false},
        {"TRACE", SENT("TRACE /health HTTP/1.1\r\n" HOST "\r\n"), 405, "method_not_allowed", STAYS, false},
        {"OPTIONS without an origin", SENT("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"), 204, NULL, STAYS, false},
        {"OPTIONS from elsewhere",
         SENT("OPTIONS " CHAT " HTTP/1.1\r\n" HOST "Origin: https://evil.example\r\n"
              "Access-Control-Request-Method: POST\r\n\r\n"),
         403, "none", STAYS, false},
        {"a GET of what takes POST", SENT("GET " CHAT " HTTP/1.1\r\n" HOST "\r\n"), 405, "method_not_allowed", STAYS,
         false},
        {"what other servers have", SENT("GET /v1/files HTTP/1.1\r\n" HOST "\r\n"), 400, "unsupported_endpoint", STAYS,
         false},
        {"another site in the browser", SENT(GET "Sec-Fetch-Site: cross-site\r\n\r\n"), 403, "none", STAYS, false},
    };
    try_all(all, sizeof all / sizeof *all);
}

/* HEAD is a GET without its body, and the length says what the body would have been. */
static void a_head_has_no_body(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int status;
    } all[] = {{"/", 200}, {"/health", 200}, {"/v1/models", 200}, {"/stats", 200}, {CHAT, 405}, {"/nothing", 404}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char head[256], rest[8] = "";
        snprintf(head, sizeof head, "HEAD %s HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", all[i].path);
        int fd = client_connect(demo.port);
        client_send_text(fd, head);
        char text[4096];
        size_t n = 0;
        for (ssize_t got; n + 1 < sizeof text && (got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0;)
            n += (size_t)got;
        text[n] = 0;
        snprintf(rest, sizeof rest, "%.7s", n > 4 ? text + n - 4 : text);
        assert_int_equal(atoi(text + 9), all[i].status);
        assert_string_equal(rest, "\r\n\r\n"); /* the end of the head is the end of it all */
        close(fd);
    }
}

static void hosts_of_others_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        int status;
    } all[] = {
        {"localhost", 200},
        {"localhost:80", 200},
        {"LOCALHOST:8080", 200},
        {"127.0.0.1", 200},
        {"127.0.0.1:1", 200},
        {"[::1]", 200},
        {"[::1]:65535", 200},
        {"evil.example", 403},
        {"evil.example:8080", 403},
        {"localhost.evil.example", 403},
        {"127.0.0.1.evil.example", 403},
        {"evil.example#localhost", 403},
        {"localhost:80@evil.example", 403},
        {"user@localhost", 403},
        {"localhost:", 403},
        {"localhost:x", 403},
        {"[::1", 403},
        {"[::1]x", 403},
        {"[::1]:", 403},
        {"", 403},
        {":80", 403},
        {"localhost,evil.example", 403},
        {"0.0.0.0", 403},
        {"8.8.8.8", 403},
        {"[2001:db8::1]", 403},
        {"0x7f000001", 403},
        {"\xff\xfe", 403},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        static const char *const targets[] = {"GET /health", "GET /stats", ("POST " CHAT)};
        for (size_t k = 0; k < 3; k++) {
            char head[512];
            struct client_answer answer;
            int fd = client_connect(demo.port);
            int wanted = all[i].status == 200 && k == 2 ? 400 : all[i].status; /* the last has no body */
            snprintf(head, sizeof head, "%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", targets[k],
                     all[i].host);
            client_send_text(fd, head);
            client_read(fd, &answer);
            if (answer.status != wanted)
                fail_msg("%s for host '%s': status %d, wanted %d", targets[k], all[i].host, answer.status, wanted);
            client_answer_free(&answer);
            close(fd);
        }
    }
}

/* --- bodies --- */

static void bodies_that_are_no_json_are_refused(void **state)
{
    (void)state;
#define CONTENT(text) "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]}"
    static const struct {
        const char *what, *bytes;
        size_t n;
        int status;
    } all[] = {
        {"no UTF-8", SENT(CONTENT("\xff\xfe")), 400},
        {"half a character", SENT(CONTENT("\xe6\x97")), 400},
        {"an overlong slash", SENT(CONTENT("\xc0\xaf")), 400},
        {"a surrogate in UTF-8", SENT(CONTENT("\xed\xa0\x80")), 400},
        {"beyond Unicode", SENT(CONTENT("\xf4\x90\x80\x80")), 400},
        {"a NUL in a string", SENT(CONTENT("a\0b")), 400},
        {"a line end in a string", SENT(CONTENT("a\nb")), 400},
        {"an escaped NUL", SENT(CONTENT("a\\u0000b")), 200},
        {"half a pair of surrogates", SENT(CONTENT("\\ud800")), 200},
        {"a mark of the byte order", SENT("\xef\xbb\xbf" CONTENT("hi")), 200},
        {"two marks of the byte order", SENT("\xef\xbb\xbf\xef\xbb\xbf" CONTENT("hi")), 400},
        {"UTF-16", SENT("\xff\xfe{\0}\0"), 400},
        {"a NUL behind it", SENT(CONTENT("hi") "\0"), 400},
        {"something behind it", SENT(CONTENT("hi") "{}"), 400},
        {"blanks around it", SENT(" \r\n\t" CONTENT("hi") "\r\n"), 200},
        {"a comma too many", SENT("{" HI ",}"), 400},
        {"a comment", SENT("{/* */" HI "}"), 400},
        {"NaN", SENT("{" HI ",\"temperature\":NaN}"), 400},
        {"a number without end", SENT("{" HI ",\"temperature\":1e999}"), 400},
        {"a name twice: the last one counts", SENT("{\"max_tokens\":\"x\"," HI ",\"max_tokens\":1}"), 200},
        {"single quotes", SENT("{'messages':[]}"), 400},
        {"a list", SENT("[]"), 400},
        {"null", SENT("null"), 400},
        {"text", SENT("hello"), 400},
        {"a form", SENT("messages=hi"), 400},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char head[256];
        struct client_answer answer;
        int fd = client_connect(demo.port);
        snprintf(head, sizeof head, POST_CHAT "Content-Length: %zu\r\n\r\n", all[i].n);
        client_send_text(fd, head);
        client_send(fd, all[i].bytes, all[i].n);
        client_read(fd, &answer);
        if (answer.status != all[i].status)
            fail_msg("%s: status %d, wanted %d: %s", all[i].what, answer.status, all[i].status, answer.body);
        const struct rude r = {.what = all[i].what, .code = "invalid_json"};
        bool is_about_json = strcmp(all[i].what, "a number without end") != 0;
        if (answer.status == 400 && is_about_json) check_code(&r, &answer);
        client_answer_free(&answer);
        close(fd);
    }
}

static char *nested(size_t depth)
{
    char *json = malloc(4 * depth + 128);
    size_t n = (size_t)sprintf(json, "{" HI ",\"max_tokens\":1,\"metadata\":");
    memset(json + n, '[', depth);
    memset(json + n + depth, ']', depth);
    memcpy(json + n + 2 * depth, "}", 2);
    return json;
}

static void sizes_have_limits(void **state)
{
    (void)state;
    static const struct {
        size_t depth;
        int status;
    } depths[] = {{127, 200}, {128, 400}, {100000, 400}};
    for (size_t i = 0; i < 3; i++) {
        char *json = nested(depths[i].depth);
        struct client_answer answer = client_ask(demo.port, CHAT, json);
        if (answer.status != depths[i].status)
            fail_msg("%zu levels: status %d: %s", depths[i].depth, answer.status, answer.body);
        client_answer_free(&answer);
        free(json);
    }
    static const struct {
        const char *what, *header;
        int status;
        const char *code;
    } kinds[] = {
        {"compressed", "Content-Encoding: gzip\r\n", 415, "unsupported_media_type"},
        {"compressed twice", "Content-Encoding: identity, gzip\r\n", 415, "unsupported_media_type"},
        {"plain", "Content-Encoding: identity\r\n", 200, NULL},
    };
    for (size_t i = 0; i < 3; i++) {
        char text[512];
        int n = snprintf(text, sizeof text, POST_CHAT LENGTH "%s\r\n" BODY, kinds[i].header);
        const struct rude r = {kinds[i].what, text, (size_t)n, kinds[i].status, kinds[i].code, STAYS, false};
        try_rude(&r);
    }
    static const char *const types[] = {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                                        "application/jsonp", ""};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[512];
        int n = snprintf(text, sizeof text, "POST " CHAT " HTTP/1.1\r\n" HOST "Content-Type: %s\r\n" LENGTH "\r\n" BODY,
                         types[i]);
        const struct rude r = {types[i], text, (size_t)n, 415, "unsupported_media_type", STAYS, false};
        try_rude(&r);
    }
}

/* Bodies at the limit and beyond, with a length and in chunks. What is refused may be cut off while it is still being
 * sent, if there is more than a megabyte of it. */
static void bodies_have_a_limit(void **state)
{
    (void)state;
    enum { BLOCK = 64 << 10 };
    static const struct {
        size_t bytes;
        bool chunked;
        int status, or_status;
    } all[] = {
        {BODY_MAX, false, 400, 400}, /* blanks only: read to the end, and no JSON */
        {BODY_MAX, true, 400, 400},      {BODY_MAX + 1, false, 413, 413}, {BODY_MAX + BLOCK, true, 413, 413},
        {8 * BODY_MAX, false, 413, 413}, {8 * BODY_MAX, true, 0, 413},
    };
    char *blanks = malloc(BLOCK);
    memset(blanks, ' ', BLOCK);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char head[256];
        struct client_answer answer;
        int fd = client_connect(demo.port);
        if (all[i].chunked)
            client_send_text(fd, POST_CHAT "Transfer-Encoding: chunked\r\n\r\n");
        else
            snprintf(head, sizeof head, POST_CHAT "Content-Length: %zu\r\n\r\n", all[i].bytes),
                client_send_text(fd, head);
        for (size_t at = 0; at < all[i].bytes;) {
            size_t n = all[i].bytes - at < BLOCK ? all[i].bytes - at : BLOCK;
            snprintf(head, sizeof head, "%zx\r\n", n);
            if (all[i].chunked) client_send_text(fd, head);
            client_send(fd, blanks, n);
            if (all[i].chunked) client_send_text(fd, "\r\n");
            at += n;
        }
        if (all[i].chunked) client_send_text(fd, "0\r\n\r\n");
        client_read(fd, &answer);
        if (answer.status != all[i].status && answer.status != all[i].or_status)
            fail_msg("%zu bytes%s: status %d", all[i].bytes, all[i].chunked ? " in chunks" : "", answer.status);
        client_answer_free(&answer);
        close(fd);
    }
    free(blanks);
}

/* --- one connection, many requests --- */

static void a_connection_is_used_again(void **state)
{
    (void)state;
    int fd = client_connect(demo.port);
    for (int i = 0; i < 40; i++) {
        struct client_answer answer;
        int wanted = 200;
        switch (i % 4) {
        case 0: client_get(fd, "/health", NULL); break;
        case 1: client_post(fd, CHAT, BODY, NULL); break;
        case 2: client_post(fd, CHAT, "{" HI ",\"max_tokens\":3,\"stream\":true}", NULL); break;
        default: client_post(fd, CHAT, "{", NULL); wanted = 400;
        }
        client_read(fd, &answer);
        if (answer.status != wanted || answer.is_cut) fail_msg("request %d: status %d", i, answer.status);
        client_answer_free(&answer);
    }
    assert_int_equal(httpd_connections(demo.server->http), 1);
    close(fd);
}

/* Requests that do not wait for answers are answered in their order. */
static void requests_in_a_row_are_answered_in_order(void **state)
{
    (void)state;
    enum { N = 24 };
    int fd = client_connect(demo.port);
    for (int i = 0; i < N; i++) {
        char extra[64];
        snprintf(extra, sizeof extra, "x-request-id: row-%d\r\n", i);
        if (i % 3 == 0)
            client_get(fd, "/v1/models", extra);
        else
            client_post(fd, CHAT, i % 3 == 1 ? BODY : "{", extra);
    }
    for (int i = 0; i < N; i++) {
        char id[16];
        struct client_answer answer;
        client_read(fd, &answer);
        snprintf(id, sizeof id, "row-%d", i);
        assert_int_equal(answer.status, i % 3 == 2 ? 400 : 200);
        assert_string_equal(client_answer_header(&answer, "x-request-id"), id);
        client_answer_free(&answer);
    }
    close(fd);
}

static void ids_of_clients_are_kept_if_they_are_sane(void **state)
{
    (void)state;
    char long_id[130], extra[256];
    memset(long_id, 'a', 129);
    long_id[129] = 0;
    const char *const ids[] = {"a", "with space", long_id, "caf\xc3\xa9", ""};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct client_answer answer;
        int fd = client_connect(demo.port);
        snprintf(extra, sizeof extra, "x-request-id: %s\r\n", ids[i]);
        client_get(fd, "/health", extra);
        client_read(fd, &answer);
        const char *said = client_answer_header(&answer, "x-request-id");
        if (i == 0)
            assert_string_equal(said, "a");
        else
            assert_memory_equal(said, "req_", 4);
        client_answer_free(&answer);
        close(fd);
    }
}

/* --- slow and silent --- */

/* One byte in each packet, as fast as they go. */
static void bytes_may_come_one_by_one(void **state)
{
    (void)state;
    static const char request[] = POST_CHAT LENGTH "\r\n" BODY;
    struct client_answer answer;
    int fd = client_connect(demo.port);
    for (size_t i = 0; i + 1 < sizeof request; i++) client_send(fd, request + i, 1);
    client_read(fd, &answer);
    assert_int_equal(answer.status, 200);
    client_answer_free(&answer);
    close(fd);
}

/* Whoever says nothing, or says a head too slowly to ever come to its end, is cut off. */
static void the_silent_are_cut_off(void **state)
{
    (void)state;
    static const char *const begins[] = {"", "GET /hea", POST_CHAT LENGTH, POST_CHAT LENGTH "\r\n{" HI,
                                         POST_CHAT "Transfer-Encoding: chunked\r\n\r\n3c\r\n{" HI};
    enum { N = sizeof begins / sizeof *begins };
    int fds[N + 1];
    for (int i = 0; i < N; i++) {
        fds[i] = client_connect(demo.port);
        client_send_text(fds[i], begins[i]);
    }
    fds[N] = client_connect(demo.port); /* silent after a good request */
    struct client_answer answer;
    client_get(fds[N], "/health", NULL);
    client_read(fds[N], &answer);
    client_answer_free(&answer);
    for (int i = 0; i <= N; i++) {
        if (!is_closed(fds[i])) fail_msg("silent client %d stays", i);
        close(fds[i]);
    }
    int fd = client_connect(demo.port);
    int64_t until = now_ms() + DEADLINE_MS;
    client_send_text(fd, "GET /health HTTP/1.1\r\n" HOST "X: ");
    struct pollfd event = {.fd = fd, .events = POLLIN};
    while (poll(&event, 1, 50) == 0) { /* a byte now and then, for ever */
        client_send_text(fd, "a");
        assert_true(now_ms() < until);
    }
    close(fd);
}

/* A client that reads nothing of a long stream holds up nobody, and is given up. */
static void a_client_that_does_not_read_is_given_up(void **state)
{
    (void)state;
    int fd = client_connect(demo.port), little = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    client_post(fd, CHAT,
                "{" HI ",\"stream\":true,\"ignore_eos\":true,\"max_tokens\":4000,\"logprobs\":true,"
                "\"top_logprobs\":20}",
                NULL);
    must_answer(CHAT, BODY);
    wait_for("nothing is left of a client that does not read", is_idle);
    close(fd);
}

/* --- clients that leave --- */

enum phase { QUEUED, PREFILL, DECODE };

static char *long_prompt(size_t words, bool streams, const char *id)
{
    size_t room = 4 * words + 512;
    char *json = malloc(room);
    size_t n = (size_t)snprintf(json, room,
                                "{\"ignore_eos\":true,\"max_tokens\":3000,\"stream\":%s,\"messages\":[{"
                                "\"role\":\"user\",\"content\":\"%s ",
                                streams ? "true" : "false", id);
    for (size_t i = 0; i < words; i++) n += (size_t)snprintf(json + n, room - n, "%zu ", (i * 7) % 10);
    snprintf(json + n, room - n, "\"}]}");
    return json;
}

static bool one_runs(void)
{
    return stats().scheduler.n_running == 1;
}

static bool two_run(void)
{
    return stats().scheduler.n_running == 2;
}

static bool one_waits(void)
{
    return stats().n_open == 3 && stats().scheduler.n_running == 2;
}

static uint64_t passes_before;

static bool many_passes_are_done(void)
{
    return stats().scheduler.n_passes > passes_before + 10;
}

static uint64_t cancelled(void)
{
    return stats().scheduler.n_done[STOP_CANCELLED];
}

static void leave(int fd, int how)
{
    const struct linger hard = {.l_onoff = 1};
    if (how == 1) setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* a reset */
    if (how == 2) {                                                          /* says that it is done, and stays */
        shutdown(fd, SHUT_WR);
        assert_true(is_closed(fd));
    }
    close(fd);
}

static void start_filler(int *fd)
{
    char *json = long_prompt(1, true, "filler");
    *fd = client_connect(demo.port);
    client_post(*fd, CHAT, json, NULL);
    free(json);
}

/* Whether its request is in the phase: it may have got beyond it, while this machine did something else. */
static bool is_in(enum phase phase)
{
    switch (phase) {
    case QUEUED: return comes_to(one_waits);
    case PREFILL: return comes_to(one_runs);
    case DECODE: return comes_to(many_passes_are_done) && one_runs(); /* the prompt takes two or three */
    }
    return false;
}

static uint64_t count_done(const struct service_stats *s)
{
    uint64_t n = 0;
    for (int reason = 0; reason <= STOP_ERROR; reason++) n += s->scheduler.n_done[reason];
    return n;
}

/* Whether an answer has come to an end since then, or none is left. Both are told together, at the end of a pass. */
static bool has_changed(uint64_t n_done)
{
    struct service_stats s = stats();
    return count_done(&s) != n_done || s.scheduler.n_running + s.scheduler.n_waiting == 0;
}

/* A client leaves. How long it took until its work was given up, in ms; negative: it had come to its end by itself. */
static int64_t time_departure(int fd, int how)
{
    struct service_stats s = stats();
    uint64_t before = s.scheduler.n_done[STOP_CANCELLED], n_done = count_done(&s);
    int64_t start = now_ms();
    leave(fd, how);
    while (!has_changed(n_done)) {
        if (now_ms() > start + DEADLINE_MS) fail_msg("nobody notices");
        clock_sleep_ns(clock_real(), 1000000);
    }
    return cancelled() > before ? now_ms() - start : -1;
}

/* One client in one phase leaves. How long it took to be noticed, in ms; negative: we were late for the phase. */
static int64_t leave_in(enum phase phase, bool streams, int how)
{
    int fillers[2] = {-1, -1};
    int64_t took = -1;
    bool is_ready = true;
    for (int i = 0; phase == QUEUED && i < 2 && is_ready; i++) {
        start_filler(&fillers[i]);
        is_ready = comes_to(i == 0 ? one_runs : two_run);
    }
    if (is_ready) {
        char *json = long_prompt(phase == PREFILL ? LONG_WORDS : 1, streams, "leaver");
        passes_before = stats().scheduler.n_passes;
        int fd = client_connect(demo.port);
        client_post(fd, CHAT, json, NULL);
        free(json);
        is_ready = is_in(phase);
        took = time_departure(fd, how);
    }
    if (phase == PREFILL && stats().scheduler.n_passes - passes_before >= LONG_WORDS / PASS_ROWS) is_ready = false;
    for (int i = 0; i < 2; i++)
        if (fillers[i] >= 0) close(fillers[i]);
    wait_for("all work stops", is_idle);
    return is_ready ? took : -1;
}

static void whoever_leaves_is_noticed(void **state)
{
    (void)state;
    static const char *const phases[] = {"queued", "prefill", "decode"}, *const hows[] = {"close", "reset", "half"};
    for (enum phase phase = QUEUED; phase <= DECODE; phase++)
        for (int streams = 0; streams < 2; streams++)
            for (int how = 0; how < 3; how++) {
                int64_t ms = -1;
                for (int tries = 0; ms < 0 && tries < 20; tries++) ms = leave_in(phase, streams, how);
                assert_true(ms >= 0);
                print_message("%s, %s, %s: noticed after %d ms\n", phases[phase], streams ? "stream" : "whole",
                              hows[how], (int)ms);
            }
}

/* Those who leave while their body is read, or before their answer is written, cost nothing. */
static void crowds_come_and_go(void **state)
{
    (void)state;
    enum { N = 200 };
    static const char request[] = POST_CHAT LENGTH "\r\n" BODY;
    int64_t bytes = (int64_t)atomic_load(&demo.alloc.live_bytes);
    for (int round = 0; round < 3; round++) {
        int fds[N];
        for (int i = 0; i < N; i++) {
            size_t n = (size_t)(i * 7919 % (int)sizeof request);
            fds[i] = client_connect(demo.port);
            client_send(fds[i], request, n);
        }
        for (int i = 0; i < N; i++) leave(fds[i], i % 2);
        wait_for("the crowd is gone", is_idle);
    }
    /* What is kept on purpose (prefixes, responses) is counted in hundreds of kilobytes. */
    int64_t more = (int64_t)atomic_load(&demo.alloc.live_bytes) - bytes;
    print_message("%d bytes more are held after %d clients\n", (int)more, 3 * N);
    assert_true(more < (4 << 20));
}

#define POLITE(test) cmocka_unit_test_teardown(test, settle)

int main(void)
{
    const struct CMUnitTest tests[] = {
        POLITE(halves_are_dropped),
        POLITE(lengths_are_believed_only_when_clear),
        POLITE(heads_have_limits),
        POLITE(odd_heads_are_answered),
        POLITE(a_head_has_no_body),
        POLITE(hosts_of_others_are_refused),
        POLITE(bodies_that_are_no_json_are_refused),
        POLITE(sizes_have_limits),
        POLITE(bodies_have_a_limit),
        POLITE(a_connection_is_used_again),
        POLITE(requests_in_a_row_are_answered_in_order),
        POLITE(ids_of_clients_are_kept_if_they_are_sane),
        POLITE(bytes_may_come_one_by_one),
        POLITE(whoever_leaves_is_noticed),
        POLITE(crowds_come_and_go),
    };
    const struct CMUnitTest impatient[] = {
        POLITE(the_silent_are_cut_off),
        POLITE(a_client_that_does_not_read_is_given_up),
    };
    int n_failed = cmocka_run_group_tests(tests, start, stop);
    return n_failed + cmocka_run_group_tests(impatient, start_impatient, stop);
}
