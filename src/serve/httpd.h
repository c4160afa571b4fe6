#ifndef SERVE_HTTPD_H
#define SERVE_HTTPD_H
/* The transport: HTTP/1.1 requests in, answers out, now or much later.
 *
 * One thread, the net thread, owns sockets and parsers. A second one, the watcher, sees clients that leave while
 * nothing is read from or written to them, and wakes whoever waits for a time. Requests are handed over twice: with
 * their headers (refuse here, before the body is read) and when they are whole. Whoever answers may do so from any
 * thread.
 *
 * An exchange is one request with its answer. It is counted: a thread that keeps one holds it. After its client left
 * it goes on existing and does nothing. The limits of httpd_settings hold before anything of a request is looked at:
 * sizes, counts, and how long a client may take. */
#include "base/buf.h"
#include "plat/clock.h"

struct httpd_server;
struct httpd_exchange;

struct httpd_handler {
    void *context;
    /* Net thread. The headers are there. To refuse, httpd_reply; the body is then dropped. */
    void (*head)(void *context, struct httpd_exchange *exchange);
    /* Net thread. All of it is there. Answer here, or wait (httpd_wait), or hold the exchange and do either later. */
    void (*request)(void *context, struct httpd_exchange *exchange);
    /* Any thread, the last thing that happens to an exchange: what was set with httpd_set_user goes. status 0: nothing
     * was answered. */
    void (*over)(void *context, struct httpd_exchange *exchange, unsigned status);
    /* Any thread: a line for the log. */
    void (*log)(void *context, const char *line);
};

struct httpd_settings {
    const char *host; /* a name or address */
    uint16_t port;    /* 0: any that is free */
    unsigned n_connections_max;
    unsigned n_per_address_max; /* 0: as many as there are */
    size_t body_bytes_max;
    unsigned silence_s; /* how long a client may say nothing, in front of and inside a request */
    unsigned stall_s;   /* how long it may read nothing of an answer */
    struct clock clock;
    struct httpd_handler handler;
};

enum { HTTPD_HEAD_BYTES_MAX = 64 << 10, HTTPD_LINE_BYTES_MAX = 16 << 10, HTTPD_HEADERS_MAX = 100 };

/* Listens and serves. A host that cannot be bound is ERR_USER. */
bool httpd_start(struct httpd_server **server, struct alloc *alloc, const struct httpd_settings *settings,
                 struct err *err) MUST_CHECK;

/* Accepts no more clients. Those that are there go on. */
void httpd_quiesce(struct httpd_server *server);

/* Waits a few seconds for what is answered to reach its clients, cuts what still goes on, and ends both threads. NULL
 * is fine. */
void httpd_stop(struct httpd_server *server);

uint16_t httpd_port(const struct httpd_server *server);
const char *httpd_address(const struct httpd_server *server); /* as a URL has it: "127.0.0.1", "[::1]" */
unsigned httpd_connections(struct httpd_server *server);

/* --- the request; strings live as long as the exchange --- */

const char *httpd_method(const struct httpd_exchange *exchange);
const char *httpd_path(const struct httpd_exchange *exchange); /* without the query */
const char *httpd_id(const struct httpd_exchange *exchange);   /* x-request-id: the client's, or ours */
const char *httpd_body(const struct httpd_exchange *exchange, size_t *bytes);
bool httpd_is_local(const struct httpd_exchange *exchange); /* the client is on this machine */
bool httpd_is_1_0(const struct httpd_exchange *exchange);

/* Net thread, inside head and request only; NULL: there is none. */
const char *httpd_header(const struct httpd_exchange *exchange, const char *name);

/* What is wrong with the request before anybody looked at its meaning; the handler says so in head or request. */
enum httpd_fault {
    HTTPD_FINE,
    HTTPD_BAD_FRAMING, /* lengths that contradict each other, or a transfer coding that is not known */
    HTTPD_BAD_HOST,    /* none, or two */
    HTTPD_HEAD_TOO_LARGE,
    HTTPD_BODY_TOO_LARGE,
};
enum httpd_fault httpd_fault(const struct httpd_exchange *exchange);

/* Whatever the handler wants to find again. */
void httpd_set_user(struct httpd_exchange *exchange, void *user);
void *httpd_user(const struct httpd_exchange *exchange);

void httpd_hold(struct httpd_exchange *exchange);
void httpd_release(struct httpd_exchange *exchange);

/* --- the answer: exactly one of httpd_reply and httpd_stream --- */

/* Before the answer. A second one of the same name is sent too. The value must be free of line breaks. */
void httpd_set_header(struct httpd_exchange *exchange, const char *name, const char *value);

/* A whole answer; the bytes of `body` change hands. Any thread. */
void httpd_reply(struct httpd_exchange *exchange, unsigned status, const char *content_type, struct buf *body);

enum httpd_flow {
    HTTPD_MORE, /* something was written, there may be more at once */
    HTTPD_WAIT, /* nothing now: httpd_wake, or *wake_ns, brings the next call */
    HTTPD_END,  /* the answer is complete; what was written is its last part */
    HTTPD_CUT,  /* the answer cannot be completed: the connection breaks off */
};

/* Something that an exchange waits for. All calls come from the net thread but `closed`, which comes from whoever
 * notices that the exchange is over or never gets to wait; and exactly once. */
struct httpd_work {
    void *context;
    /* Called when woken and when *wake_ns (INT64_MAX: never) has come, until it answers. */
    void (*poll)(void *context, struct httpd_exchange *exchange, int64_t *wake_ns);
    /* After httpd_stream: fills out[room] and sets *n. */
    enum httpd_flow (*read)(void *context, char *out, size_t room, size_t *n, int64_t *wake_ns);
    /* The exchange is over, or its client left. */
    void (*closed)(void *context);
};

/* Any thread, at most once for an exchange. */
void httpd_wait(struct httpd_exchange *exchange, const struct httpd_work *work);

/* From `poll`: the body comes from `read`. */
void httpd_stream(struct httpd_exchange *exchange, unsigned status, const char *content_type);

/* Calls poll or read soon. Any thread that holds the exchange. */
void httpd_wake(struct httpd_exchange *exchange);

#endif
