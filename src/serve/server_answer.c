/* What routes ask of a server: the time, a line of the log, an answer in the shape of the request's family. */
#include "serve/server_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum { ANSWER_BYTES_MAX = 1 << 30, LINE_BYTES_MAX = 1024 };

int64_t server_now(const struct server *server)
{
    return clock_now_ns(server->settings.clock);
}

int64_t server_unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

void server_log(struct server *server, const char *format, ...)
{
    char line[LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    server->settings.log(server->settings.context, line);
}

/* --- answers --- */

void server_refuse(struct httpd_exchange *exchange, const struct problem *problem)
{
    const struct visit *visit = httpd_user(exchange);
    struct server *server = visit->server;
    struct buf body;
    struct err err = {0};
    char seconds[16];
    buf_init(&body, server->alloc, ANSWER_BYTES_MAX);
    if (!problem_write(problem, visit->family, httpd_id(exchange), &body, &err)) buf_clear(&body);
    unsigned status = problem_status(problem, visit->family), retry = problem->retry_after_s;
    if (retry == 0 && (status == 503 || status == 529)) retry = 5;
    if (retry > 0) {
        snprintf(seconds, sizeof seconds, "%u", retry);
        httpd_set_header(exchange, "Retry-After", seconds);
    }
    if (status >= 500) server_log(server, "event=failed id=%s code=%s", httpd_id(exchange), problem_code(problem));
    httpd_reply(exchange, status, "application/json", &body);
    buf_fini(&body);
}

void server_reply(struct httpd_exchange *exchange, struct buf *body, bool ok, const struct err *err)
{
    struct problem problem;
    if (ok) {
        httpd_reply(exchange, 200, "application/json", body);
        return;
    }
    buf_fini(body);
    problem_from(&problem, PROBLEM_INVALID_VALUE, err);
    server_refuse(exchange, &problem);
}
