/* A call's states, on the net thread:
 *
 *   waiting     submitted; nothing was said to the client yet
 *   committed   the 200 of a stream is out, and `begin` was written; or the 200 of a whole answer that is kept alive
 *   complete    every prompt is answered
 *   final       the last bytes are in call->out
 *
 * Until it is committed a failure is an answer with a status of its own; afterwards it is an event of the stream. */
#include "serve/call.h"

#include "base/assert.h"
#include "fmt/json_doc.h"
#include "run/random.h"
#include "serve/fields.h"
#include "serve/own_turns.h"
#include <inttypes.h>
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES_MAX (UINT64_C(256) << 20)
#define OUT_BYTES_MAX (UINT64_C(256) << 20)
#define WHOLE_EVENTS_BYTES_MAX (UINT64_C(256) << 20) /* of an answer that is not streamed: it waits for nobody */

enum { ITEMS_MAX = 65536, COMMIT_MS = 2000, OUT_FULL = 64 << 10, MODEL_NAMES_BYTES = 512 };

/* --- life --- */

void call_forget_items(struct call *call)
{
    for (size_t i = 0; i < call->n_items; i++) {
        buf_fini(&call->items[i].text);
        buf_fini(&call->items[i].logprobs);
    }
    call->n_items = 0;
}

static void call_put(struct call *call)
{
    if (atomic_fetch_sub(&call->holders, 1) != 1) return;
    struct alloc *alloc = call->server->alloc;
    call_forget_items(call);
    for (size_t i = 0; i < 4; i++) {
        buf_fini(&call->list[i]);
        buf_fini(&call->pending[i]);
    }
    alloc_put(alloc, call->items);
    buf_fini(&call->text);
    buf_fini(&call->out);
    tools_fini(&call->tools);
    constraint_drop(call->constraint);
    token_list_fini(&call->ids);
    json_object_put(call->messages);
    json_object_put(call->input_items);
    json_object_put(call->body);
    arena_fini(&call->arena);
    httpd_release(call->exchange);
    alloc_put(alloc, call);
}

static void see_release(void *context)
{
    call_put(context);
}

static void see_wake(void *context)
{
    const struct call *call = context;
    httpd_wake(call->exchange);
}

static struct call *call_new(struct server *server, struct httpd_exchange *exchange, const struct protocol *protocol)
{
    struct alloc *alloc = server->alloc;
    struct call *call = alloc_get(alloc, sizeof *call, NULL);
    if (!call) return NULL;
    call->server = server;
    call->exchange = exchange;
    call->protocol = protocol;
    atomic_store(&call->holders, 1);
    httpd_hold(exchange);
    arena_init(&call->arena, alloc, ARENA_BYTES_MAX);
    token_list_init(&call->ids, alloc, server->settings.body_bytes_max);
    buf_init(&call->out, alloc, OUT_BYTES_MAX);
    buf_init(&call->text, alloc, OUT_BYTES_MAX);
    for (size_t i = 0; i < 4; i++) {
        buf_init(&call->list[i], alloc, OUT_BYTES_MAX);
        buf_init(&call->pending[i], alloc, OUT_BYTES_MAX);
    }
    call->model = server->settings.models;
    call->created_s = server_unix_time();
    call->shows_thinking = true;
    name_fresh(call->id, protocol->id_prefix);
    return call;
}

static void enlist(struct call *call)
{
    struct server *server = call->server;
    pthread_mutex_lock(&server->lock);
    call->next = server->calls;
    call->link = &server->calls;
    if (call->next) call->next->link = &call->next;
    server->calls = call;
    pthread_mutex_unlock(&server->lock);
}

static void delist(struct call *call)
{
    pthread_mutex_lock(&call->server->lock);
    *call->link = call->next;
    if (call->next) call->next->link = call->link;
    pthread_mutex_unlock(&call->server->lock);
}

/* The exchange is over: whatever still goes on is for nobody. */
static void see_closed(void *context)
{
    struct call *call = context;
    delist(call);
    if (call->ticket) ticket_release(call->ticket);
    call->ticket = NULL;
    call_put(call);
}

