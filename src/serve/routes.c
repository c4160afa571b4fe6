#include "serve/routes.h"

#include "serve/chat_api.h"
#include "serve/completions_api.h"
#include "serve/messages_api.h"
#include "serve/responses_api.h"
#include "serve/small_api.h"
#include <stdio.h>
#include <string.h>

static void serve_chat(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    call_serve(server, worker, exchange, &chat_protocol);
}

static void serve_completions(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    call_serve(server, worker, exchange, &completions_protocol);
}

static void serve_messages(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    call_serve(server, worker, exchange, &messages_protocol);
}

static void serve_responses(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    call_serve(server, worker, exchange, &responses_protocol);
}

static const struct route routes[] = {
    {"/chat/completions", METHOD_POST, .serve = serve_chat},
    {"/completions", METHOD_POST, .serve = serve_completions},
    {"/messages", METHOD_POST, .is_anthropic = true, .serve = serve_messages},
    {"/messages/count_tokens", METHOD_POST, .is_anthropic = true, .serve = messages_count_tokens},
    {"/responses", METHOD_POST, .serve = serve_responses},
    {"/responses/*/input_items", METHOD_GET, .serve = responses_input_items},
    {"/responses/*/cancel", METHOD_POST, .is_quick = true, .serve = responses_cancel},
    {"/responses/*", METHOD_GET, .serve = responses_get},
    {"/responses/*", METHOD_DELETE, .serve = responses_delete},
    {"/models", METHOD_GET, .is_quick = true, .serve = small_models},
    {"/models/*", METHOD_GET, .is_quick = true, .serve = small_model},
    {"/tokenize", METHOD_POST, .serve = small_tokenize},
    {"/detokenize", METHOD_POST, .serve = small_detokenize},
    {"/apply-template", METHOD_POST, .serve = small_apply_template},
    {"/stats", METHOD_GET, .is_quick = true, .serve = small_stats},
    {"/metrics", METHOD_GET, .is_quick = true, .serve = small_metrics},
    {"/fit", METHOD_GET, .is_quick = true, .serve = small_fit},
    {"/requests/*/cancel", METHOD_POST, .is_quick = true, .serve = small_cancel},
    {"/requests/*/end_thinking", METHOD_POST, .is_quick = true, .serve = small_end_thinking},
    {"/admin/budget", METHOD_POST, .is_quick = true, .serve = admin_budget},
    {"/admin/budget", METHOD_GET, .is_quick = true, .serve = admin_budget},
    {"/health", METHOD_GET, .is_quick = true, .is_open = true, .serve = small_health},
    {"/", METHOD_GET, .is_quick = true, .is_open = true, .serve = small_root},
    {"/embeddings", METHOD_ANY, .is_refused = true},
    {"/audio/*", METHOD_ANY, .is_refused = true},
    {"/images/*", METHOD_ANY, .is_refused = true},
    {"/moderations", METHOD_ANY, .is_refused = true},
    {"/fine_tuning/*", METHOD_ANY, .is_refused = true},
    {"/files", METHOD_ANY, .is_refused = true},
    {"/files/*", METHOD_ANY, .is_refused = true},
    {"/batches", METHOD_ANY, .is_refused = true},
    {"/batches/*", METHOD_ANY, .is_refused = true},
    {"/adapters", METHOD_ANY, .is_refused = true},
    {"/adapters/*", METHOD_ANY, .is_refused = true},
};

/* A * takes one segment in the middle of a path, and the rest of it at the end. */
static bool matches(const char *pattern, const char *path, size_t bytes, char target[160])
{
    const char *star = strchr(pattern, '*');
    size_t n = strlen(pattern);
    if (!star) return n == bytes && memcmp(pattern, path, n) == 0;
    size_t before = (size_t)(star - pattern), after = n - before - 1;
    if (bytes < before + after + 1 || memcmp(pattern, path, before) != 0 ||
        memcmp(star + 1, path + bytes - after, after) != 0)
        return false;
    size_t inside = bytes - before - after;
    if (after > 0 && memchr(path + before, '/', inside)) return false;
    snprintf(target, 160, "%.*s", (int)(inside < 160 ? inside : 159), path + before);
    return true;
}

const struct route *routes_find(const char *path, unsigned method, unsigned *methods, char target[160])
{
    size_t bytes;
    if (strncmp(path, "/v1/", 4) == 0) path += 3;
    bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    *methods = 0;
    target[0] = 0;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!matches(routes[i].path, path, bytes, target)) continue;
        if (routes[i].method & method) return &routes[i];
        *methods |= routes[i].method;
    }
    return NULL;
}

const char *routes_allow(unsigned methods, char text[64])
{
    snprintf(text, 64, "%s%s%sOPTIONS", methods & METHOD_GET ? "GET, HEAD, " : "",
             methods & METHOD_POST ? "POST, " : "", methods & METHOD_DELETE ? "DELETE, " : "");
    return text;
}

unsigned routes_method(const char *method)
{
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) return METHOD_GET;
    if (strcmp(method, "POST") == 0) return METHOD_POST;
    return strcmp(method, "DELETE") == 0 ? METHOD_DELETE : 0;
}
