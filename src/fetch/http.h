#ifndef FETCH_HTTP_H
#define FETCH_HTTP_H
/* A few HTTP GETs at once, over libcurl, which is opened on first use and by nobody else.
 *
 * Redirects are followed; the token goes to the host, port and scheme of the request's own URL and nowhere else, and
 * appears in no message. Nothing is retried here: a finished transfer says whether trying again can help. The
 * environment is not looked at (proxies are options). One thread; callbacks run inside http_wait. */
#include "base/alloc.h"
#include <stddef.h>
#include <stdint.h>

enum { HTTP_TRANSFERS_MAX = 16 };
#define HTTP_UNKNOWN UINT64_MAX

struct http;

struct http_options {
    const char *agent;                   /* who asks: "weir/0.1.0" */
    const char *proxy, *no_proxy;        /* a URL, and hosts with commas between them; either may be NULL */
    bool allows_plain;                   /* http as well as https, which is otherwise all that is spoken */
    unsigned connect_s_max, stall_s_max; /* a connection that takes longer, or brings nothing for so long, has failed */
};

/* What the final answer (behind all redirects) said in front of its body. */
struct http_answer {
    unsigned status;
    bool has_range;                                /* it had a Content-Range */
    uint64_t range_first, range_last, range_total; /* HTTP_UNKNOWN where it did not say */
    uint64_t retry_after_s;                        /* 0: not said */
};

struct http_request {
    const char *url, *token; /* token may be NULL */
    uint64_t first, bytes;   /* the range to ask for; bytes 0: everything, without a range */
    void *context;
    /* Either may return false, which ends the transfer as stopped. `begins` comes once, in front of the first body
     * byte; an answer without a body brings none. */
    bool (*begins)(void *context, const struct http_answer *answer);
    bool (*takes)(void *context, const void *data, size_t bytes);
};

struct http_done {
    void *context; /* of the request */
    struct http_answer answer;
    bool ok;         /* an answer came, whatever its status, and its body was whole */
    bool is_stopped; /* a callback wanted that */
    bool can_retry;  /* neither, but another attempt may work */
    char text[256];  /* what went wrong; else empty */
};

/* `options` is kept and outlives the http. */
bool http_new(struct http **http, struct alloc *alloc, const struct http_options *options, struct err *err) MUST_CHECK;
void http_free(struct http *http); /* NULL is fine; transfers under way are dropped */

/* At most HTTP_TRANSFERS_MAX at once. The request's URL and token are copied. */
bool http_start(struct http *http, const struct http_request *request, struct err *err) MUST_CHECK;
void http_cancel(struct http *http, const void *context); /* the transfer of this context, if there is one: no done */
unsigned http_active(const struct http *http);

/* Moves bytes; waits up to wait_ms for some. */
bool http_wait(struct http *http, int wait_ms, struct err *err) MUST_CHECK;

/* Transfers that have finished, one a call, each once. */
bool http_take_done(struct http *http, struct http_done *done);

#endif