typedef void ticket_fn(struct ticket *ticket);

static bool with_ticket(struct server *server, const char *id, ticket_fn *act)
{
    bool found = false;
    pthread_mutex_lock(&server->lock);
    for (struct call *c = server->calls; c; c = c->next) {
        if (strcmp(c->id, id) != 0 && strcmp(httpd_id(c->exchange), id) != 0) continue;
        if (c->ticket) act(c->ticket);
        found = true;
    }
    pthread_mutex_unlock(&server->lock);
    return found;
}

bool call_cancel(struct server *server, const char *id)
{
    return with_ticket(server, id, ticket_cancel);
}
bool call_end_thinking(struct server *server, const char *id)
{
    return with_ticket(server, id, ticket_end_thinking);
}

/* --- submitting --- */

static bool refused(struct call *call, enum service_refusal why, const struct err *err, struct problem *problem)
{
    static const enum problem_kind kinds[] = {
        [SERVICE_NOT_YET] = PROBLEM_LOADING,       [SERVICE_BROKEN] = PROBLEM_ENGINE,
        [SERVICE_CLOSING] = PROBLEM_SHUTTING_DOWN, [SERVICE_FULL] = PROBLEM_QUEUE_FULL,
        [SERVICE_TOO_LONG] = PROBLEM_CONTEXT,      [SERVICE_NO_MEMORY] = PROBLEM_INTERNAL,
    };
    ASSERT(why != SERVICE_TAKEN);
    problem_set(problem, kinds[why], why == SERVICE_TOO_LONG ? call->protocol->input : NULL, "%s", err->text);
    if (why == SERVICE_FULL) problem->retry_after_s = service_retry_after_s(call->model->service);
    return false;
}

static bool submit(struct call *call, struct problem *problem)
{
    struct err err = {0};
    struct ticket *ticket;
    const struct call_prompt *prompt = &call->prompts[call->at_prompt];
    bool has_tools = call->tools.chat.n_tools > 0 && call->tools.choice != TOOLS_NONE;
    const struct service_request request = {
        .prompt = call->ids.ids + prompt->start,
        .n_prompt = prompt->n,
        .sampling = &call->sampling,
        .key = call->key,
        .banned = call->banned,
        .n_banned = call->n_banned,
        .constraint = call->constraint,
        .answer = {.is_chat = call->is_chat,
                   .starts_in_think = call->starts_in_think,
                   .starts_at_once = call->chat.no_generation_prompt || constraint_has_value(call->constraint),
                   .tools = has_tools ? &call->tools.chat : NULL,
                   .one_call = call->tools.one_call},
        .wants_logprobs = call->wants_logprobs,
        .n_top_logprobs = call->n_top_logprobs,
        .wants_prompt_logprobs = call->wants_prompt_logprobs,
        .n_thinking_max = call->n_thinking_max,
        .events_bytes_max = call->streams ? call->server->settings.backlog_bytes_max : WHOLE_EVENTS_BYTES_MAX,
        .wakes_at_end_only = !call->streams && call->server->settings.whole_keep_alive_ns == 0,
        .keeps_ids = has_tools,
        .context = call,
        .wake = see_wake,
        .release = see_release,
    };
    atomic_fetch_add(&call->holders, 1);
    enum service_refusal why = service_submit(call->model->service, &request, &ticket, &err);
    if (why != SERVICE_TAKEN) {
        call_put(call);
        return refused(call, why, &err, problem);
    }
    pthread_mutex_lock(&call->server->lock); /* others may cancel it from now on */
    call->ticket = ticket;
    pthread_mutex_unlock(&call->server->lock);
    call->submitted_ns = server_now(call->server);
    call->has_started = false;
    return true;
}

static void drop_ticket(struct call *call)
{
    pthread_mutex_lock(&call->server->lock);
    struct ticket *ticket = call->ticket;
    call->ticket = NULL;
    pthread_mutex_unlock(&call->server->lock);
    if (ticket) ticket_release(ticket);
}

