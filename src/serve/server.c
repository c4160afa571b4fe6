/* Net thread: see_head and see_request. Workers: take requests from the queue, which has room for one request of every
 * connection. */
#include "serve/server_int.h"

#include "base/assert.h"
#include "fmt/tokenizer_encoder.h"
#include "serve/own_turns.h"
#include "serve/responses_store.h"
#include "serve/routes.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- heads --- */

static bool says_json(const char *type)
{
    size_t n = strcspn(type, "; \t");
    return n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0;
}

static bool check_fault(enum httpd_fault fault, const struct server *server, struct problem *problem)
{
    switch (fault) {
    case HTTPD_FINE: return true;
    case HTTPD_BAD_FRAMING:
        return problem_set(problem, PROBLEM_FRAMING, NULL,
                           "the length of the body is not clear: send either one Content-Length or Transfer-Encoding: "
                           "chunked");
    case HTTPD_BAD_HOST:
        return problem_set(problem, PROBLEM_FRAMING, NULL, "an HTTP/1.1 request needs exactly one Host header");
    case HTTPD_HEAD_TOO_LARGE:
        return problem_set(problem, PROBLEM_HEADERS, NULL,
                           "the headers are too large: at most %d KiB, %d KiB in one line, and %d headers",
                           HTTPD_HEAD_BYTES_MAX >> 10, HTTPD_LINE_BYTES_MAX >> 10, HTTPD_HEADERS_MAX);
    case HTTPD_BODY_TOO_LARGE:
        return problem_set(problem, PROBLEM_TOO_LARGE, NULL, "the body is larger than %zu bytes (see --max-body)",
                           server->settings.body_bytes_max);
    }
    ASSERT(!"a fault without words");
    return false;
}

static bool check_types(struct httpd_exchange *exchange, struct problem *problem)
{
    const char *type = httpd_header(exchange, "Content-Type"), *coding = httpd_header(exchange, "Content-Encoding");
    if (coding && strcasecmp(coding, "identity") != 0)
        return problem_set(problem, PROBLEM_MEDIA_TYPE, NULL,
                           "Content-Encoding '%.50s' is not supported: send it plain", coding);
    if (type && !says_json(type))
        return problem_set(problem, PROBLEM_MEDIA_TYPE, NULL, "Content-Type must be application/json, not '%.50s'",
                           type);
    return true;
}

/* What a browser asks before it sends a request to another origin. */
static void allow_origin(struct httpd_exchange *exchange, const char *origin)
{
    if (!origin || strlen(origin) > 512) return;
    httpd_set_header(exchange, "Access-Control-Allow-Origin", origin);
    httpd_set_header(exchange, "Vary", "Origin");
    httpd_set_header(exchange, "Access-Control-Expose-Headers", "x-request-id, x-dropped-tools, retry-after");
}

