#include "serve/small_api.h"

#include "serve/call.h"
#include "serve/drafts_json.h"
#include "serve/jot.h"
#include <string.h>

enum { BODY_BYTES_MAX = 1 << 20, MODEL_NAMES_BYTES = 512 };

static struct jot start(struct buf *body, struct server *server)
{
    buf_init(body, server->alloc, BODY_BYTES_MAX);
    return jot_to(body);
}

static void finish(struct httpd_exchange *exchange, struct jot *json)
{
    struct err err = {0};
    bool ok = jot_end(json, &err);
    server_reply(exchange, json->out, ok, &err);
    buf_fini(json->out);
}

/* With several models it is well while one of them can be asked. */
static enum service_state state_of_all(const struct server *server)
{
    const struct server_settings *s = &server->settings;
    enum service_state all = SERVICE_DOWN;
    for (size_t i = 0; i < s->n_models; i++) {
        enum service_state state = service_state(s->models[i].service, NULL);
        if (s->n_models == 1 || state == SERVICE_STOPPING) return state;
        if (state != SERVICE_DOWN) all = SERVICE_READY;
    }
    return atomic_load(&server->is_draining) ? SERVICE_STOPPING : all;
}

void small_health(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    struct err err = {0};
    static const struct {
        unsigned status;
        const char *word;
    } states[] = {
        [SERVICE_LOADING] = {503, "loading"},    [SERVICE_READY] = {200, "ok"},
        [SERVICE_FAILED] = {503, "error"},       [SERVICE_STOPPING] = {503, "shutting_down"},
        [SERVICE_RESTARTING] = {503, "loading"}, [SERVICE_DOWN] = {503, "error"},
        [SERVICE_PARKED] = {200, "ok"},
    };
    (void)worker;
    enum service_state state = state_of_all(server);
    struct jot json = start(&body, server);
    jot_open(&json);
    jot_put_words(&json, "status", states[state].word);
    jot_close(&json);
    if (!jot_end(&json, &err)) buf_clear(&body);
    httpd_reply(exchange, states[state].status, "application/json", &body);
    buf_fini(&body);
}

void small_root(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    (void)worker;
    struct jot json = start(&body, server);
    jot_open(&json);
    jot_put_words(&json, "server", "weir");
    jot_put_words(&json, "model", server->settings.models[0].name);
    jot_close(&json);
    finish(exchange, &json);
}

/* --- models --- */

/* One object that OpenAI, Anthropic and vLLM readers all understand. */
static void put_entry(struct jot *json, const struct server *server, const struct served_model *s)
{
    static const char *const states[] = {
        [SERVICE_LOADING] = "loading", [SERVICE_READY] = "open",         [SERVICE_FAILED] = "error",
        [SERVICE_STOPPING] = "open",   [SERVICE_RESTARTING] = "loading", [SERVICE_DOWN] = "error",
        [SERVICE_PARKED] = "closed",
    };
    jot_open(json);
    jot_put_words(json, "id", s->name);
    jot_put_words(json, "object", "model");
    jot_put_words(json, "type", "model");
    jot_put_integer(json, "created", server->created_s);
    jot_put_integer(json, "created_at", server->created_s);
    jot_put_words(json, "owned_by", "weir");
    jot_put_words(json, "display_name", s->name);
    jot_put_integer(json, "context_length", s->context_tokens);
    jot_put_integer(json, "max_model_len", s->context_tokens);
    jot_put_integer(json, "max_output_tokens", s->context_tokens - 1);
    drafts_put_mode(json, s);
    if (server->settings.n_models > 1) jot_put_words(json, "state", states[service_state(s->service, NULL)]);
    jot_close(json);
}

static void put_levels(struct jot *json)
{
    static const char *const levels[][2] = {
        {"none", "No thinking"}, {"high", "Thinks before it answers"}, {"max", "Thinks as long as it likes"}};
    jot_put_open_list(json, "supported_reasoning_levels");
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        jot_open(json);
        jot_put_words(json, "effort", levels[i][0]);
        jot_put_words(json, "description", levels[i][1]);
        jot_close(json);
    }
    jot_close_list(json);
}

static void put_empty_list(struct jot *json, const char *key)
{
    jot_put_open_list(json, key);
    jot_close_list(json);
}

