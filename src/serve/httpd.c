/* The net thread: libmicrohttpd's callbacks, and the life of an exchange.
 *
 *   first call    head       framing is checked, the handler may refuse
 *   body calls    body       bytes are kept, or dropped when nobody wants them
 *   last call     ask        the handler gets the request, once
 *   from then on  proceed    answers when there is an answer, else sleeps until httpd_wake
 *   the end       over       also when the client left in the middle; `closed` is called
 *
 * Sleeping is libmicrohttpd's suspended state. An exchange falls asleep in two steps: `sleeps` is set under the lock,
 * then the connection is suspended without it. Whoever wakes it takes `sleeps` back under the lock and resumes without
 * it; a resume that comes between the two steps makes the suspension void, which is what libmicrohttpd promises. A
 * connection whose exchange sleeps cannot be closed by anybody, so the pointer is good for the one who took `sleeps`
 * back. */
#include "serve/httpd_int.h"

#include "base/assert.h"
#include "serve/names.h"
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FINISH_S = 5 }; /* for what is answered to reach its client, at the end */

enum {
    DROPPED_BYTES_MAX = 1 << 20, /* of a refused body; more is cut off */
    POOL_BYTES = 256 << 10,      /* of one connection: more than the largest head, so that our limit is what counts */
    BLOCK_BYTES = 16 << 10,
    BACKLOG = 1024,
    HEADERS_BYTES_MAX = 32 << 10,
    SEND_BYTES = 128 << 10, /* what the system keeps of an answer that is not read; it takes twice as much */
};

int64_t httpd_now(const struct httpd_server *server)
{
    return clock_now_ns(server->settings.clock);
}

/* --- an exchange --- */

void httpd_hold(struct httpd_exchange *exchange)
{
    atomic_fetch_add(&exchange->holders, 1);
}

void httpd_release(struct httpd_exchange *exchange)
{
    struct httpd_exchange *e = exchange;
    if (atomic_fetch_sub(&e->holders, 1) != 1) return;
    struct alloc *alloc = e->server->alloc;
    const struct httpd_handler *handler = &e->server->settings.handler;
    if (e->path) handler->over(handler->context, e, e->has_reply || e->streams ? e->status : 0);
    buf_fini(&e->body);
    buf_fini(&e->headers);
    buf_fini(&e->answer);
    alloc_put(alloc, e->path);
    pthread_mutex_destroy(&e->lock);
    alloc_put(alloc, e);
}

static bool is_printable(const char *text, size_t most)
{
    size_t n = text ? strlen(text) : 0;
    if (n == 0 || n > most) return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] < 0x21 || text[i] > 0x7e) return false;
    return true;
}

