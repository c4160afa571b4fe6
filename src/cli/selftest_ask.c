#include "cli/selftest.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { PATIENCE_S = 30, PIECE_BYTES = 4096, HEAD_BYTES_MAX = 512 };

static bool failed(struct err *err, const char *path, const char *doing)
{
    bool is_late = errno == EAGAIN || errno == EWOULDBLOCK;
    return err_set(err, ERR_FAILED, "the server on the loopback, %s: %s: %s", path, doing,
                   is_late ? "nothing for 30 seconds" : strerror(errno));
}

static bool send_all(int fd, const char *path, const char *text, struct err *err)
{
    for (size_t bytes = strlen(text), done = 0; done < bytes;) {
        ssize_t n = send(fd, text + done, bytes - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return failed(err, path, "cannot ask");
        done += (size_t)n;
    }
    return true;
}

/* The oldest dialect, in which a body ends with its connection. */
static bool put_question(int fd, const char *path, const char *body, struct err *err)
{
    char head[HEAD_BYTES_MAX];
    snprintf(head, sizeof head,
             "%s %s HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             body ? "POST" : "GET", path, body ? strlen(body) : 0);
    return send_all(fd, path, head, err) && (!body || send_all(fd, path, body, err));
}

/* Takes the head away, which must say that all is well. False without an error: it is not whole yet. */
static bool strip_head(struct buf *answer, const char *path, struct err *err)
{
    const char *end = memmem(answer->data, answer->bytes, "\r\n\r\n", 4);
    if (!end) return false;
    const char *status = memchr(answer->data, ' ', answer->bytes);
    if (!status || strncmp(status, " 200 ", 5) != 0)
        return err_set(err, ERR_FAILED, "the server on the loopback, %s: answers %.200s", path, answer->data);
    size_t head = (size_t)(end + 4 - answer->data);
    memmove(answer->data, answer->data + head, answer->bytes - head + 1);
    answer->bytes -= head;
    return true;
}

static bool read_answer(struct buf *answer, int fd, const char *path, size_t bytes_max, struct err *err)
{
    bool is_body = false;
    char piece[PIECE_BYTES];
    struct err why = {0};
    for (;;) {
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(err, path, "no answer");
        if (n == 0) break;
        if (!buf_add(answer, piece, (size_t)n, err)) return false;
        if (!is_body) is_body = strip_head(answer, path, &why);
        if (why.kind) {
            *err = why;
            return false;
        }
        if (is_body && bytes_max && answer->bytes >= bytes_max) return true;
    }
    bool is_whole = is_body && !bytes_max;
    return is_whole ||
           err_set(err, ERR_FAILED, "the server on the loopback, %s: its answer ends early behind %zu bytes", path,
                   answer->bytes);
}

bool selftest_ask(struct buf *answer, uint16_t port, const char *path, const char *body, size_t bytes_max,
                  struct err *err)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return failed(err, path, "no socket");
    buf_clear(answer);
    bool ok = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
              connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (!ok) failed(err, path, "cannot reach it");
    ok = ok && put_question(fd, path, body, err) && read_answer(answer, fd, path, bytes_max, err);
    close(fd);
    return ok;
}
