/* POST /v1/responses */
#include "serve/responses_api.h"

#include "fmt/json_build.h"
#include "fmt/json_doc.h"
#include "serve/chat_api.h"
#include "serve/fields.h"
#include "serve/responses_in.h"
#include "serve/responses_store.h"
#include "serve/sse.h"
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

/* --- the request --- */

static const struct field_rule rules[] = {
    {"input", FIELD_READ, NULL},
    {"instructions", FIELD_READ, NULL},
    {"tools", FIELD_READ, NULL},
    {"tool_choice", FIELD_READ, NULL},
    {"parallel_tool_calls", FIELD_READ, NULL},
    {"reasoning", FIELD_READ, NULL},
    {"text", FIELD_READ, NULL},
    {"include", FIELD_READ, NULL},
    {"top_logprobs", FIELD_READ, NULL},
    {"store", FIELD_READ, NULL},
    {"previous_response_id", FIELD_READ, NULL},
    {"truncation", FIELD_READ, NULL},
    {"stream_options", FIELD_IGNORED, NULL},
    {"max_tool_calls", FIELD_IGNORED, NULL},
    {"conversation", FIELD_REFUSED, "send previous_response_id"},
    {"background", FIELD_REFUSED, NULL},
    {"prompt", FIELD_REFUSED, NULL},
    {NULL, FIELD_READ, NULL},
};

static bool read_include(struct call *call, struct problem *problem)
{
    int64_t n_top = 0;
    struct json_object *include = NULL;
    if (!field_list(call->body, "include", &include, problem) ||
        !field_integer(call->body, "top_logprobs", 0, LOGPROB_TOP_MAX, &n_top, problem))
        return false;
    size_t n = include ? json_object_array_length(include) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *word = json_object_array_get_idx(include, i);
        if (!json_object_is_type(word, json_type_string))
            return problem_set(problem, PROBLEM_INVALID_TYPE, "include", "include: must be an array of strings");
        if (strcmp(json_object_get_string(word), "message.output_text.logprobs") == 0) call->wants_logprobs = true;
    }
    call->n_top_logprobs = call->wants_logprobs ? (uint32_t)n_top : 0;
    return true;
}

static bool read_options(struct call *call, struct json_object **format, struct problem *problem)
{
    struct err err = {0};
    struct json_object *text = NULL, *reasoning = NULL;
    const char *truncation = NULL;
    call->is_stored = true;
    if (!field_object(call->body, "text", &text, problem)) return false;
    if (!field_object(text, "format", format, problem)) return problem_inside(problem, "text");
    if (!field_object(call->body, "reasoning", &reasoning, problem) ||
        !field_bool(call->body, "store", &call->is_stored, problem) ||
        !field_text(call->body, "truncation", &truncation, problem) ||
        !field_text(call->body, "previous_response_id", &call->previous_id, problem))
        return false;
    if (truncation && strcmp(truncation, "disabled") != 0)
        return problem_set(problem, PROBLEM_UNSUPPORTED, "truncation", "truncation: only disabled is supported");
    call->wants_summary =
        json_object_object_get(reasoning, "summary") || json_object_object_get(reasoning, "generate_summary");
    if (!chat_options_read(&call->chat, call->body, &err)) return problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    return read_include(call, problem);
}

static bool decode(struct call *call, struct worker *worker, struct problem *problem)
{
    struct json_object *format = NULL;
    return call_read_common(call, rules, problem) && read_options(call, &format, problem) &&
           call_read_tools(call, TOOLS_RESPONSES, problem) && responses_read(call, problem) &&
           (call_encode_chat(call, worker, problem) || responses_blame(call, problem)) &&
           call_read_constraint(call, format, "text.format", problem) && call_finish_decode(call, problem);
}

/* --- items --- */

static const char *item_prefix(const struct call *call, const struct item *item)
{
    if (item->part == ANSWER_REASONING) return "rs_";
    if (item->part == ANSWER_CONTENT) return "msg_";
    return tools_origin(&call->tools, item->tool)->is_custom ? "ctc_" : "fc_";
}