/* --- what comes back --- */

static struct item *new_item(struct call *call, enum answer_part part, struct err *err)
{
    struct alloc *alloc = call->server->alloc;
    if (call->n_items == call->items_room) {
        size_t room = call->items_room ? 2 * call->items_room : 8;
        if (room > ITEMS_MAX) {
            err_set(err, ERR_FAILED, "an answer of more than %d parts", ITEMS_MAX);
            return NULL;
        }
        struct item *items = alloc_resize(alloc, call->items, room * sizeof *items, err);
        if (!items) return NULL;
        call->items = items;
        call->items_room = room;
    }
    struct item *item = &call->items[call->n_items++];
    *item = (struct item){.part = part};
    buf_init(&item->text, alloc, OUT_BYTES_MAX);
    buf_init(&item->logprobs, alloc, OUT_BYTES_MAX);
    bool is_call = part == ANSWER_CALL;
    name_fresh(item->id, is_call ? call->protocol->call_prefix : call->protocol->item_prefix);
    name_fresh(item->call_id, "call_");
    return item;
}

/* Log-probabilities that waited for the text of their tokens go with it, or nowhere: those of reasoning and calls are
 * not shown. */
static bool take_pending(struct call *call, struct item *item, struct err *err)
{
    const struct buf *pending = &call->pending[0];
    if (call->protocol->take) return call->protocol->take(call, item, err);
    if (item->part != ANSWER_CONTENT || pending->bytes == 0) return true;
    return (item->logprobs.bytes == 0 || buf_add_char(&item->logprobs, ',', err)) &&
           buf_add(&item->logprobs, pending->data, pending->bytes, err);
}

static bool see_part(struct call *call, const struct answer_event *part, struct err *err)
{
    struct item *item = call->n_items ? &call->items[call->n_items - 1] : NULL;
    if (!item || item->part != part->part || part->part == ANSWER_CALL) item = new_item(call, part->part, err);
    if (!item) return false;
    item->tool = part->tool;
    if (!buf_add(&item->text, part->text, part->bytes, err) || !take_pending(call, item, err)) return false;
    bool ok = !call->is_committed || call->protocol->part(call, item, part, err);
    for (size_t i = 0; i < 4; i++) buf_clear(&call->pending[i]);
    return ok;
}

static void count(struct call *call, const struct service_result *result)
{
    struct server_counts *counts = &call->server->counts;
    call->usage.n_prompt += result->usage.n_prompt;
    call->usage.n_cached += result->usage.n_cached;
    call->usage.n_generated += result->usage.n_generated;
    call->usage.n_passes += result->usage.n_passes;
    call->usage.n_drafted += result->usage.n_drafted;
    call->usage.n_accepted += result->usage.n_accepted;
    call->usage.n_forced += result->usage.n_forced;
    call->n_reasoning += result->n_reasoning;
    atomic_fetch_add(&counts->n_answers, 1);
    atomic_fetch_add(&counts->n_prompt_tokens, result->usage.n_prompt);
    atomic_fetch_add(&counts->n_cached_tokens, result->usage.n_cached);
    atomic_fetch_add(&counts->n_answer_tokens, result->usage.n_generated);
    atomic_fetch_add(&counts->n_reasoning_tokens, result->n_reasoning);
    histograms_add(&call->server->histograms, result);
    server_log(call->server,
               "event=answer id=%s reason=%s prompt_tokens=%" PRIu32 " cached_tokens=%" PRIu32 " tokens=%" PRIu32
               " queued_ms=%" PRId64 " prompt_ms=%" PRId64 " decode_ms=%" PRId64,
               httpd_id(call->exchange), stop_reason_name(result->reason), result->usage.n_prompt,
               result->usage.n_cached, result->usage.n_generated, result->queued_ns / 1000000,
               result->prompt_ns / 1000000, result->decode_ns / 1000000);
    if (result->reason == STOP_ERROR)
        server_log(call->server, "event=error id=%s text=\"%s\"", httpd_id(call->exchange), result->err.text);
}