static bool is_loopback(const struct sockaddr *address)
{
    static const uint8_t mapped[13] = {[10] = 0xFF, 0xFF, 127}; /* ::ffff:127.0.0.0/104 */
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 v6;
    if (address->sa_family != AF_INET6) return false;
    memcpy(&v6, address, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || memcmp(&v6.sin6_addr, mapped, sizeof mapped) == 0;
}

static struct httpd_exchange *exchange_new(struct httpd_server *server, struct MHD_Connection *connection,
                                           const char *url, const char *method, const char *version)
{
    struct httpd_exchange *e = alloc_get(server->alloc, sizeof *e, NULL);
    if (!e) return NULL;
    e->server = server;
    e->connection = connection;
    atomic_store(&e->holders, 1);
    e->wake_ns = INT64_MAX;
    pthread_mutex_init(&e->lock, NULL);
    buf_init(&e->body, server->alloc, server->settings.body_bytes_max);
    buf_init(&e->headers, server->alloc, HEADERS_BYTES_MAX);
    snprintf(e->method, sizeof e->method, "%s", method);
    e->is_1_0 = strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
    e->path = alloc_text(server->alloc, url, NULL);
    e->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    e->is_local = is_loopback(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    const char *id = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "x-request-id");
    char fresh[NAME_BYTES];
    snprintf(e->id, sizeof e->id, "%s", is_printable(id, 128) ? id : name_fresh(fresh, "req_"));
    if (!e->path) {
        httpd_release(e);
        return NULL;
    }
    pthread_mutex_lock(&server->lock);
    e->serial = server->n_serials++;
    e->next = server->exchanges;
    e->link = &server->exchanges;
    if (e->next) e->next->link = &e->next;
    server->exchanges = e;
    pthread_mutex_unlock(&server->lock);
    return e;
}

const char *httpd_method(const struct httpd_exchange *exchange)
{
    return exchange->method;
}
const char *httpd_path(const struct httpd_exchange *exchange)
{
    return exchange->path;
}
const char *httpd_id(const struct httpd_exchange *exchange)
{
    return exchange->id;
}
const char *httpd_body(const struct httpd_exchange *exchange, size_t *bytes)
{
    *bytes = exchange->body.bytes;
    return exchange->body.data ? exchange->body.data : "";
}
bool httpd_is_local(const struct httpd_exchange *exchange)
{
    return exchange->is_local;
}
bool httpd_is_1_0(const struct httpd_exchange *exchange)
{
    return exchange->is_1_0;
}
const char *httpd_header(const struct httpd_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}
enum httpd_fault httpd_fault(const struct httpd_exchange *exchange)
{
    return exchange->fault;
}
void httpd_set_user(struct httpd_exchange *exchange, void *user)
{
    exchange->user = user;
}
void *httpd_user(const struct httpd_exchange *exchange)
{
    return exchange->user;
}

void httpd_wake(struct httpd_exchange *exchange)
{
    struct httpd_exchange *e = exchange;
    pthread_mutex_lock(&e->lock);
    bool slept = e->sleeps && !e->is_over;
    e->sleeps = false;
    if (!slept) e->woken = true;
    pthread_mutex_unlock(&e->lock);
    if (slept) MHD_resume_connection(e->connection);
}

void httpd_leave(struct httpd_exchange *exchange)
{
    struct httpd_exchange *e = exchange;
    pthread_mutex_lock(&e->lock);
    e->is_gone = true;
    if (!e->is_over) shutdown(e->fd, SHUT_RDWR); /* a write that waits for room ends */
    pthread_mutex_unlock(&e->lock);
    httpd_wake(e);
}

void httpd_set_header(struct httpd_exchange *exchange, const char *name, const char *value)
{
    struct err err;
    ASSERT(!strpbrk(value, "\r\n"));
    pthread_mutex_lock(&exchange->lock);
    /* A header that does not fit is one that the client does without. */
    size_t before = exchange->headers.bytes;
    if (!buf_add(&exchange->headers, name, strlen(name) + 1, &err) ||
        !buf_add(&exchange->headers, value, strlen(value) + 1, &err))
        exchange->headers.bytes = before;
    pthread_mutex_unlock(&exchange->lock);
}

void httpd_reply(struct httpd_exchange *exchange, unsigned status, const char *content_type, struct buf *body)
{
    pthread_mutex_lock(&exchange->lock);
    ASSERT(!exchange->has_reply);
    ASSERT(!exchange->streams);
    exchange->has_reply = true;
    exchange->status = status;
    exchange->content_type = content_type;
    exchange->answer = *body;
    pthread_mutex_unlock(&exchange->lock);
    *body = (struct buf){0};
    httpd_wake(exchange);
}

void httpd_stream(struct httpd_exchange *exchange, unsigned status, const char *content_type)
{
    pthread_mutex_lock(&exchange->lock);
    ASSERT(!exchange->has_reply);
    ASSERT(!exchange->streams);
    exchange->streams = true;
    exchange->status = status;
    exchange->content_type = content_type;
    pthread_mutex_unlock(&exchange->lock);
}

void httpd_wait(struct httpd_exchange *exchange, const struct httpd_work *work)
{
    pthread_mutex_lock(&exchange->lock);
    ASSERT(!exchange->has_work);
    bool is_over = exchange->is_over;
    exchange->work = *work;
    exchange->has_work = !is_over;
    pthread_mutex_unlock(&exchange->lock);
    if (is_over)
        work->closed(work->context);
    else
        httpd_wake(exchange);
}

/* True: it sleeps now, and its connection is suspended. False: it was woken meanwhile. */
static bool fall_asleep(struct httpd_exchange *e, int64_t wake_ns)
{
    httpd_watch_add(e);
    pthread_mutex_lock(&e->lock);
    bool sleeps = !e->woken && !e->is_gone;
    e->woken = false;
    e->sleeps = sleeps;
    e->wake_ns = wake_ns;
    pthread_mutex_unlock(&e->lock);
    if (sleeps) MHD_suspend_connection(e->connection);
    return sleeps;
}

/* --- the answer --- */

static ssize_t read_answer(void *context, uint64_t at, char *out, size_t room)
{
    struct httpd_exchange *e = context;
    (void)at;
    for (;;) {
        int64_t wake_ns = INT64_MAX;
        size_t n = 0;
        pthread_mutex_lock(&e->lock);
        bool is_gone = e->is_gone;
        pthread_mutex_unlock(&e->lock);
        if (is_gone) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (e->has_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        enum httpd_flow flow = e->work.read(e->work.context, out, room, &n, &wake_ns);
        ASSERT(n <= room);
        if (flow == HTTPD_CUT) return MHD_CONTENT_READER_END_WITH_ERROR;
        e->has_ended = flow == HTTPD_END;
        if (n > 0) return (ssize_t)n;
        if (flow == HTTPD_WAIT && fall_asleep(e, wake_ns)) return 0;
    }
}

static void forget_answer(void *context)
{
    httpd_release(context);
}

static struct MHD_Response *response_of(struct httpd_exchange *e)
{
    if (!e->streams) return MHD_create_response_from_buffer(e->answer.bytes, e->answer.data, MHD_RESPMEM_MUST_COPY);
    httpd_hold(e);
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_answer, e, forget_answer);
    if (!response) httpd_release(e);
    return response;
}

static enum MHD_Result queue_answer(struct httpd_exchange *e)
{
    struct MHD_Response *response = response_of(e);
    if (!response) return MHD_NO;
    if (e->content_type) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, e->content_type);
    MHD_add_response_header(response, "Server", "weir");
    MHD_add_response_header(response, "x-request-id", e->id);
    for (size_t at = 0; at < e->headers.bytes;) {
        const char *name = e->headers.data + at, *value = name + strlen(name) + 1;
        MHD_add_response_header(response, name, value);
        at = (size_t)(value - e->headers.data) + strlen(value) + 1;
    }
    MHD_set_connection_option(e->connection, MHD_CONNECTION_OPTION_TIMEOUT, e->server->settings.stall_s);
    enum MHD_Result ok = MHD_queue_response(e->connection, e->status, response);
    MHD_destroy_response(response);
    return ok;
}