/* The id begins with what kind of item it is. */
static void put_item_id(struct jot *json, const char *key, const struct call *call, const struct item *item)
{
    char id[NAME_BYTES + 8];
    snprintf(id, sizeof id, "%s%s", item_prefix(call, item), item->id);
    jot_put_words(json, key, id);
}

static void put_reasoning(struct jot *json, const struct call *call, const struct item *item, bool is_done)
{
    size_t bytes = is_done ? item->text.bytes : 0;
    jot_put_words(json, "type", "reasoning");
    put_item_id(json, "id", call, item);
    jot_put_open_list(json, "summary");
    if (call->wants_summary && bytes > 0) {
        jot_open(json);
        jot_put_words(json, "type", "summary_text");
        jot_put_text(json, "text", item->text.data, bytes);
        jot_close(json);
    }
    jot_close_list(json);
    jot_put_open_list(json, "content");
    if (!call->wants_summary && bytes > 0) {
        jot_open(json);
        jot_put_words(json, "type", "reasoning_text");
        jot_put_text(json, "text", item->text.data, bytes);
        jot_close(json);
    }
    jot_close_list(json);
    jot_put_null(json, "encrypted_content");
}

static void put_text_part(struct jot *json, const struct item *item, bool is_done)
{
    jot_open(json);
    jot_put_words(json, "type", "output_text");
    jot_put_text(json, "text", item->text.data, is_done ? item->text.bytes : 0);
    jot_put_open_list(json, "annotations");
    jot_close_list(json);
    jot_put_open_list(json, "logprobs");
    if (is_done && item->logprobs.bytes > 0) jot_raw(json, item->logprobs.data, item->logprobs.bytes);
    jot_close_list(json);
    jot_close(json);
}

static void put_text_message(struct jot *json, const struct call *call, const struct item *item, bool is_done)
{
    jot_put_words(json, "type", "message");
    put_item_id(json, "id", call, item);
    jot_put_words(json, "role", "assistant");
    jot_put_open_list(json, "content");
    if (is_done) put_text_part(json, item, true);
    jot_close_list(json);
}

static void put_call(struct jot *json, const struct call *call, const struct item *item, bool is_done)
{
    const struct tool_origin *origin = tools_origin(&call->tools, item->tool);
    jot_put_words(json, "type", origin->is_custom ? "custom_tool_call" : "function_call");
    put_item_id(json, "id", call, item);
    jot_put_words(json, "call_id", item->call_id);
    jot_put_words(json, "name", origin->name);
    if (origin->namespace) jot_put_words(json, "namespace", origin->namespace);
    jot_key(json, origin->is_custom ? "input" : "arguments");
    if (!is_done)
        jot_words(json, "");
    else if (origin->is_custom)
        tools_put_input(json, call->server->alloc, item->text.data, item->text.bytes);
    else
        jot_text(json, item->text.data, item->text.bytes);
}

/* An answer that was cut ends in an item that was cut. */
static const char *item_status(const struct call *call, const struct item *item, bool is_done)
{
    bool is_last = item == &call->items[call->n_items - 1];
    bool is_cut = call->is_complete && call->result.reason == STOP_LENGTH;
    if (!is_done) return "in_progress";
    return is_last && is_cut && item->part != ANSWER_CALL ? "incomplete" : "completed";
}

static void put_item(struct jot *json, const struct call *call, const struct item *item, bool is_done)
{
    jot_open(json);
    switch (item->part) {
    case ANSWER_REASONING: put_reasoning(json, call, item, is_done); break;
    case ANSWER_CONTENT: put_text_message(json, call, item, is_done); break;
    case ANSWER_CALL: put_call(json, call, item, is_done); break;
    }
    jot_put_words(json, "status", item_status(call, item, is_done));
    jot_close(json);
}

/* --- the response object --- */

enum status { IN_PROGRESS, COMPLETED, INCOMPLETE, FAILED };