/* True when the answer came to a good end. */
static bool check_result(struct call *call, const struct service_result *result, struct problem *problem)
{
    if (result->reason == STOP_CANCELLED) {
        if (atomic_load(&call->server->is_draining))
            return problem_set(problem, PROBLEM_SHUTTING_DOWN, NULL, "the server is shutting down");
        return problem_set(problem, PROBLEM_CANCELLED, NULL, "the request was cancelled");
    }
    if (result->reason != STOP_ERROR) return true;
    bool is_context = strstr(result->err.text, "maximum context length") != NULL;
    return problem_from(problem, is_context ? PROBLEM_CONTEXT : PROBLEM_MEMORY, &result->err);
}

static bool see_done(struct call *call, const struct service_result *result, struct err *err)
{
    call->result = *result;
    call->result.ids = NULL; /* they go with the ticket */
    count(call, result);
    bool is_good = check_result(call, result, &call->problem);
    if (is_good && result->ids) own_turns_keep_answer(server_own_turns(call->server, call->model), call, result);
    drop_ticket(call);
    if (!is_good) return true;
    if (call->protocol->answered && !call->protocol->answered(call, err)) return false;
    for (size_t i = 0; i < 4; i++) buf_clear(&call->pending[i]);
    call->at_prompt++;
    call->is_complete = call->at_prompt == call->n_prompts;
    if (call->is_complete) return true;
    bool was_taken = submit(call, &call->problem);
    ASSERT(was_taken || call->problem.kind != PROBLEM_NONE);
    return true;
}

static bool see_event(struct call *call, const struct service_event *event, struct err *err)
{
    switch (event->kind) {
    case SERVICE_STARTED:
        call->has_started = true;
        call->n_cached = event->progress.n_cached;
        return true;
    case SERVICE_PROMPT_TOKEN: return !call->protocol->token || call->protocol->token(call, event->sampled, true, err);
    case SERVICE_TOKEN: return !call->protocol->token || call->protocol->token(call, event->sampled, false, err);
    case SERVICE_PART: return see_part(call, &event->part, err);
    case SERVICE_DONE: {
        const struct service_result result = *event->result; /* the event goes with the ticket */
        return see_done(call, &result, err);
    }
    }
    ASSERT(!"an event without a meaning");
    return false;
}

/* Handles one event. False: there is none. */
static bool step(struct call *call)
{
    struct err err = {0};
    const struct service_event *event = call->ticket ? ticket_next(call->ticket) : NULL;
    if (!event) return false;
    if (!see_event(call, event, &err)) {
        server_log(call->server, "event=error id=%s text=\"%s\"", httpd_id(call->exchange), err.text);
        problem_from(&call->problem, PROBLEM_INVALID_VALUE, &err);
        drop_ticket(call);
    }
    return true;
}