static enum MHD_Result proceed(struct httpd_exchange *e)
{
    for (;;) {
        int64_t wake_ns = INT64_MAX;
        pthread_mutex_lock(&e->lock);
        bool is_gone = e->is_gone, has_answer = e->has_reply || e->streams, has_work = e->has_work;
        pthread_mutex_unlock(&e->lock);
        if (is_gone) return MHD_NO;
        if (has_answer) {
            if (e->streams) httpd_watch_add(e);
            return queue_answer(e);
        }
        if (has_work) e->work.poll(e->work.context, e, &wake_ns);
        pthread_mutex_lock(&e->lock);
        has_answer = e->has_reply || e->streams;
        pthread_mutex_unlock(&e->lock);
        if (!has_answer && fall_asleep(e, wake_ns)) return MHD_YES;
    }
}

/* --- the request --- */

struct framing {
    unsigned n_headers, n_lengths, n_codings, n_hosts;
    const char *coding;
};

static enum MHD_Result see_header(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct framing *f = context;
    (void)kind;
    f->n_headers++;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) f->n_lengths++;
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) f->n_hosts++;
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        f->n_codings++;
        f->coding = value;
    }
    return MHD_YES;
}

/* The length that was announced; 0 when none was. The parser has seen to it that it is a number. */
static uint64_t announced_length(const struct httpd_exchange *e)
{
    const char *text = httpd_header(e, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtoull(text, NULL, 10) : 0;
}

static struct httpd_client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* Before anything else of a request: the only place where its query can be seen whole. */
static void *see_line(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct httpd_client *client = client_of(connection);
    (void)context;
    if (client) client->line_bytes = strlen(uri);
    return NULL; /* the slot of the exchange stays empty */
}

static enum httpd_fault fault_of(struct httpd_exchange *e)
{
    struct framing f = {0};
    MHD_get_connection_values(e->connection, MHD_HEADER_KIND, see_header, &f);
    const union MHD_ConnectionInfo *head =
        MHD_get_connection_info(e->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (f.n_lengths > 1 || f.n_codings > 1 || (f.n_lengths && f.n_codings) ||
        (f.coding && strcasecmp(f.coding, "chunked") != 0))
        return HTTPD_BAD_FRAMING;
    const struct httpd_client *client = client_of(e->connection);
    if (f.n_headers > HTTPD_HEADERS_MAX || (head && head->header_size > HTTPD_HEAD_BYTES_MAX) ||
        (client ? client->line_bytes : strlen(e->path)) > HTTPD_LINE_BYTES_MAX)
        return HTTPD_HEAD_TOO_LARGE;
    if (f.n_hosts > 1 || (f.n_hosts == 0 && !e->is_1_0)) return HTTPD_BAD_HOST;
    return announced_length(e) > e->server->settings.body_bytes_max ? HTTPD_BODY_TOO_LARGE : HTTPD_FINE;
}

static void set_head_deadline(struct httpd_server *server, struct MHD_Connection *connection, int64_t ns)
{
    struct httpd_client *client = client_of(connection);
    if (!client) return;
    pthread_mutex_lock(&server->lock);
    client->head_until_ns = ns;
    pthread_mutex_unlock(&server->lock);
}

static enum MHD_Result take_head(struct httpd_exchange *e)
{
    const struct httpd_handler *handler = &e->server->settings.handler;
    set_head_deadline(e->server, e->connection, INT64_MAX);
    MHD_set_connection_option(e->connection, MHD_CONNECTION_OPTION_TIMEOUT, e->server->settings.silence_s);
    e->fault = fault_of(e);
    handler->head(handler->context, e);
    const char *expects = httpd_header(e, MHD_HTTP_HEADER_EXPECT);
    e->at_once = e->fault == HTTPD_BAD_FRAMING || (expects && strcasecmp(expects, "100-continue") == 0) ||
                 announced_length(e) > DROPPED_BYTES_MAX;
    return e->has_reply && e->at_once ? queue_answer(e) : MHD_YES;
}

/* Keeps what is wanted. A client that goes on sending what was refused is heard for a while, so that it comes to read
 * the refusal, and then cut off. */
static enum MHD_Result take_body(struct httpd_exchange *e, const char *data, size_t *bytes)
{
    struct err err;
    size_t n = *bytes;
    *bytes = 0;
    if (!e->has_reply && e->fault == HTTPD_FINE) {
        if (n <= e->body.bytes_max - e->body.bytes) return buf_add(&e->body, data, n, &err) ? MHD_YES : MHD_NO;
        e->fault = HTTPD_BODY_TOO_LARGE;
        buf_fini(&e->body);
    }
    e->n_dropped += n;
    return e->n_dropped <= DROPPED_BYTES_MAX ? MHD_YES : MHD_NO;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *bytes, void **slot)
{
    struct httpd_server *server = context;
    struct httpd_exchange *e = *slot;
    if (!e) {
        pthread_mutex_lock(&server->lock);
        bool closes = server->closes;
        pthread_mutex_unlock(&server->lock);
        if (closes) return MHD_NO;
        e = *slot = exchange_new(server, connection, url, method, version);
        return e ? take_head(e) : MHD_NO;
    }
    if (*bytes > 0) return take_body(e, data, bytes);
    if (!e->has_reply && !e->was_asked) {
        e->was_asked = true;
        server->settings.handler.request(server->settings.handler.context, e);
    }
    return proceed(e);
}

static void see_over(void *context, struct MHD_Connection *connection, void **slot, enum MHD_RequestTerminationCode why)
{
    struct httpd_server *server = context;
    struct httpd_exchange *e = *slot;
    (void)why;
    if (!e) return;
    *slot = NULL;
    httpd_watch_remove(e);
    pthread_mutex_lock(&server->lock);
    *e->link = e->next;
    if (e->next) e->next->link = e->link;
    pthread_cond_broadcast(&server->fewer);
    pthread_mutex_unlock(&server->lock);
    set_head_deadline(server, connection, httpd_now(server) + INT64_C(2000000000) * server->settings.silence_s);

    pthread_mutex_lock(&e->lock);
    e->is_over = true;
    e->sleeps = false;
    bool has_work = e->has_work;
    e->has_work = false;
    pthread_mutex_unlock(&e->lock);
    if (has_work) e->work.closed(e->work.context);
    httpd_release(e);
}

static void see_connection(void *context, struct MHD_Connection *connection, void **slot,
                           enum MHD_ConnectionNotificationCode what)
{
    struct httpd_server *server = context;
    struct httpd_client *client = *slot;
    int on = 1, send_bytes = SEND_BYTES;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        client = *slot = alloc_get(server->alloc, sizeof *client, NULL);
        if (!client) return; /* served without a deadline for its head */
        client->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        client->head_until_ns = httpd_now(server) + INT64_C(1000000000) * server->settings.silence_s;
        setsockopt(client->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        setsockopt(client->fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
        pthread_mutex_lock(&server->lock);
        client->next = server->clients;
        client->link = &server->clients;
        if (client->next) client->next->link = &client->next;
        server->clients = client;
        server->n_clients++;
        pthread_mutex_unlock(&server->lock);
    } else if (client) {
        pthread_mutex_lock(&server->lock);
        *client->link = client->next;
        if (client->next) client->next->link = client->link;
        server->n_clients--;
        pthread_mutex_unlock(&server->lock);
        alloc_put(server->alloc, client);
        *slot = NULL;
    }
    httpd_watch_nudge(server);
}

/* --- the server --- */

static void see_log(void *context, const char *format, va_list args)
{
    char line[512];
    const struct httpd_server *server = context;
    int n = vsnprintf(line, sizeof line, format, args);
    if (n > 0 && n < (int)sizeof line && line[n - 1] == '\n') line[n - 1] = 0;
    server->settings.handler.log(server->settings.handler.context, line);
}

static int digit(char c)
{
    const char *at = c ? strchr("0123456789abcdefABCDEF", c) : NULL;
    int n = at ? (int)(at - "0123456789abcdefABCDEF") : -1;
    return n > 15 ? n - 6 : n;
}

/* Paths are texts that end at their first NUL, so an escaped one stays as it is; as does what is no escape. */
static size_t unescape(void *context, struct MHD_Connection *connection, char *text)
{
    char *out = text;
    (void)context;
    (void)connection;
    for (const char *in = text; *in; in++) {
        int high = *in == '%' ? digit(in[1]) : -1, low = high >= 0 ? digit(in[2]) : -1;
        bool is_escape = low >= 0 && high + low > 0;
        *out++ = is_escape ? (char)(16 * high + low) : *in;
        if (is_escape) in += 2;
    }
    *out = 0;
    return (size_t)(out - text);
}

static bool bind_to(struct httpd_server *server, const struct addrinfo *at, struct err *err)
{
    char name[64], port[16];
    int on = 1;
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    server->listen_fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->listen_fd < 0) return err_set(err, ERR_IO, "cannot make a socket: %s", strerror(errno));
    setsockopt(server->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(server->listen_fd, at->ai_addr, at->ai_addrlen) != 0 || listen(server->listen_fd, BACKLOG) != 0)
        return err_set(err, ERR_USER, "cannot listen on %s port %u: %s", server->settings.host, server->settings.port,
                       strerror(errno));
    if (getsockname(server->listen_fd, (struct sockaddr *)&address, &n) != 0 ||
        getnameinfo((struct sockaddr *)&address, n, name, sizeof name, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return err_set(err, ERR_IO, "cannot tell the address that it listens on: %s", strerror(errno));
    server->port = (uint16_t)strtoul(port, NULL, 10);
    const char *form = strchr(name, ':') ? "[%s]" : "%s";
    snprintf(server->address, sizeof server->address, form[0] == '[' ? "[%.60s]" : "%.60s", name);
    return true;
}

static bool open_socket(struct httpd_server *server, struct err *err)
{
    char port[16];
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    snprintf(port, sizeof port, "%u", server->settings.port);
    int failed = getaddrinfo(server->settings.host, port, &hints, &list);
    if (failed)
        return err_set(err, ERR_USER, "--host: there is no address '%s': %s", server->settings.host,
                       gai_strerror(failed));
    bool ok = bind_to(server, list, err);
    freeaddrinfo(list);
    return ok;
}

static bool start_daemon(struct httpd_server *server, struct err *err)
{
    const struct httpd_settings *s = &server->settings;
    /* Polling by poll: with epoll, libmicrohttpd 0.9.75 stops serving under connections that break off. */
    unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    server->daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, server,                     /* */
                                      MHD_OPTION_EXTERNAL_LOGGER, see_log, server,              /* first, to hear all */
                                      MHD_OPTION_LISTEN_SOCKET, server->listen_fd,              /* */
                                      MHD_OPTION_CONNECTION_LIMIT, s->n_connections_max,        /* */
                                      MHD_OPTION_PER_IP_CONNECTION_LIMIT, s->n_per_address_max, /* */
                                      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,   /* */
                                      MHD_OPTION_CONNECTION_TIMEOUT, s->silence_s,              /* */
                                      MHD_OPTION_STRICT_FOR_CLIENT, 0, /* a missing Host is ours to refuse */
                                      MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,  /* */
                                      MHD_OPTION_URI_LOG_CALLBACK, see_line, NULL,   /* */
                                      MHD_OPTION_NOTIFY_COMPLETED, see_over, server, /* */
                                      MHD_OPTION_NOTIFY_CONNECTION, see_connection, server, MHD_OPTION_END);
    if (!server->daemon) return err_set(err, ERR_FAILED, "the HTTP server does not start: %s", strerror(errno));
    server->listen_fd = -1; /* the daemon's */
    return true;
}

bool httpd_start(struct httpd_server **server, struct alloc *alloc, const struct httpd_settings *settings,
                 struct err *err)
{
    struct httpd_server *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    s->alloc = alloc;
    s->settings = *settings;
    s->listen_fd = s->epoll_fd = s->event_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->fewer, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!open_socket(s, err)) goto fail;
    if (!httpd_watch_start(s, err)) goto fail;
    if (!start_daemon(s, err)) goto fail;
    *server = s;
    return true;
fail:
    httpd_stop(s);
    return false;
}

void httpd_quiesce(struct httpd_server *server)
{
    if (server->listen_fd >= 0) return;
    server->listen_fd = MHD_quiesce_daemon(server->daemon);
    /* Or the system would go on taking connections that nobody answers. It is closed when no thread can look at it. */
    if (server->listen_fd >= 0) shutdown(server->listen_fd, SHUT_RDWR);
}

/* What is answered may be on its way to a client still. Whoever reads has it in time; the others are not waited for. */
static void let_finish(struct httpd_server *server)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FINISH_S;
    pthread_mutex_lock(&server->lock);
    while (server->exchanges && pthread_cond_timedwait(&server->fewer, &server->lock, &until) == 0) continue;
    pthread_mutex_unlock(&server->lock);
}

/* Sends everybody away, until nobody is left. */
static void cut_all(struct httpd_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->closes = true;
    while (server->exchanges) {
        struct httpd_exchange *e = server->exchanges;
        while (e) {
            pthread_mutex_lock(&e->lock);
            bool is_told = e->is_gone;
            pthread_mutex_unlock(&e->lock);
            if (!is_told) break;
            e = e->next;
        }
        if (!e) {
            pthread_cond_wait(&server->fewer, &server->lock);
            continue;
        }
        httpd_hold(e);
        pthread_mutex_unlock(&server->lock);
        httpd_leave(e);
        httpd_release(e);
        pthread_mutex_lock(&server->lock);
    }
    pthread_mutex_unlock(&server->lock);
}

void httpd_stop(struct httpd_server *server)
{
    struct httpd_server *s = server;
    if (!s) return;
    if (s->daemon) {
        httpd_quiesce(s);
        let_finish(s);
        cut_all(s);
        MHD_stop_daemon(s->daemon);
    }
    pthread_mutex_lock(&s->lock);
    s->closes = true;
    pthread_mutex_unlock(&s->lock);
    httpd_watch_stop(s);
    if (s->listen_fd >= 0) close(s->listen_fd);
    pthread_cond_destroy(&s->fewer);
    pthread_mutex_destroy(&s->lock);
    alloc_put(s->alloc, s);
}

uint16_t httpd_port(const struct httpd_server *server)
{
    return server->port;
}
const char *httpd_address(const struct httpd_server *server)
{
    return server->address;
}
unsigned httpd_connections(struct httpd_server *server)
{
    pthread_mutex_lock(&server->lock);
    unsigned n = server->n_clients;
    pthread_mutex_unlock(&server->lock);
    return n;
}