static void put_given(struct jot *json, const struct call *call, const char *key)
{
    jot_put_value(json, key, json_object_object_get(call->body, key));
}

static void put_request(struct jot *json, const struct call *call)
{
    struct json_object *value, *reasoning = json_object_object_get(call->body, "reasoning");
    put_given(json, call, "instructions");
    put_given(json, call, "max_output_tokens");
    put_given(json, call, "max_tool_calls");
    jot_put_words(json, "model", call->model->name);
    jot_put_bool(json, "parallel_tool_calls", !call->tools.one_call);
    jot_put_words(json, "previous_response_id", call->previous_id);
    jot_put_open(json, "reasoning");
    jot_put_value(json, "effort", json_object_object_get(reasoning, "effort"));
    jot_put_value(json, "summary", json_object_object_get(reasoning, "summary"));
    jot_close(json);
    jot_put_bool(json, "store", call->is_stored);
    jot_put_real(json, "temperature", call->sampling.temperature);
    jot_put_open(json, "text");
    value = json_object_object_get(json_object_object_get(call->body, "text"), "format");
    jot_key(json, "format");
    if (value) {
        jot_value(json, value);
    } else {
        jot_open(json);
        jot_put_words(json, "type", "text");
        jot_close(json);
    }
    jot_close(json);
    value = json_object_object_get(call->body, "tool_choice");
    jot_key(json, "tool_choice");
    if (value)
        jot_value(json, value);
    else
        jot_words(json, "auto");
    value = json_object_object_get(call->body, "tools");
    jot_key(json, "tools");
    if (value) {
        jot_value(json, value);
    } else {
        jot_open_list(json);
        jot_close_list(json);
    }
    jot_put_real(json, "top_p", call->sampling.top_p);
    jot_put_words(json, "truncation", "disabled");
}

static void put_usage(struct jot *json, const struct call *call)
{
    const struct job_usage *u = &call->usage;
    jot_put_open(json, "usage");
    jot_put_integer(json, "input_tokens", u->n_prompt);
    jot_put_open(json, "input_tokens_details");
    jot_put_integer(json, "cached_tokens", u->n_cached);
    jot_close(json);
    jot_put_integer(json, "output_tokens", u->n_generated);
    jot_put_open(json, "output_tokens_details");
    jot_put_integer(json, "reasoning_tokens", call->n_reasoning);
    jot_close(json);
    jot_put_integer(json, "total_tokens", (int64_t)u->n_prompt + u->n_generated);
    jot_close(json);
}

/* Clients act on these two codes: one makes them shorten, the other wait. */
static const char *error_code(const struct problem *problem)
{
    return problem->kind == PROBLEM_QUEUE_FULL ? "rate_limit_exceeded" : problem_code(problem);
}

static void put_response(struct jot *json, const struct call *call, enum status status)
{
    static const char *const words[] = {"in_progress", "completed", "incomplete", "failed"};
    jot_open(json);
    jot_put_words(json, "id", call->id);
    jot_put_words(json, "object", "response");
    jot_put_integer(json, "created_at", call->created_s);
    jot_put_words(json, "status", words[status]);
    jot_put_bool(json, "background", false);
    jot_key(json, "error");
    if (status == FAILED) {
        jot_open(json);
        jot_put_words(json, "code", error_code(&call->problem));
        jot_put_words(json, "message", call->problem.text);
        jot_close(json);
    } else {
        jot_null(json);
    }
    jot_key(json, "incomplete_details");
    if (status == INCOMPLETE) {
        jot_open(json);
        jot_put_words(json, "reason", "max_output_tokens");
        jot_close(json);
    } else {
        jot_null(json);
    }
    put_request(json, call);
    jot_put_open_list(json, "output");
    for (size_t i = 0; status != IN_PROGRESS && i < call->n_items; i++) put_item(json, call, &call->items[i], true);
    jot_close_list(json);
    if (status == IN_PROGRESS)
        jot_put_null(json, "usage");
    else
        put_usage(json, call);
    jot_put_null(json, "user");
    jot_key(json, "metadata");
    struct json_object *metadata = json_object_object_get(call->body, "metadata");
    if (metadata) {
        jot_value(json, metadata);
    } else {
        jot_open(json);
        jot_close(json);
    }
    jot_close(json);
}