/* Waited too long in the queue? */
static void check_queue(struct call *call, int64_t now)
{
    int64_t most = call->server->settings.queue_ns_max;
    if (!call->ticket || call->has_started || now - call->submitted_ns < most) return;
    if (ticket_has_started(call->ticket)) return; /* and the event that says so is on its way */
    drop_ticket(call);
    problem_set(&call->problem, PROBLEM_QUEUE_TIMEOUT, NULL, "it waited %" PRId64 " s in the queue, and was not begun",
                (now - call->submitted_ns) / INT64_C(1000000000));
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t queue_deadline(const struct call *call)
{
    return call->ticket && !call->has_started ? call->submitted_ns + call->server->settings.queue_ns_max : INT64_MAX;
}

/* --- a whole answer --- */

static void reply_whole(struct call *call)
{
    struct err err = {0};
    struct buf body;
    buf_init(&body, call->server->alloc, OUT_BYTES_MAX);
    bool ok = call->protocol->reply(call, &body, &err);
    server_reply(call->exchange, &body, ok, &err);
    buf_fini(&body);
}

/* The same behind a 200 that is out already: a failure is the body too. */
static void finish_whole(struct call *call)
{
    struct err err = {0};
    const struct visit *visit = httpd_user(call->exchange);
    bool ok = call->problem.kind == PROBLEM_NONE && call->protocol->reply(call, &call->out, &err);
    if (!ok) {
        if (call->problem.kind == PROBLEM_NONE) problem_from(&call->problem, PROBLEM_INVALID_VALUE, &err);
        buf_clear(&call->out);
        ok = problem_write(&call->problem, visit->family, httpd_id(call->exchange), &call->out, &err);
    }
    call->is_final = true;
    call->breaks_off = !ok;
}

/* Blanks in front of JSON mean nothing, and show that somebody is there. */
static void add_blank(struct call *call, int64_t now)
{
    struct err err;
    if (now - call->last_ns < call->server->settings.whole_keep_alive_ns) return;
    call->breaks_off = !buf_add_char(&call->out, ' ', &err);
    call->last_ns = now;
}

/* --- a stream --- */

static void set_stream_headers(struct call *call, int64_t now)
{
    char text[32];
    httpd_set_header(call->exchange, "Cache-Control", "no-cache");
    httpd_set_header(call->exchange, "X-Accel-Buffering", "no");
    if (!call->has_started) return;
    snprintf(text, sizeof text, "%" PRId64, (now - call->submitted_ns) / 1000000);
    httpd_set_header(call->exchange, "x-queue-ms", text);
}

static void commit(struct call *call)
{
    struct err err = {0};
    int64_t now = server_now(call->server);
    set_stream_headers(call, now);
    call->last_ns = now;
    if (!call->streams) {
        httpd_stream(call->exchange, 200, "application/json");
        return;
    }
    call->is_committed = true;
    call->breaks_off = !call->protocol->begin(call, &err);
    httpd_stream(call->exchange, 200, "text/event-stream; charset=utf-8");
}

/* The last events. A stream that cannot be written to its end breaks off, which no client takes for success. */
static void finish(struct call *call)
{
    struct err err = {0};
    bool has_failed = call->problem.kind != PROBLEM_NONE;
    bool ok = has_failed ? call->protocol->fail(call, &call->problem, &err) : call->protocol->end(call, &err);
    call->is_final = true;
    if (!ok) call->breaks_off = true;
}

static void keep_alive(struct call *call, int64_t now)
{
    struct err err;
    if (now - call->last_ns < call->server->settings.keep_alive_ns) return;
    if (!call->protocol->keep_alive(call, &err)) call->breaks_off = true;
    call->last_ns = now;
}

static size_t copy_out(struct call *call, char *out, size_t room)
{
    size_t n = call->out.bytes - call->out_at;
    if (n > room) n = room;
    memcpy(out, call->out.data + call->out_at, n);
    call->out_at += n;
    if (call->out_at == call->out.bytes) {
        buf_clear(&call->out);
        call->out_at = 0;
    }
    call->last_ns = server_now(call->server);
    return n;
}

static int64_t silence_ns_max(const struct call *call)
{
    const struct server_settings *settings = &call->server->settings;
    return call->streams ? settings->keep_alive_ns : settings->whole_keep_alive_ns;
}

static enum httpd_flow see_read(void *context, char *out, size_t room, size_t *n, int64_t *wake_ns)
{
    struct call *call = context;
    for (;;) {
        if (call->breaks_off) return HTTPD_CUT;
        if (call->out.bytes > 0) {
            *n = copy_out(call, out, room);
            return call->is_final && call->out.bytes == 0 ? HTTPD_END : HTTPD_MORE;
        }
        if (call->is_final) return HTTPD_END;
        int64_t now = server_now(call->server);
        while (call->problem.kind == PROBLEM_NONE && call->out.bytes < OUT_FULL && step(call)) continue;
        check_queue(call, now);
        bool is_done = call->is_complete || call->problem.kind != PROBLEM_NONE;
        if (is_done)
            call->streams ? finish(call) : finish_whole(call);
        else if (call->out.bytes == 0)
            call->streams ? keep_alive(call, now) : add_blank(call, now);
        if (call->out.bytes > 0 || call->is_final || call->breaks_off) continue;
        *wake_ns = earlier(call->last_ns + silence_ns_max(call), queue_deadline(call));
        return HTTPD_WAIT;
    }
}

static void see_poll(void *context, struct httpd_exchange *exchange, int64_t *wake_ns)
{
    struct call *call = context;
    int64_t now = server_now(call->server), commit_ns = call->submitted_ns + COMMIT_MS * INT64_C(1000000);
    bool commits = call->streams || call->server->settings.whole_keep_alive_ns > 0;
    /* A stream's events are read when it can write them. */
    while (call->problem.kind == PROBLEM_NONE && (!call->streams || !call->has_started) && step(call)) continue;
    check_queue(call, now);
    if (call->problem.kind != PROBLEM_NONE)
        server_refuse(exchange, &call->problem);
    else if (!call->streams && call->is_complete)
        reply_whole(call);
    else if (commits && (call->has_started || now >= commit_ns))
        commit(call);
    else
        *wake_ns = earlier(queue_deadline(call), commits ? commit_ns : INT64_MAX);
}

/* --- decoding --- */

bool call_parse_body(struct json_object **body, struct server *server, struct httpd_exchange *exchange,
                     struct problem *problem)
{
    size_t bytes;
    struct err err = {0};
    const char *text = httpd_body(exchange, &bytes);
    static const char mark[] = "\xEF\xBB\xBF";
    struct json_rules rules = json_rules_request;
    rules.bytes_max = server->settings.body_bytes_max;
    if (bytes >= 3 && memcmp(text, mark, 3) == 0) text += 3, bytes -= 3;
    *body = NULL;
    if (bytes == 0) return problem_set(problem, PROBLEM_INVALID_JSON, NULL, "the body is empty; it must be JSON");
    if (!json_doc_parse(body, server->alloc, &rules, "body", text, bytes, &err))
        return problem_from(problem, PROBLEM_INVALID_JSON, &err);
    if (json_object_is_type(*body, json_type_object)) return true;
    json_object_put(*body);
    *body = NULL;
    return problem_set(problem, PROBLEM_INVALID_JSON, NULL, "the body must be a JSON object");
}

/* Members that mean the same everywhere. */
static const struct field_rule common_rules[] = {
    {"model", FIELD_READ, NULL},
    {"stream", FIELD_READ, NULL},
    {"n", FIELD_READ, NULL},
    {"best_of", FIELD_READ, NULL},
    {"user", FIELD_IGNORED, NULL},
    {"metadata", FIELD_IGNORED, NULL},
    {"service_tier", FIELD_IGNORED, NULL},
    {"cache_control", FIELD_IGNORED, NULL},
    {"prompt_cache_key", FIELD_IGNORED, NULL},
    {"prompt_cache_retention", FIELD_IGNORED, NULL},
    {"safety_identifier", FIELD_IGNORED, NULL},
    {"client_metadata", FIELD_IGNORED, NULL},
    {"prediction", FIELD_IGNORED, NULL},
    {"cache_prompt", FIELD_IGNORED, NULL},
    {"structural_tag", FIELD_NEVER, NULL},
    {"guided_whitespace_pattern", FIELD_READ, NULL},
    {"guided_json", FIELD_READ, NULL},
    {"guided_regex", FIELD_READ, NULL},
    {"guided_choice", FIELD_READ, NULL},
    {"guided_grammar", FIELD_READ, NULL},
    {"grammar", FIELD_READ, NULL},
    {"structured_outputs", FIELD_READ, NULL},
    {NULL, FIELD_READ, NULL},
};

/* The model that the body names, if it is one of ours. What is wrong with that member comes out when it is read. */
static void choose_model(struct call *call)
{
    struct json_object *name = json_object_object_get(call->body, "model");
    bool is_text = json_object_is_type(name, json_type_string);
    const struct served_model *found = is_text ? server_find_model(call->server, json_object_get_string(name)) : NULL;
    if (found) call->model = found;
    call->chat = call->model->chat;
}

static bool check_model(const struct call *call, struct problem *problem)
{
    const char *name = NULL;
    char ours[MODEL_NAMES_BYTES];
    if (!field_text(call->body, "model", &name, problem)) return false;
    if (!name || !call->server->settings.strict_model || server_find_model(call->server, name)) return true;
    server_list_models(call->server, ours, sizeof ours);
    return problem_set(problem, PROBLEM_MODEL_NOT_FOUND, "model", "model: there is no '%.100s' here, only %s", name,
                       ours);
}

static bool check_single(const struct call *call, const char *name, struct problem *problem)
{
    int64_t n = 1;
    if (!field_integer(call->body, name, INT64_MIN, INT64_MAX, &n, problem)) return false;
    return n == 1 || problem_set(problem, PROBLEM_UNSUPPORTED, name, "%s: only 1 is supported", name);
}

bool call_read_common(struct call *call, const struct field_rule *rules, struct problem *problem)
{
    const struct field_rules all = {.rules = {rules, common_rules}, .strict = call->server->settings.strict_fields};
    return fields_read(call->body, &all, &call->sampling, &call->arena, problem) && check_model(call, problem) &&
           field_bool(call->body, "stream", &call->streams, problem) && check_single(call, "n", problem) &&
           check_single(call, "best_of", problem);
}

/* Types alone: what the words and their precedence mean is fmt's. */
bool call_check_thinking(struct call *call, struct problem *problem)
{
    bool flag;
    const char *word;
    struct json_object *object = NULL, *thinking = json_object_object_get(call->body, "thinking");
    if (thinking && !json_object_is_type(thinking, json_type_object) &&
        !json_object_is_type(thinking, json_type_boolean))
        return problem_set(problem, PROBLEM_INVALID_TYPE, "thinking", "thinking: must be an object, or true or false");
    return field_bool(call->body, "enable_thinking", &flag, problem) &&
           field_bool(call->body, "clear_thinking", &flag, problem) &&
           field_text(call->body, "reasoning_effort", &word, problem) &&
           field_object(call->body, "reasoning", &object, problem) &&
           field_object(call->body, "chat_template_kwargs", &object, problem);
}

/* The names that a client may have used for the limit, the stronger first. */
static const char *limit_name(const struct call *call)
{
    static const char *const names[] = {"max_completion_tokens", "max_output_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_object_get(call->body, names[i])) return names[i];
    return "max_tokens";
}

bool call_read_tools(struct call *call, enum tools_wire wire, struct problem *problem)
{
    const struct tools_reader reader = {.alloc = call->server->alloc,
                                        .arena = &call->arena,
                                        .wire = wire,
                                        .strict = call->server->settings.strict_fields};
    return tools_read(&call->tools, &reader, call->body, problem);
}

/* What fmt says of media at the end of a message; before that it quotes the client. */
static bool is_media_refusal(const char *text)
{
    static const char words[] = "this model reads text only";
    size_t n = strlen(text);
    return n >= sizeof words - 1 && strcmp(text + n - (sizeof words - 1), words) == 0;
}

bool call_encode_chat(struct call *call, struct worker *worker, struct problem *problem)
{
    struct err err = {0};
    struct server *server = call->server;
    struct chat_request request = {
        .messages = call->messages ? call->messages : json_object_object_get(call->body, "messages"),
        .tools = call->tools.shown,
        .options = call->chat,
    };
    call->is_chat = true;
    call->prompts = arena_get(&call->arena, sizeof *call->prompts, &err);
    if (!call->prompts || !own_turns_find(server_own_turns(server, call->model), &call->arena, request.messages,
                                          &request.own, &request.n_own, &err))
        return problem_from(problem, PROBLEM_INTERNAL, &err);
    if (!text_model_encode_chat(call->model->text, server_encoder(worker, call->model), &request, &call->ids,
                                &call->starts_in_think, &err))
        return problem_from(problem, is_media_refusal(err.text) ? PROBLEM_CONTENT : PROBLEM_INVALID_VALUE, &err);
    call->prompts[0] = (struct call_prompt){.n = (uint32_t)call->ids.n};
    call->n_prompts = 1;
    return true;
}

/* With tool_choice none the tools stay in the prompt, so that it goes on like the last one; the mark that begins a call
 * cannot come. */
static bool ban_calls(struct call *call, struct err *err)
{
    const struct text_model *model = call->model->text;
    call->banned = arena_get_array(&call->arena, model->n_dead + 1, sizeof *call->banned, err);
    if (!call->banned) return false;
    if (model->n_dead) memcpy(call->banned, model->dead, model->n_dead * sizeof *call->banned);
    call->banned[model->n_dead] = model->chat.id[CHAT_CALL];
    call->n_banned = model->n_dead + 1;
    return true;
}

bool call_finish_decode(struct call *call, struct problem *problem)
{
    struct err err = {0};
    enum sampling_field field;
    const struct served_model *model = call->model;
    int64_t least = call->is_chat ? 1 : 0;
    sampling_fill(&call->sampling, model->sampling);
    if (call->sampling.max_tokens < least)
        return problem_set(problem, PROBLEM_INVALID_VALUE, limit_name(call), "%s: must be at least %" PRId64,
                           limit_name(call), least);
    if (!sampling_check(&call->sampling, model->text->n_logits, model->text->n_tokens, &field, &err)) {
        problem_from(problem, PROBLEM_INVALID_VALUE, &err);
        if (field < SAMPLING_FIELDS) snprintf(problem->param, sizeof problem->param, "%s", sampling_field_name(field));
        return false;
    }
    if (sampling_has(&call->sampling, SAMPLING_SEED))
        call->key = random_key_from_seed(call->sampling.seed);
    else if (!random_key_fresh(&call->key, &err))
        return problem_from(problem, PROBLEM_INTERNAL, &err);
    bool bans = call->tools.choice == TOOLS_NONE && call->tools.chat.n_tools > 0;
    if (bans && !ban_calls(call, &err)) return problem_from(problem, PROBLEM_INTERNAL, &err);
    if (call->tools.dropped.bytes > 0) {
        httpd_set_header(call->exchange, "x-dropped-tools", call->tools.dropped.data);
        server_log(call->server, "event=dropped_tools id=%s tools=\"%s\"", httpd_id(call->exchange),
                   call->tools.dropped.data);
    }
    return true;
}

struct call *call_open(struct server *server, struct httpd_exchange *exchange, const struct protocol *protocol,
                       struct problem *problem)
{
    struct call *call = call_new(server, exchange, protocol);
    if (!call) {
        problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the request");
        return NULL;
    }
    if (call_parse_body(&call->body, server, exchange, problem)) {
        choose_model(call);
        return call;
    }
    call_put(call);
    return NULL;
}

void call_close(struct call *call)
{
    if (call) call_put(call);
}

void call_serve(struct server *server, struct worker *worker, struct httpd_exchange *exchange,
                const struct protocol *protocol)
{
    struct problem problem = {0};
    struct call *call = call_open(server, exchange, protocol, &problem);
    if (!call || !protocol->decode(call, worker, &problem) || !submit(call, &problem)) {
        server_refuse(exchange, &problem);
        call_close(call);
        return;
    }
    enlist(call);
    const struct httpd_work work = {.context = call, .poll = see_poll, .read = see_read, .closed = see_closed};
    httpd_wait(exchange, &work);
}

bool call_join(const struct call *call, enum answer_part part, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < call->n_items; i++)
        if (call->items[i].part == part && !buf_add(out, call->items[i].text.data, call->items[i].text.bytes, err))
            return false;
    return true;
}

size_t call_count(const struct call *call, enum answer_part part)
{
    size_t n = 0;
    for (size_t i = 0; i < call->n_items; i++) n += call->items[i].part == part;
    return n;
}
