#ifndef SUPPORT_CLIENT_H
#define SUPPORT_CLIENT_H
/* An HTTP client that can also be rude: what it sends is up to the test, byte by byte. Any failure to connect, and any
 * wait beyond 30 seconds, fails the test. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client_answer {
    int status; /* 0: the connection ended before an answer */
    char *head; /* with the status line; NUL-terminated, as is the body */
    char *body; /* without chunk marks */
    size_t n_body;
    bool is_cut; /* the connection ended inside the answer */
};

int client_connect(uint16_t port);
void client_send(int fd, const char *text, size_t bytes); /* what the server does not take any more is lost */
void client_send_text(int fd, const char *text);

/* POST with a JSON body and the usual headers; `extra` are more header lines, each with its line end, or NULL. */
void client_post(int fd, const char *path, const char *json, const char *extra);
void client_get(int fd, const char *path, const char *extra);

/* Reads one answer. */
void client_read(int fd, struct client_answer *answer);

/* Reads until `text` was seen in what came so far, at most `ms`. */
bool client_read_until(int fd, const char *text, int ms);

/* All that comes until the server closes; malloc'ed. */
char *client_read_to_end(int fd);

void client_answer_free(struct client_answer *answer);

/* The value of a header in a static buffer, or NULL. */
const char *client_answer_header(const struct client_answer *answer, const char *name);

/* Connects, asks, reads, closes. */
struct client_answer client_ask(uint16_t port, const char *path, const char *json);

#endif
