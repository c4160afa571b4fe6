#include "support/fuzz_server.h"

#include "fmt/json_doc.h"
#include "run/service.h"
#include "serve/server.h"
#include <arpa/inet.h>
#include <errno.h>
#include <json-c/json_object.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DIR "models/demo"

enum { DEADLINE_MS = 20000, ANSWER_BYTES_MAX = 4 << 20, BODY_BYTES_MAX = 1 << 20 };

static struct {
    struct alloc alloc;
    struct config config;
    struct text_model model;
    struct sampling sampling;
    struct access_rules access;
    struct served_model served;
    struct service *service;
    struct server *server;
    int fd; /* kept open for one body after the other */
    char *answer;
} fuzz = {.fd = -1};

static void must(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "fuzz server: %s\n", what);
    abort();
}

static void drop_line(void *context, const char *line)
{
    (void)context;
    (void)line;
}

static void start(void)
{
    struct err err = {0};
    if (fuzz.server) return;
    must(config_read(&fuzz.config, &fuzz.alloc, file_system_real(), DIR, &err), err.text);
    must(text_model_open(&fuzz.model, &fuzz.alloc, file_system_real(), DIR, &fuzz.config, &err), err.text);
    fuzz.sampling = fuzz.model.defaults;
    fuzz.sampling.max_tokens = 64;
    fuzz.answer = malloc(ANSWER_BYTES_MAX);
    must(fuzz.answer, "no memory");
    snprintf(fuzz.access.bound_host, sizeof fuzz.access.bound_host, "127.0.0.1");
    const struct service_settings service = {
        .engine = engine_settings_default("/nonexistent"),
        .fs = file_system_real(),
        .model = &fuzz.model,
        .n_waiting_max = 8,
        .clock = clock_real(),
    };
    must(service_new(&fuzz.service, &fuzz.alloc, &service, &err), err.text);
    fuzz.served = (struct served_model){.name = "demo",
                                        .fingerprint = "weir-fuzz",
                                        .text = &fuzz.model,
                                        .service = fuzz.service,
                                        .sampling = &fuzz.sampling,
                                        .context_tokens = 4096};
    const struct server_settings settings = {
        .host = "127.0.0.1",
        .n_connections_max = 64,
        .body_bytes_max = BODY_BYTES_MAX,
        .queue_ns_max = INT64_C(60000000000),
        .silence_s = 10,
        .stall_s = 10,
        .keep_alive_ns = INT64_C(10000000000),
        .access = &fuzz.access,
        .models = &fuzz.served,
        .n_models = 1,
        .clock = clock_real(),
        .log = drop_line,
    };
    must(server_start(&fuzz.server, &fuzz.alloc, &settings, &err), err.text);
    while (service_state(fuzz.service, NULL) == SERVICE_LOADING) clock_sleep_ns(clock_real(), 1000000);
}

static int dial(void)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(server_port(fuzz.server))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "cannot connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* False: the server takes no more. */
static bool send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Bytes that were read; 0: the end. */
static size_t read_some(int fd, char *out, size_t room)
{
    struct pollfd event = {.fd = fd, .events = POLLIN};
    int ready;
    ssize_t n;
    do ready = poll(&event, 1, DEADLINE_MS); /* a fuzzer has an alarm clock */
    while (ready < 0 && errno == EINTR);
    must(ready == 1, "the server says nothing");
    do n = recv(fd, out, room, 0);
    while (n < 0 && errno == EINTR);
    return n > 0 ? (size_t)n : 0;
}

/* A whole answer with a Content-Length. Returns its status; 0: the connection ended before it. */
static int read_answer(int fd, const char **body, size_t *bytes)
{
    size_t n = 0, whole = SIZE_MAX;
    char *end = NULL;
    while (n < whole) {
        size_t more = read_some(fd, fuzz.answer + n, ANSWER_BYTES_MAX - 1 - n);
        if (more == 0) return 0;
        n += more;
        fuzz.answer[n] = 0;
        must(n + 1 < ANSWER_BYTES_MAX, "an answer that is too long");
        if (!end && (end = strstr(fuzz.answer, "\r\n\r\n"))) {
            const char *length = strstr(fuzz.answer, "Content-Length: ");
            must(length && length < end, "an answer without a length");
            whole = (size_t)(end + 4 - fuzz.answer) + strtoull(length + 16, NULL, 10);
        }
    }
    *body = end + 4;
    *bytes = n - (size_t)(end + 4 - fuzz.answer);
    return atoi(fuzz.answer + 9);
}

static void check_answer(int status, const char *body, size_t bytes)
{
    struct err err = {0};
    struct alloc alloc = {0};
    struct json_object *value = NULL;
    must(json_doc_parse(&value, &alloc, &json_rules_request, "answer", body, bytes, &err), err.text);
    must(json_object_is_type(value, json_type_object), "the answer is no object");
    struct json_object *error = json_object_object_get(value, "error");
    must((status >= 400) == (error != NULL), "an error and its status contradict each other");
    must(!error || json_object_get_string_len(json_object_object_get(error, "message")) > 5, "an error without words");
    must(status == 200 || status == 400 || status == 404 || status == 413 || status == 502, body);
    json_object_put(value);
}

static int ask(const char *head, const uint8_t *body, size_t bytes, const char **answer, size_t *n)
{
    int status = 0;
    /* A connection that was kept may have ended meanwhile, which is no fault. */
    for (int tries = 0; tries < 2 && status == 0; tries++) {
        if (fuzz.fd < 0) fuzz.fd = dial();
        if (send_all(fuzz.fd, head, strlen(head)) && send_all(fuzz.fd, body, bytes))
            status = read_answer(fuzz.fd, answer, n);
        if (status != 0 && !strstr(fuzz.answer, "Connection: close")) continue;
        close(fuzz.fd);
        fuzz.fd = -1;
    }
    return status;
}

void fuzz_server_post(const char *path, const uint8_t *body, size_t bytes)
{
    char head[512];
    const char *answer;
    size_t n;
    start();
    if (bytes >= BODY_BYTES_MAX) return;
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             path, bytes);
    int status = ask(head, body, bytes, &answer, &n);
    must(status != 0, "no answer");
    check_answer(status, answer, n);
}

void fuzz_server_send(const uint8_t *data, size_t bytes)
{
    const char *answer;
    size_t n, first = 0, more;
    start();
    int fd = dial();
    send_all(fd, data, bytes);
    shutdown(fd, SHUT_WR);
    while ((more = read_some(fd, fuzz.answer + first, first < 9 ? 9 - first : ANSWER_BYTES_MAX - first)) > 0)
        if (first < 9) first += more;
    must(first < 9 || memcmp(fuzz.answer, "HTTP/1.1 ", 9) == 0, "an answer that is not HTTP");
    close(fd);
    must(ask("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", NULL, 0, &answer, &n) == 503, "no sign of life");
}
