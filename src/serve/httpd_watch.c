/* The watcher: who left, who waits for a time, who is too slow with a request.
 *
 * libmicrohttpd does not look at the sockets of suspended connections, and while it writes an answer it does not look
 * for the end of what it reads. This thread does. */
#include "serve/httpd_int.h"

#include "base/assert.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 32, TICK_MS = 100, DUE = 32 };

#define NUDGE UINT64_MAX /* the serial of no exchange */

void httpd_watch_nudge(struct httpd_server *server)
{
    uint64_t one = 1;
    ssize_t n = write(server->event_fd, &one, sizeof one);
    ASSERT(n == (ssize_t)sizeof one || errno == EAGAIN); /* EAGAIN: it is nudged already */
}

void httpd_watch_add(struct httpd_exchange *exchange)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = exchange->serial};
    if (exchange->is_watched) return;
    exchange->is_watched = epoll_ctl(exchange->server->epoll_fd, EPOLL_CTL_ADD, exchange->fd, &event) == 0;
}

void httpd_watch_remove(struct httpd_exchange *exchange)
{
    if (exchange->is_watched) epoll_ctl(exchange->server->epoll_fd, EPOLL_CTL_DEL, exchange->fd, NULL);
    exchange->is_watched = false;
}

/* Held, or NULL: it is over by now. */
static struct httpd_exchange *find(struct httpd_server *server, uint64_t serial)
{
    pthread_mutex_lock(&server->lock);
    struct httpd_exchange *e = server->exchanges;
    while (e && e->serial != serial) e = e->next;
    if (e) httpd_hold(e);
    pthread_mutex_unlock(&server->lock);
    return e;
}

static void see_departure(struct httpd_server *server, uint64_t serial)
{
    struct httpd_exchange *e = find(server, serial);
    if (!e) return;
    httpd_leave(e);
    httpd_release(e);
}

static bool is_due(struct httpd_exchange *e, int64_t now)
{
    pthread_mutex_lock(&e->lock);
    bool due = e->sleeps && e->wake_ns <= now;
    pthread_mutex_unlock(&e->lock);
    return due;
}

/* Wakes those whose time has come, some at a time: the list may not be held meanwhile. */
static void wake_due(struct httpd_server *server, int64_t now)
{
    struct httpd_exchange *due[DUE];
    size_t n;
    do {
        n = 0;
        pthread_mutex_lock(&server->lock);
        for (struct httpd_exchange *e = server->exchanges; e && n < DUE; e = e->next)
            if (is_due(e, now)) {
                httpd_hold(e);
                due[n++] = e;
            }
        pthread_mutex_unlock(&server->lock);
        for (size_t i = 0; i < n; i++) {
            httpd_wake(due[i]);
            httpd_release(due[i]);
        }
    } while (n == DUE);
}

static void cut_slow_heads(struct httpd_server *server, int64_t now)
{
    pthread_mutex_lock(&server->lock);
    for (struct httpd_client *c = server->clients; c; c = c->next)
        if (c->head_until_ns <= now) {
            shutdown(c->fd, SHUT_RDWR); /* the net thread sees the end and closes it */
            c->head_until_ns = INT64_MAX;
        }
    pthread_mutex_unlock(&server->lock);
}

static void *watch(void *context)
{
    struct httpd_server *server = context;
    for (;;) {
        struct epoll_event events[EVENTS];
        pthread_mutex_lock(&server->lock);
        bool idle = server->n_clients == 0, closes = server->closes && idle;
        pthread_mutex_unlock(&server->lock);
        if (closes) return NULL;
        int n = epoll_wait(server->epoll_fd, events, EVENTS, idle ? -1 : TICK_MS);
        for (int i = 0; i < n; i++) {
            uint64_t count;
            if (events[i].data.u64 != NUDGE)
                see_departure(server, events[i].data.u64);
            else if (read(server->event_fd, &count, sizeof count) < 0)
                ASSERT(errno == EAGAIN || errno == EINTR);
        }
        int64_t now = httpd_now(server);
        wake_due(server, now);
        cut_slow_heads(server, now);
    }
}

bool httpd_watch_start(struct httpd_server *server, struct err *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = NUDGE};
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll_fd < 0 || server->event_fd < 0 ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->event_fd, &event) != 0)
        return err_set(err, ERR_IO, "cannot watch sockets: %s", strerror(errno));
    int failed = pthread_create(&server->watcher, NULL, watch, server);
    if (failed) return err_set(err, ERR_FAILED, "cannot start a thread: %s", strerror(failed));
    server->has_watcher = true;
    return true;
}

void httpd_watch_stop(struct httpd_server *server)
{
    if (server->has_watcher) {
        httpd_watch_nudge(server);
        pthread_join(server->watcher, NULL);
    }
    if (server->epoll_fd >= 0) close(server->epoll_fd);
    if (server->event_fd >= 0) close(server->event_fd);
}
