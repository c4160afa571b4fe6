#include "fetch/http.h"

#include "base/assert.h"
#include "fetch/curl_api.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define REDIRECTS_MAX 10L
#define RECEIVE_BYTES (512L << 10)

struct transfer {
    struct http *http;
    CURL *easy;
    bool is_active;
    bool has_begun;
    bool is_stopped;
    struct http_request request; /* url and token are NULL: libcurl has its own copies */
    struct http_answer answer;
    char text[CURL_ERROR_SIZE];
};

struct http {
    struct alloc *alloc;
    const struct http_options *options;
    struct curl_api curl;
    bool is_ready; /* curl's global state */
    CURLM *multi;
    struct curl_slist *headers;
    struct transfer transfers[HTTP_TRANSFERS_MAX];
};

/* --- what an answer says --- */

static const struct http_answer no_answer = {
    .range_first = HTTP_UNKNOWN, .range_last = HTTP_UNKNOWN, .range_total = HTTP_UNKNOWN};

static uint64_t read_number(const char **text)
{
    uint64_t value = 0;
    if (**text < '0' || **text > '9') return HTTP_UNKNOWN;
    for (; **text >= '0' && **text <= '9'; ++*text) {
        if (value > (UINT64_MAX - 10) / 10) return HTTP_UNKNOWN;
        value = value * 10 + (uint64_t)(**text - '0');
    }
    return value;
}

/* "bytes 0-99/1234", with a star for the whole length where it is not known, or for the range where there is none. */
static void read_range(struct http_answer *answer, const char *text)
{
    text += strspn(text, " \t");
    if (strncasecmp(text, "bytes ", 6) != 0) return;
    text += 6;
    answer->has_range = true;
    if (*text == '*') {
        text++;
    } else {
        answer->range_first = read_number(&text);
        if (*text == '-') text++;
        answer->range_last = read_number(&text);
    }
    if (*text != '/') return;
    text++;
    answer->range_total = read_number(&text);
}

/* Every answer on the way, redirects included, brings its headers here: a status line starts over. */
static size_t take_header(char *data, size_t size, size_t n, void *context)
{
    struct transfer *t = context;
    char line[256];
    static const char range[] = "content-range:";
    size_t bytes = size * n;
    snprintf(line, sizeof line, "%.*s", bytes < sizeof line ? (int)bytes : (int)sizeof line - 1, data);
    if (strncmp(line, "HTTP/", 5) == 0) t->answer = no_answer;
    if (strncasecmp(line, range, sizeof range - 1) == 0) read_range(&t->answer, line + sizeof range - 1);
    return bytes;
}

static void complete_answer(struct transfer *t)
{
    long status = 0;
    curl_off_t wait_s = 0;
    t->http->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->http->curl.easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &wait_s);
    t->answer.status = (unsigned)status;
    t->answer.retry_after_s = wait_s > 0 ? (uint64_t)wait_s : 0;
}

static size_t take_body(char *data, size_t size, size_t n, void *context)
{
    struct transfer *t = context;
    const struct http_request *r = &t->request;
    if (!t->has_begun) {
        t->has_begun = true;
        complete_answer(t);
        t->is_stopped = r->begins && !r->begins(r->context, &t->answer);
    }
    if (!t->is_stopped) t->is_stopped = !r->takes(r->context, data, size * n);
    return t->is_stopped ? 0 : size * n; /* less than all makes libcurl end it */
}

/* --- transfers --- */

static bool set_options(struct transfer *t, const struct http_request *r)
{
    const struct curl_api *curl = &t->http->curl;
    const struct http_options *o = t->http->options;
    CURL *easy = t->easy;
    const long protocols = CURLPROTO_HTTPS | (o->allows_plain ? CURLPROTO_HTTP : 0);
    bool ok = true;
#define SET(option, value) ok = ok && curl->easy_setopt(easy, option, value) == CURLE_OK
    SET(CURLOPT_URL, r->url);
    SET(CURLOPT_PROTOCOLS, protocols);
    SET(CURLOPT_REDIR_PROTOCOLS, protocols);
    SET(CURLOPT_FOLLOWLOCATION, 1L);
    SET(CURLOPT_MAXREDIRS, REDIRECTS_MAX);
    SET(CURLOPT_USERAGENT, o->agent);
    SET(CURLOPT_HTTPHEADER, t->http->headers);
    SET(CURLOPT_PROXY, o->proxy ? o->proxy : ""); /* empty, not unset: then libcurl does not look for it itself */
    SET(CURLOPT_NOPROXY, o->no_proxy ? o->no_proxy : "");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* ranges side by side need connections of their own */
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    SET(CURLOPT_CONNECTTIMEOUT, (long)o->connect_s_max);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)o->stall_s_max);
    SET(CURLOPT_ERRORBUFFER, t->text);
    SET(CURLOPT_HEADERFUNCTION, take_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_WRITEFUNCTION, take_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_PRIVATE, t);
    if (r->token) { /* not a header of ours: this way libcurl drops it when a redirect leads to another host */
        SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        SET(CURLOPT_XOAUTH2_BEARER, r->token);
    }
    if (r->bytes > 0) {
        char range[64];
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, r->first, r->first + r->bytes - 1);
        SET(CURLOPT_RANGE, range);
    }
