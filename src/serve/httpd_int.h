#ifndef SERVE_HTTPD_INT_H
#define SERVE_HTTPD_INT_H
/* What the net thread and the watcher share. For the http files only.
 *
 * Locks: server->lock covers the lists of exchanges and clients, exchange->lock the state of one exchange. The first
 * may be held when the second is taken, never the other way round, and neither while libmicrohttpd is called. */
#include "serve/httpd.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

/* A connection. */
struct httpd_client {
    struct httpd_client *next, **link;
    int fd;
    size_t line_bytes;     /* of the request that came last: its path with the query */
    int64_t head_until_ns; /* its next head must be complete by then; INT64_MAX while a request goes on */
};

struct httpd_exchange {
    struct httpd_server *server;
    struct httpd_exchange *next, **link; /* in server->exchanges until it is over */
    uint64_t serial;                     /* what the watcher knows it by */
    atomic_uint holders;

    /* Net thread until the request is whole, read-only from then on. */
    struct MHD_Connection *connection;
    int fd;
    char method[16], id[132];
    char *path;
    struct buf body;
    enum httpd_fault fault;
    bool is_local;
    bool is_1_0, at_once; /* at_once: a refusal that does not wait for the end of the body */
    bool was_asked;       /* the handler has the request */
    size_t n_dropped;     /* bytes of a body that nobody wants */
    void *user;

    /* Net thread. */
    bool is_watched, has_ended;

    pthread_mutex_t lock; /* for everything below */
    bool sleeps, woken, is_over, is_gone, has_work, has_reply, streams;
    int64_t wake_ns;
    struct httpd_work work;
    unsigned status;
    const char *content_type;
    struct buf headers; /* name NUL value NUL ... */
    struct buf answer;
};

struct httpd_server {
    struct alloc *alloc;
    struct httpd_settings settings;
    struct MHD_Daemon *daemon;
    int listen_fd; /* ours again after quiesce */
    uint16_t port;
    char address[64];
    unsigned long body_bytes_max;

    pthread_t watcher;
    bool has_watcher;
    int epoll_fd, event_fd;

    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t fewer; /* an exchange is over */
    struct httpd_exchange *exchanges;
    struct httpd_client *clients;
    unsigned n_clients;
    uint64_t n_serials;
    bool closes;
};

int64_t httpd_now(const struct httpd_server *server);

/* Its client is gone: no answer will reach anybody. Wakes it, so under no lock. */
void httpd_leave(struct httpd_exchange *exchange);

bool httpd_watch_start(struct httpd_server *server, struct err *err) MUST_CHECK;
void httpd_watch_stop(struct httpd_server *server);
void httpd_watch_nudge(struct httpd_server *server);      /* something to watch appeared */
void httpd_watch_add(struct httpd_exchange *exchange);    /* net thread */
void httpd_watch_remove(struct httpd_exchange *exchange); /* net thread */

#endif