static enum status status_of(const struct call *call)
{
    return call->result.reason == STOP_LENGTH ? INCOMPLETE : COMPLETED;
}

/* --- storing --- */

/* Items that are listed later need an id. */
static bool name_items(struct json_object *items)
{
    size_t n = json_object_array_length(items);
    for (size_t i = 0; i < n; i++) {
        char id[NAME_BYTES];
        struct json_object *item = json_object_array_get_idx(items, i);
        if (json_object_object_get(item, "id")) continue;
        if (!json_build_words(item, "id", name_fresh(id, "item_"))) return false;
    }
    return true;
}

/* What cannot be kept is not kept: the answer is there all the same. */
static void store(struct call *call, const char *response, size_t bytes)
{
    struct err err;
    struct buf copy, input;
    if (!call->is_stored) return;
    buf_init(&copy, call->server->alloc, RESPONSE_STORE_BYTES_MAX);
    buf_init(&input, call->server->alloc, RESPONSE_STORE_BYTES_MAX);
    struct jot json = jot_to(&input);
    if (name_items(call->input_items)) {
        jot_value(&json, call->input_items);
        if (jot_end(&json, &err) && buf_add(&copy, response, bytes, &err))
            response_store_put(call->server->responses, call->id, &copy, &input);
    }
    buf_fini(&copy);
    buf_fini(&input);
}

static bool reply(struct call *call, struct buf *out, struct err *err)
{
    struct jot json = jot_to(out);
    put_response(&json, call, status_of(call));
    if (!jot_end(&json, err)) return false;
    store(call, out->data, out->bytes);
    return true;
}

/* --- a stream --- */

static struct jot open_event(struct call *call, const char *type)
{
    struct jot json = sse_open(&call->out, type);
    jot_open(&json);
    jot_put_words(&json, "type", type);
    jot_put_integer(&json, "sequence_number", call->sequence++);
    return json;
}

static bool tell_response(struct call *call, const char *type, enum status status, struct err *err)
{
    struct jot json = open_event(call, type);
    jot_key(&json, "response");
    put_response(&json, call, status);
    return sse_close_object(&json, err);
}

static bool begin(struct call *call, struct err *err)
{
    return tell_response(call, "response.created", IN_PROGRESS, err) &&
           tell_response(call, "response.in_progress", IN_PROGRESS, err);
}

static bool keep_alive(struct call *call, struct err *err)
{
    return tell_response(call, "response.in_progress", IN_PROGRESS, err);
}

static void put_place(struct jot *json, const struct call *call, const struct item *item)
{
    put_item_id(json, "item_id", call, item);
    jot_put_integer(json, "output_index", item - call->items);
}

static bool tell_item(struct call *call, const char *type, const struct item *item, bool is_done, struct err *err)
{
    struct jot json = open_event(call, type);
    jot_put_integer(&json, "output_index", item - call->items);
    jot_key(&json, "item");
    put_item(&json, call, item, is_done);
    return sse_close_object(&json, err);
}

/* The part of a text or of reasoning, when it begins and when it ends. */
static bool tell_part(struct call *call, const struct item *item, bool is_done, struct err *err)
{
    bool is_summary = item->part == ANSWER_REASONING && call->wants_summary;
    const char *type =
        is_summary ? (is_done ? "response.reasoning_summary_part.done" : "response.reasoning_summary_part.added")
                   : (is_done ? "response.content_part.done" : "response.content_part.added");
    struct jot json = open_event(call, type);
    put_place(&json, call, item);
    jot_put_integer(&json, is_summary ? "summary_index" : "content_index", 0);
    jot_key(&json, "part");
    if (item->part == ANSWER_CONTENT) {
        put_text_part(&json, item, is_done);
    } else {
        jot_open(&json);
        jot_put_words(&json, "type", is_summary ? "summary_text" : "reasoning_text");
        jot_put_text(&json, "text", item->text.data, is_done ? item->text.bytes : 0);
        jot_close(&json);
    }
    return sse_close_object(&json, err);
}