static bool header_is_allowed(const char *name, size_t n)
{
    static const char *const whole[] = {"authorization",  "content-type",
                                        "x-api-key",      "anthropic-version",
                                        "anthropic-beta", "anthropic-dangerous-direct-browser-access",
                                        "x-request-id"};
    static const char *const begins[] = {"openai-", "x-stainless-"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (n == strlen(whole[i]) && strncasecmp(name, whole[i], n) == 0) return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (n > strlen(begins[i]) && strncasecmp(name, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

/* Of the asked headers those that are allowed. */
static void allow_headers(struct httpd_exchange *exchange, const char *asked)
{
    char allowed[1024];
    size_t used = 0;
    while (asked && *asked) {
        asked += strspn(asked, ", \t");
        size_t n = strcspn(asked, ", \t");
        if (n > 0 && header_is_allowed(asked, n) && used + n + 3 < sizeof allowed)
            used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%.*s", used ? ", " : "", (int)n, asked);
        asked += n;
    }
    if (used > 0) httpd_set_header(exchange, "Access-Control-Allow-Headers", allowed);
}

static void answer_preflight(struct server *server, struct httpd_exchange *exchange, const char *origin)
{
    struct buf nothing;
    buf_init(&nothing, server->alloc, 0);
    httpd_set_header(exchange, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    httpd_set_header(exchange, "Access-Control-Max-Age", "600");
    allow_headers(exchange, httpd_header(exchange, "Access-Control-Request-Headers"));
    if (origin && httpd_header(exchange, "Access-Control-Request-Private-Network"))
        httpd_set_header(exchange, "Access-Control-Allow-Private-Network", "true");
    httpd_reply(exchange, 204, NULL, &nothing);
}

static struct visit *visit_new(struct server *server, struct httpd_exchange *exchange)
{
    struct visit *visit = alloc_get(server->alloc, sizeof *visit, NULL);
    if (!visit) return NULL;
    visit->server = server;
    visit->began_ns = server_now(server);
    visit->family = httpd_header(exchange, "anthropic-version") ? FAMILY_ANTHROPIC : FAMILY_OPENAI;
    httpd_set_user(exchange, visit);
    return visit;
}

static bool find_route(struct httpd_exchange *exchange, struct visit *visit, struct problem *problem)
{
    unsigned methods;
    char allow[64];
    visit->route = routes_find(httpd_path(exchange), routes_method(httpd_method(exchange)), &methods, visit->target);
    if (visit->route && visit->route->is_anthropic) visit->family = FAMILY_ANTHROPIC;
    if (visit->route && visit->route->is_refused)
        return problem_set(problem, PROBLEM_ENDPOINT, NULL,
                           "%.100s is not supported: the model of this server reads and writes text, and nothing else",
                           httpd_path(exchange));
    if (visit->route) return true;
    if (methods == 0)
        return problem_set(problem, PROBLEM_NOT_FOUND, NULL, "there is no %.100s here", httpd_path(exchange));
    httpd_set_header(exchange, "Allow", routes_allow(methods, allow));
    return problem_set(problem, PROBLEM_METHOD, NULL, "%.100s takes %s", httpd_path(exchange), allow);
}

static bool check_head(struct server *server, struct httpd_exchange *exchange, struct visit *visit,
                       struct problem *problem)
{
    const struct access_request request = {
        .host = httpd_header(exchange, "Host"),
        .origin = httpd_header(exchange, "Origin"),
        .fetch_site = httpd_header(exchange, "Sec-Fetch-Site"),
        .authorization = httpd_header(exchange, "Authorization"),
        .x_api_key = httpd_header(exchange, "x-api-key"),
        .is_1_0 = httpd_is_1_0(exchange),
    };
    const char *origin;
    bool is_preflight = strcmp(httpd_method(exchange), "OPTIONS") == 0;
    if (!check_fault(httpd_fault(exchange), server, problem)) return false;
    if (!access_check_source(server->settings.access, &request, &origin, problem)) return false;
    allow_origin(exchange, origin);
    if (is_preflight) {
        answer_preflight(server, exchange, origin);
        return true;
    }
    bool is_found = find_route(exchange, visit, problem);
    bool is_open = visit->route && visit->route->is_open;
    struct problem no_key;
    if (!is_open && !access_check_key(server->settings.access, &request, &no_key)) {
        *problem = no_key;
        return false;
    }
    return is_found && (visit->route->method != METHOD_POST || check_types(exchange, problem));
}

static void see_head(void *context, struct httpd_exchange *exchange)
{
    struct server *server = context;
    struct problem problem = {0};
    struct visit *visit = visit_new(server, exchange);
    if (!visit) {
        struct buf nothing;
        buf_init(&nothing, server->alloc, 0);
        httpd_reply(exchange, 500, NULL, &nothing);
    } else if (!check_head(server, exchange, visit, &problem)) {
        server_refuse(exchange, &problem);
    }
}

/* --- whole requests --- */

static bool enqueue(struct server *server, struct httpd_exchange *exchange)
{
    pthread_mutex_lock(&server->lock);
    bool fits = server->n_queued < server->n_queue_max;
    if (fits) {
        httpd_hold(exchange);
        server->queue[(server->first_queued + server->n_queued++) % server->n_queue_max] = exchange;
        pthread_cond_signal(&server->work);
    }
    pthread_mutex_unlock(&server->lock);
    return fits;
}

static void see_request(void *context, struct httpd_exchange *exchange)
{
    struct server *server = context;
    struct visit *visit = httpd_user(exchange);
    struct problem problem = {0};
    if (!check_fault(httpd_fault(exchange), server, &problem)) {
        server_refuse(exchange, &problem);
        return;
    }
    if (visit->route->is_quick) {
        visit->route->serve(server, NULL, exchange);
        return;
    }
    if (enqueue(server, exchange)) return;
    problem_set(&problem, PROBLEM_QUEUE_FULL, NULL, "too many requests wait to be read");
    problem.retry_after_s = 1;
    server_refuse(exchange, &problem);
}

static void see_over(void *context, struct httpd_exchange *exchange, unsigned status)
{
    struct server *server = context;
    struct visit *visit = httpd_user(exchange);
    if (!visit) return;
    atomic_fetch_add(&server->counts.n_requests, 1);
    _Atomic uint64_t *count = status == 0    ? &server->counts.n_left
                              : status < 400 ? &server->counts.n_ok
                              : status < 500 ? &server->counts.n_refused
                                             : &server->counts.n_failed;
    atomic_fetch_add(count, 1);
    server_log(server, "event=request id=%s method=%s path=%.100s status=%u ms=%" PRId64, httpd_id(exchange),
               httpd_method(exchange), visit->route ? visit->route->path : "-", status,
               (server_now(server) - visit->began_ns) / 1000000);
    alloc_put(server->alloc, visit);
}

static void see_line(void *context, const char *line)
{
    server_log(context, "event=transport text=\"%s\"", line);
}

static struct httpd_exchange *next_queued(struct server *server)
{
    struct httpd_exchange *exchange = NULL;
    pthread_mutex_lock(&server->lock);
    while (server->n_queued == 0 && !server->ends) pthread_cond_wait(&server->work, &server->lock);
    if (server->n_queued > 0) {
        exchange = server->queue[server->first_queued];
        server->first_queued = (server->first_queued + 1) % server->n_queue_max;
        server->n_queued--;
    }
    pthread_mutex_unlock(&server->lock);
    return exchange;
}

static void *work(void *context)
{
    struct worker *worker = context;
    struct server *server = worker->server;
    for (struct httpd_exchange *e; (e = next_queued(server));) {
        const struct visit *visit = httpd_user(e);
        visit->route->serve(server, worker, e);
        httpd_release(e);
    }
    return NULL;
}

/* --- the server --- */

static bool start_worker(struct server *server, struct worker *worker, struct err *err)
{
    worker->server = server;
    const struct server_settings *s = &server->settings;
    worker->encoders = alloc_get_array(server->alloc, s->n_models, sizeof *worker->encoders, err);
    if (!worker->encoders) return false;
    for (size_t i = 0; i < s->n_models; i++) {
        worker->encoders[i] = encoder_new(server->alloc, s->models[i].text->tokenizer, NULL, err);
        if (!worker->encoders[i]) return false;
    }
    int failed = pthread_create(&worker->thread, NULL, work, worker);
    if (failed) return err_set(err, ERR_FAILED, "cannot start a thread: %s", strerror(failed));
    worker->has_thread = true;
    return true;
}

static bool start_http(struct server *server, struct err *err)
{
    const struct server_settings *s = &server->settings;
    const struct httpd_settings settings = {
        .host = s->host,
        .port = s->port,
        .n_connections_max = s->n_connections_max,
        .n_per_address_max = access_is_loopback(s->host) ? 0 : s->n_per_address_max,
        .body_bytes_max = s->body_bytes_max,
        .silence_s = s->silence_s,
        .stall_s = s->stall_s,
        .clock = s->clock,
        .handler = {.context = server, .head = see_head, .request = see_request, .over = see_over, .log = see_line},
    };
    return httpd_start(&server->http, server->alloc, &settings, err);
}

static bool make_own_turns(struct server *server, struct err *err)
{
    size_t n = server->settings.n_models;
    server->own_turns = alloc_get_array(server->alloc, n, sizeof *server->own_turns, err);
    if (!server->own_turns) return false;
    for (size_t i = 0; i < n; i++)
        if (!own_turns_new(&server->own_turns[i], server->alloc, OWN_TURNS_BYTES_MAX / n, err)) return false;
    return true;
}

static void free_of_models(struct server *server)
{
    for (size_t i = 0; i < server->settings.n_models; i++) {
        for (size_t k = 0; k < WORKERS; k++)
            if (server->workers[k].encoders) encoder_free(server->workers[k].encoders[i]);
        if (server->own_turns) own_turns_free(server->own_turns[i]);
    }
    for (size_t k = 0; k < WORKERS; k++) alloc_put(server->alloc, server->workers[k].encoders);
    alloc_put(server->alloc, server->own_turns);
}

bool server_start(struct server **server, struct alloc *alloc, const struct server_settings *settings, struct err *err)
{
    struct server *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    s->alloc = alloc;
    s->settings = *settings;
    s->started_ns = server_now(s);
    s->created_s = server_unix_time();
    s->n_queue_max = settings->n_connections_max;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    s->queue = alloc_get_array(alloc, s->n_queue_max, sizeof *s->queue, err);
    if (!s->queue) goto fail;
    if (!response_store_new(&s->responses, alloc, settings->clock, err)) goto fail;
    if (!make_own_turns(s, err)) goto fail;
    for (size_t i = 0; i < WORKERS; i++)
        if (!start_worker(s, &s->workers[i], err)) goto fail;
    if (!start_http(s, err)) goto fail;
    *server = s;
    return true;
fail:
    server_stop(s);
    return false;
}

void server_drain(struct server *server)
{
    atomic_store(&server->is_draining, true);
    httpd_quiesce(server->http);
}

void server_stop(struct server *server)
{
    struct server *s = server;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < WORKERS; i++)
        if (s->workers[i].has_thread) pthread_join(s->workers[i].thread, NULL);
    httpd_stop(s->http);
    ASSERT(!s->calls);
    free_of_models(s);
    response_store_free(s->responses);
    alloc_put(s->alloc, s->queue);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    alloc_put(s->alloc, s);
}

uint16_t server_port(const struct server *server)
{
    return httpd_port(server->http);
}
const char *server_address(const struct server *server)
{
    return httpd_address(server->http);
}
