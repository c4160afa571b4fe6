#include "support/client.h"

#include "support/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DEADLINE_MS = 30000 };

int client_connect(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) fail_msg("connect: %s", strerror(errno));
    return fd;
}

void client_send(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);
        if (n <= 0) return;
        text += n;
        bytes -= (size_t)n;
    }
}

void client_send_text(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

void client_post(int fd, const char *path, const char *json, const char *extra)
{
    char head[2048];
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
             path, strlen(json), extra ? extra : "");
    client_send_text(fd, head);
    client_send_text(fd, json);
}

void client_get(int fd, const char *path, const char *extra)
{
    char head[2048];
    snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, extra ? extra : "");
    client_send_text(fd, head);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One byte; -1: the end, -2: the time is over. */
static int next_byte(int fd, int64_t until)
{
    unsigned char byte;
    struct pollfd event = {.fd = fd, .events = POLLIN};
    int64_t left = until - now_ms();
    if (poll(&event, 1, left > 0 ? (int)left : 0) == 0) return -2;
    return recv(fd, &byte, 1, 0) == 1 ? byte : -1;
}

static int must_byte(int fd, int64_t until)
{
    int byte = next_byte(fd, until);
    if (byte == -2) fail_msg("no answer for %d s", DEADLINE_MS / 1000);
    return byte;
}

struct text {
    char *data;
    size_t n, room;
};

static void add(struct text *t, int byte)
{
    if (t->n + 2 > t->room) {
        t->room = t->room ? 2 * t->room : 1024;
        t->data = realloc(t->data, t->room);
    }
    t->data[t->n++] = (char)byte;
    t->data[t->n] = 0;
}

/* Up to and with a line end; false: the connection ended. */
static bool read_line(int fd, struct text *t, int64_t until)
{
    for (int byte; (byte = must_byte(fd, until)) >= 0;) {
        add(t, byte);
        if (byte == '\n') return true;
    }
    return false;
}

static bool read_bytes(int fd, struct text *t, size_t n, int64_t until)
{
    for (size_t i = 0; i < n; i++) {
        int byte = must_byte(fd, until);
        if (byte < 0) return false;
        add(t, byte);
    }
    return true;
}

static bool read_chunks(int fd, struct text *body, int64_t until)
{
    for (;;) {
        struct text line = {0}, end = {0};
        bool ok = read_line(fd, &line, until);
        size_t n = ok ? strtoull(line.data, NULL, 16) : 0;
        ok = ok && read_bytes(fd, body, n, until) && read_line(fd, &end, until);
        free(line.data);
        free(end.data);
        if (!ok || n == 0) return ok;
    }
}

const char *client_answer_header(const struct client_answer *answer, const char *name)
{
    static char value[1024];
    size_t n = strlen(name);
    for (const char *line = answer->head; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 2, "\r\n"), line + n + 2);
            return value;
        }
    return NULL;
}

void client_read(int fd, struct client_answer *answer)
{
    struct text head = {0}, body = {0};
    int64_t until = now_ms() + DEADLINE_MS;
    size_t at = 0;
    *answer = (struct client_answer){0};
    bool ok;
    do {
        at = head.n;
        ok = read_line(fd, &head, until);
    } while (ok && strcmp(head.data + at, "\r\n") != 0);
    answer->head = head.data;
    if (ok) answer->status = atoi(head.data + 9);
    if (!ok) return;
    const char *length = client_answer_header(answer, "Content-Length"), *coding;
    size_t n = length ? strtoull(length, NULL, 10) : 0;
    coding = client_answer_header(answer, "Transfer-Encoding");
    add(&body, 0);
    body.n = 0;
    if (coding)
        answer->is_cut = !read_chunks(fd, &body, until);
    else if (answer->status != 204)
        answer->is_cut = !read_bytes(fd, &body, n, until);
    answer->body = body.data;
    answer->n_body = body.n;
}

bool client_read_until(int fd, const char *text, int ms)
{
    struct text got = {0};
    int64_t until = now_ms() + ms;
    bool found = false;
    for (int byte; !found && now_ms() < until && (byte = next_byte(fd, until)) >= 0;) { /* there may always be more */
        add(&got, byte);
        found = byte == text[strlen(text) - 1] && strstr(got.data, text);
    }
    free(got.data);
    return found;
}

char *client_read_to_end(int fd)
{
    enum { STEP = 1 << 16 };
    size_t n = 0, room = STEP;
    char *text = malloc(room + 1);
    struct pollfd event = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (poll(&event, 1, DEADLINE_MS) == 0) fail_msg("nothing more comes for %d s", DEADLINE_MS / 1000);
        ssize_t got = recv(fd, text + n, room - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
        if (room - n < STEP) text = realloc(text, (room *= 2) + 1);
    }
    text[n] = 0;
    return text;
}

void client_answer_free(struct client_answer *answer)
{
    free(answer->head);
    free(answer->body);
    *answer = (struct client_answer){0};
}

struct client_answer client_ask(uint16_t port, const char *path, const char *json)
{
    struct client_answer answer;
    int fd = client_connect(port);
    if (json)
        client_post(fd, path, json, NULL);
    else
        client_get(fd, path, NULL);
    client_read(fd, &answer);
    close(fd);
    return answer;
}