#undef SET
    return ok;
}

bool http_start(struct http *http, const struct http_request *request, struct err *err)
{
    struct transfer *t = http->transfers;
    while (t->is_active) {
        t++;
        ASSERT(t < http->transfers + HTTP_TRANSFERS_MAX);
    }
    CURL *easy = http->curl.easy_init();
    *t = (struct transfer){.http = http, .easy = easy, .request = *request, .answer = no_answer};
    if (!easy) return err_set(err, ERR_NOMEM, "out of memory: libcurl could not start a transfer");
    if (!set_options(t, request)) {
        http->curl.easy_cleanup(easy);
        return err_set(err, ERR_NOMEM, "libcurl refuses to prepare a transfer");
    }
    CURLMcode code = http->curl.multi_add_handle(http->multi, easy);
    if (code != CURLM_OK) {
        http->curl.easy_cleanup(easy);
        return err_set(err, ERR_FAILED, "libcurl refuses to start a transfer: %s", http->curl.multi_strerror(code));
    }
    t->request.url = t->request.token = NULL;
    t->is_active = true;
    return true;
}

/* Connections belong to the multi handle and live on. The easy handle is not used again: after a failed look-up of a
 * name it keeps a buffer and refuses options. */
static void end_transfer(struct transfer *t)
{
    t->http->curl.multi_remove_handle(t->http->multi, t->easy);
    t->http->curl.easy_cleanup(t->easy);
    t->easy = NULL;
    t->is_active = false;
}

void http_cancel(struct http *http, const void *context)
{
    for (int i = 0; i < HTTP_TRANSFERS_MAX; i++) {
        struct transfer *t = &http->transfers[i];
        if (t->is_active && t->request.context == context) end_transfer(t);
    }
}

unsigned http_active(const struct http *http)
{
    unsigned n = 0;
    for (int i = 0; i < HTTP_TRANSFERS_MAX; i++) n += http->transfers[i].is_active;
    return n;
}

bool http_wait(struct http *http, int wait_ms, struct err *err)
{
    int n_running = 0;
    CURLMcode code = http->curl.multi_perform(http->multi, &n_running);
    if (code == CURLM_OK && n_running > 0 && wait_ms > 0)
        code = http->curl.multi_poll(http->multi, NULL, 0, wait_ms, NULL);
    if (code == CURLM_OK) return true;
    return err_set(err, ERR_FAILED, "libcurl failed: %s", http->curl.multi_strerror(code));
}

static bool may_work_again(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR: return true;
    default: return false;
    }
}

bool http_take_done(struct http *http, struct http_done *done)
{
    int n_left;
    CURLMsg *message;
    do {
        message = http->curl.multi_info_read(http->multi, &n_left);
        if (!message) return false;
    } while (message->msg != CURLMSG_DONE);
    CURLcode code = message->data.result;
    struct transfer *t = NULL;
    http->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
    ASSERT(t);
    ASSERT(t->is_active);
    complete_answer(t);
    *done = (struct http_done){
        .context = t->request.context, .answer = t->answer, .ok = code == CURLE_OK, .is_stopped = t->is_stopped};
    done->can_retry = !done->ok && !done->is_stopped && may_work_again(code);
    if (!done->ok && !done->is_stopped)
        snprintf(done->text, sizeof done->text, "%.255s", t->text[0] ? t->text : http->curl.easy_strerror(code));
    end_transfer(t);
    return true;
}

/* --- the whole --- */

bool http_new(struct http **http, struct alloc *alloc, const struct http_options *options, struct err *err)
{
    struct http *h = alloc_get(alloc, sizeof *h, err);
    if (!h) return false;
    h->alloc = alloc;
    h->options = options;
    if (!curl_api_open(&h->curl, err)) goto fail;
    if (h->curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        err_set(err, ERR_FAILED, "libcurl could not start");
        goto fail;
    }
    h->is_ready = true;
    h->multi = h->curl.multi_init();
    /* Ranges count the bytes of the file itself, so it must come as it is. */
    h->headers = h->curl.slist_append(NULL, "Accept-Encoding: identity");
    if (!h->multi || !h->headers) {
        err_set(err, ERR_NOMEM, "out of memory: libcurl could not start");
        goto fail;
    }
    *http = h;
    return true;
fail:
    http_free(h);
    return false;
}

void http_free(struct http *http)
{
    if (!http) return;
    for (int i = 0; i < HTTP_TRANSFERS_MAX; i++) {
        struct transfer *t = &http->transfers[i];
        if (t->is_active) end_transfer(t);
    }
    if (http->multi) http->curl.multi_cleanup(http->multi);
    if (http->headers) http->curl.slist_free_all(http->headers);
    if (http->is_ready) http->curl.global_cleanup();
    alloc_put(http->alloc, http);
}