/* The form that one coding agent reads; without it, it guesses. */
static void put_catalogue_entry(struct jot *json, const struct served_model *s)
{
    jot_open(json);
    jot_put_words(json, "slug", s->name);
    jot_put_words(json, "display_name", s->name);
    jot_put_words(json, "description", "Served by weir");
    jot_put_words(json, "default_reasoning_level", s->chat.thinking ? "max" : "none");
    put_levels(json);
    jot_put_words(json, "shell_type", "shell_command");
    jot_put_words(json, "visibility", "list");
    jot_put_bool(json, "supported_in_api", true);
    jot_put_integer(json, "priority", 0);
    put_empty_list(json, "additional_speed_tiers");
    jot_put_null(json, "availability_nux");
    jot_put_null(json, "upgrade");
    jot_put_words(json, "base_instructions", "");
    jot_put_bool(json, "supports_reasoning_summaries", true);
    jot_put_words(json, "default_reasoning_summary", "none");
    jot_put_bool(json, "support_verbosity", false);
    jot_put_null(json, "default_verbosity");
    jot_put_null(json, "apply_patch_tool_type");
    jot_put_words(json, "web_search_tool_type", "text");
    jot_put_open(json, "truncation_policy");
    jot_put_words(json, "mode", "tokens");
    jot_put_integer(json, "limit", s->context_tokens);
    jot_close(json);
    jot_put_bool(json, "supports_parallel_tool_calls", true);
    jot_put_bool(json, "supports_image_detail_original", false);
    jot_put_integer(json, "context_window", s->context_tokens);
    jot_put_integer(json, "max_context_window", s->context_tokens);
    jot_put_integer(json, "effective_context_window_percent", 95);
    put_empty_list(json, "experimental_supported_tools");
    jot_put_open_list(json, "input_modalities");
    jot_words(json, "text");
    jot_close_list(json);
    jot_put_bool(json, "supports_search_tool", false);
    jot_close(json);
}

void small_models(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    const struct served_model *models = server->settings.models;
    size_t n = server->settings.n_models;
    (void)worker;
    struct jot json = start(&body, server);
    jot_open(&json);
    jot_put_words(&json, "object", "list");
    jot_put_open_list(&json, "data");
    for (size_t i = 0; i < n; i++) put_entry(&json, server, &models[i]);
    jot_close_list(&json);
    jot_put_bool(&json, "has_more", false);
    jot_put_words(&json, "first_id", models[0].name);
    jot_put_words(&json, "last_id", models[n - 1].name);
    jot_put_open_list(&json, "models");
    for (size_t i = 0; i < n; i++) put_catalogue_entry(&json, &models[i]);
    jot_close_list(&json);
    jot_close(&json);
    finish(exchange, &json);
}

void small_model(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    struct problem problem;
    const struct visit *visit = httpd_user(exchange);
    (void)worker;
    const struct served_model *model = server_find_model(server, visit->target);
    if (server->settings.strict_model && !model) {
        char ours[MODEL_NAMES_BYTES];
        server_list_models(server, ours, sizeof ours);
        problem_set(&problem, PROBLEM_MODEL_NOT_FOUND, "model", "there is no model '%.100s' here, only %s",
                    visit->target, ours);
        server_refuse(exchange, &problem);
        return;
    }
    struct jot json = start(&body, server);
    put_entry(&json, server, model ? model : server->settings.models);
    finish(exchange, &json);
}

/* --- requests that go on --- */

static void answer_found(struct server *server, struct httpd_exchange *exchange, bool is_found)
{
    struct buf body;
    struct problem problem;
    const struct visit *visit = httpd_user(exchange);
    if (!is_found) {
        problem_set(&problem, PROBLEM_NOT_FOUND, NULL, "there is no request '%.100s' that goes on", visit->target);
        server_refuse(exchange, &problem);
        return;
    }
    struct jot json = start(&body, server);
    jot_open(&json);
    jot_put_words(&json, "id", visit->target);
    jot_put_bool(&json, "done", true);
    jot_close(&json);
    finish(exchange, &json);
}

void small_cancel(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    const struct visit *visit = httpd_user(exchange);
    (void)worker;
    answer_found(server, exchange, call_cancel(server, visit->target));
}

void small_end_thinking(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    const struct visit *visit = httpd_user(exchange);
    (void)worker;
    answer_found(server, exchange, call_end_thinking(server, visit->target));
}