/* Names of the events that carry text, by kind of item. */
struct text_events {
    const char *delta, *done, *index;
};

static struct text_events text_events(const struct call *call, const struct item *item)
{
    if (item->part == ANSWER_CONTENT)
        return (struct text_events){"response.output_text.delta", "response.output_text.done", "content_index"};
    if (call->wants_summary)
        return (struct text_events){"response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
                                    "summary_index"};
    return (struct text_events){"response.reasoning_text.delta", "response.reasoning_text.done", "content_index"};
}

static bool tell_text(struct call *call, const struct item *item, const char *text, size_t bytes, bool is_done,
                      struct err *err)
{
    const struct text_events events = text_events(call, item);
    const struct buf *logprobs = is_done ? &item->logprobs : &call->pending[0];
    struct jot json = open_event(call, is_done ? events.done : events.delta);
    put_place(&json, call, item);
    jot_put_integer(&json, events.index, 0);
    jot_put_text(&json, is_done ? "text" : "delta", text, bytes);
    if (item->part == ANSWER_CONTENT) {
        jot_put_open_list(&json, "logprobs");
        if (logprobs->bytes > 0) jot_raw(&json, logprobs->data, logprobs->bytes);
        jot_close_list(&json);
    }
    return sse_close_object(&json, err);
}

/* The item that is open ends. A call ended when it was told. n_open counts the items that were begun. */
static bool close_item(struct call *call, struct err *err)
{
    const struct item *item = call->n_open ? &call->items[call->n_open - 1] : NULL;
    if (!item || item->part == ANSWER_CALL) return true;
    return tell_text(call, item, item->text.data, item->text.bytes, true, err) && tell_part(call, item, true, err) &&
           tell_item(call, "response.output_item.done", item, true, err);
}

static bool tell_call(struct call *call, const struct item *item, struct err *err)
{
    const struct tool_origin *origin = tools_origin(&call->tools, item->tool);
    const char *delta =
        origin->is_custom ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta";
    const char *done =
        origin->is_custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done";
    for (int i = 0; i < 2; i++) {
        struct jot json = open_event(call, i ? done : delta);
        put_place(&json, call, item);
        jot_key(&json, i == 0 ? "delta" : origin->is_custom ? "input" : "arguments");
        if (origin->is_custom)
            tools_put_input(&json, call->server->alloc, item->text.data, item->text.bytes);
        else
            jot_text(&json, item->text.data, item->text.bytes);
        if (i == 1) jot_put_words(&json, "name", origin->name);
        if (!sse_close_object(&json, err)) return false;
    }
    return tell_item(call, "response.output_item.done", item, true, err);
}

static bool part(struct call *call, struct item *item, const struct answer_event *event, struct err *err)
{
    if (call->n_open < call->n_items) {
        if (!close_item(call, err)) return false;
        call->n_open = call->n_items;
        if (!tell_item(call, "response.output_item.added", item, false, err)) return false;
        if (item->part != ANSWER_CALL && !tell_part(call, item, false, err)) return false;
    }
    if (item->part == ANSWER_CALL) return tell_call(call, item, err);
    return tell_text(call, item, event->text, event->bytes, false, err);
}

static bool end(struct call *call, struct err *err)
{
    struct buf response;
    static const char *const types[] = {[COMPLETED] = "response.completed", [INCOMPLETE] = "response.incomplete"};
    enum status status = status_of(call);
    if (!close_item(call, err)) return false;
    buf_init(&response, call->server->alloc, call->out.bytes_max);
    struct jot whole = jot_to(&response);
    put_response(&whole, call, status);
    bool ok = jot_end(&whole, err);
    if (ok) {
        struct jot json = open_event(call, types[status]);
        jot_key(&json, "response");
        jot_raw(&json, response.data, response.bytes);
        ok = sse_close_object(&json, err);
        store(call, response.data, response.bytes);
    }
    buf_fini(&response);
    return ok;
}

static bool fail(struct call *call, const struct problem *problem, struct err *err)
{
    (void)problem; /* it is call->problem */
    return tell_response(call, "response.failed", FAILED, err);
}

const struct protocol responses_protocol = {
    .id_prefix = "resp_",
    .input = "input",
    .item_prefix = "",
    .call_prefix = "",
    .decode = decode,
    .reply = reply,
    .begin = begin,
    .part = part,
    .keep_alive = keep_alive,
    .end = end,
    .fail = fail,
    .token = chat_api_token,
};

/* --- stored responses --- */

static void refuse_unknown(struct httpd_exchange *exchange, const struct err *err)
{
    struct problem problem;
    problem_from(&problem, PROBLEM_NOT_FOUND, err);
    server_refuse(exchange, &problem);
}

void responses_get(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    struct err err = {0};
    const struct visit *visit = httpd_user(exchange);
    (void)worker;
    buf_init(&body, server->alloc, RESPONSE_STORE_BYTES_MAX);
    if (response_store_get(server->responses, visit->target, &body, NULL, &err))
        server_reply(exchange, &body, true, NULL);
    else
        refuse_unknown(exchange, &err);
    buf_fini(&body);
}

void responses_delete(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body;
    struct err err = {0};
    const struct visit *visit = httpd_user(exchange);
    (void)worker;
    if (!response_store_delete(server->responses, visit->target)) {
        err_set(&err, ERR_USER, "there is no stored response '%.60s'", visit->target);
        refuse_unknown(exchange, &err);
        return;
    }
    buf_init(&body, server->alloc, 1024);
    struct jot json = jot_to(&body);
    jot_open(&json);
    jot_put_words(&json, "id", visit->target);
    jot_put_words(&json, "object", "response");
    jot_put_bool(&json, "deleted", true);
    jot_close(&json);
    bool ok = jot_end(&json, &err);
    server_reply(exchange, &body, ok, &err);
    buf_fini(&body);
}

static void put_list(struct jot *json, struct json_object *items)
{
    size_t n = json_object_array_length(items);
    struct json_object *first = n ? json_object_array_get_idx(items, 0) : NULL;
    struct json_object *last = n ? json_object_array_get_idx(items, n - 1) : NULL;
    jot_open(json);
    jot_put_words(json, "object", "list");
    jot_put_value(json, "data", items);
    jot_put_value(json, "first_id", json_object_object_get(first, "id"));
    jot_put_value(json, "last_id", json_object_object_get(last, "id"));
    jot_put_bool(json, "has_more", false);
    jot_close(json);
}

void responses_input_items(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct buf body, input;
    struct err err = {0};
    struct json_object *items = NULL;
    const struct visit *visit = httpd_user(exchange);
    struct json_rules lists = json_rules_request;
    (void)worker;
    lists.bytes_max = RESPONSE_STORE_BYTES_MAX;
    buf_init(&body, server->alloc, 2 * (size_t)RESPONSE_STORE_BYTES_MAX);
    buf_init(&input, server->alloc, RESPONSE_STORE_BYTES_MAX);
    if (!response_store_get(server->responses, visit->target, NULL, &input, &err)) {
        refuse_unknown(exchange, &err);
    } else {
        struct jot json = jot_to(&body);
        bool ok = json_doc_parse(&items, server->alloc, &lists, "stored input", input.data, input.bytes, &err);
        if (ok) put_list(&json, items);
        ok = ok && jot_end(&json, &err);
        server_reply(exchange, &body, ok, &err);
    }
    json_object_put(items);
    buf_fini(&body);
    buf_fini(&input);
}

void responses_cancel(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct problem problem;
    (void)server;
    (void)worker;
    problem_set(&problem, PROBLEM_UNSUPPORTED, NULL,
                "only responses in the background can be cancelled, and there are none; close the connection instead");
    server_refuse(exchange, &problem);
}
