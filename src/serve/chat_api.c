/* POST /v1/chat/completions */
#include "serve/chat_api.h"

#include "fmt/json_build.h"
#include "serve/fields.h"
#include "serve/logprobs_json.h"
#include "serve/openai_stream.h"
#include "serve/sse.h"
#include "serve/usage_json.h"
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

/* --- the request --- */

static const struct field_rule rules[] = {
    {"messages", FIELD_READ, NULL},
    {"tools", FIELD_READ, NULL},
    {"tool_choice", FIELD_READ, NULL},
    {"parallel_tool_calls", FIELD_READ, NULL},
    {"response_format", FIELD_READ, NULL},
    {"logprobs", FIELD_READ, NULL},
    {"top_logprobs", FIELD_READ, NULL},
    {"stream_options", FIELD_READ, NULL},
    {"modalities", FIELD_READ, NULL},
    {"chat_template_kwargs", FIELD_READ, NULL},
    {"enable_thinking", FIELD_READ, NULL},
    {"thinking", FIELD_READ, NULL},
    {"reasoning", FIELD_READ, NULL},
    {"reasoning_effort", FIELD_READ, NULL},
    {"clear_thinking", FIELD_READ, NULL},
    {"store", FIELD_IGNORED, NULL},
    {"verbosity", FIELD_IGNORED, NULL},
    {"functions", FIELD_NEVER, "send tools"},
    {"function_call", FIELD_NEVER, "send tool_choice"},
    {"audio", FIELD_REFUSED, NULL},
    {"web_search_options", FIELD_NEVER, NULL}, /* an empty one already asks for it */
    {NULL, FIELD_READ, NULL},
};

/* A call of a custom tool in the history is one of a function with the argument `input`. */
static bool unify_call(struct json_object *call, const char *where, struct problem *problem)
{
    struct json_object *custom = NULL;
    if (!field_is(call, "type", "custom")) return true;
    if (!field_object(call, "custom", &custom, problem)) return problem_inside(problem, where);
    struct json_object *function = json_object_new_object(), *arguments = json_object_new_object();
    struct json_object *name = json_object_object_get(custom, "name"), *input = json_object_object_get(custom, "input");
    bool ok = function && arguments && json_build_share(arguments, "input", input) &&
              json_build_share(function, "name", name) && json_build_share(function, "arguments", arguments) &&
              json_build_share(call, "function", function);
    json_object_put(arguments);
    json_object_put(function);
    return ok || problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the messages");
}

static bool unify_message(struct json_object *message, size_t index, struct problem *problem)
{
    char where[80];
    struct json_object *calls = json_object_object_get(message, "tool_calls");
    struct json_object *reasoning = json_object_object_get(message, "reasoning");
    snprintf(where, sizeof where, "messages[%zu]", index);
    if (!json_object_is_type(message, json_type_object))
        return problem_set(problem, PROBLEM_INVALID_TYPE, where, "%s: must be an object", where);
    if (field_is(message, "role", "function"))
        return problem_set(problem, PROBLEM_UNSUPPORTED, where,
                           "%s: the role function is not supported; send the role tool", where);
    if (json_object_is_type(reasoning, json_type_string) && !json_object_object_get(message, "reasoning_content") &&
        !json_build_share(message, "reasoning_content", reasoning))
        return problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the messages");
    size_t n = json_object_is_type(calls, json_type_array) ? json_object_array_length(calls) : 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", index, i);
        if (!unify_call(json_object_array_get_idx(calls, i), where, problem)) return false;
    }
    return true;
}

static bool read_messages(struct call *call, struct problem *problem)
{
    struct json_object *messages = NULL;
    if (!field_list(call->body, "messages", &messages, problem)) return false;
    if (!messages) return problem_set(problem, PROBLEM_MISSING_FIELD, "messages", "messages: missing");
    size_t n = json_object_array_length(messages);
    if (n == 0) return problem_set(problem, PROBLEM_INVALID_VALUE, "messages", "messages: there must be at least one");
    for (size_t i = 0; i < n; i++)
        if (!unify_message(json_object_array_get_idx(messages, i), i, problem)) return false;
    return true;
}

static bool read_logprobs(struct call *call, struct problem *problem)
{
    int64_t n = -1;
    if (!field_bool(call->body, "logprobs", &call->wants_logprobs, problem) ||
        !field_integer(call->body, "top_logprobs", 0, LOGPROB_TOP_MAX, &n, problem))
        return false;
    if (n >= 0 && !call->wants_logprobs)
        return problem_set(problem, PROBLEM_INVALID_VALUE, "top_logprobs", "top_logprobs: needs logprobs: true");
    call->n_top_logprobs = n > 0 ? (uint32_t)n : 0;
    return true;
}

static bool read_formats(struct call *call, struct problem *problem)
{
    struct json_object *modalities = NULL, *format = NULL;
    if (!field_list(call->body, "modalities", &modalities, problem) ||
        !field_object(call->body, "response_format", &format, problem))
        return false;
    size_t n = modalities ? json_object_array_length(modalities) : 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *one = json_object_array_get_idx(modalities, i);
        if (!json_object_is_type(one, json_type_string) || strcmp(json_object_get_string(one), "text") != 0)
            return problem_set(problem, PROBLEM_UNSUPPORTED, "modalities", "modalities: only text is supported");
    }
    return call_read_constraint(call, format, "response_format", problem);
}

bool chat_api_encode(struct call *call, struct worker *worker, struct problem *problem)
{
    struct err err = {0};
    if (!read_messages(call, problem) || !call_read_tools(call, TOOLS_CHAT, problem) ||
        !call_check_thinking(call, problem))
        return false;
    if (!chat_options_read(&call->chat, call->body, &err)) return problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    return call_encode_chat(call, worker, problem);
}

static bool decode(struct call *call, struct worker *worker, struct problem *problem)
{
    return call_read_common(call, rules, problem) && read_logprobs(call, problem) &&
           openai_read_stream_options(call, problem) && chat_api_encode(call, worker, problem) &&
           read_formats(call, problem) && call_finish_decode(call, problem);
}

/* --- the answer --- */

static const char *finish_reason(const struct call *call)
{
    switch (call->result.reason) {
    case STOP_LENGTH: return "length";
    case STOP_TOOL: return "tool_calls";
    default: return "stop";
    }
}

static void put_call(struct jot *json, const struct call *call, const struct item *item, int64_t index)
{
    const struct tool_origin *origin = tools_origin(&call->tools, item->tool);
    jot_open(json);
    if (index >= 0) jot_put_integer(json, "index", index);
    jot_put_words(json, "id", item->id);
    jot_put_words(json, "type", origin->is_custom ? "custom" : "function");
    jot_put_open(json, origin->is_custom ? "custom" : "function");
    jot_put_words(json, "name", origin->name);
    jot_key(json, origin->is_custom ? "input" : "arguments");
    if (origin->is_custom)
        tools_put_input(json, call->server->alloc, item->text.data, item->text.bytes);
    else
        jot_text(json, item->text.data, item->text.bytes);
    jot_close(json);
    jot_close(json);
}

static void put_logprobs(struct jot *json, const struct call *call, const char *entries, size_t bytes)
{
    jot_key(json, "logprobs");
    if (!call->wants_logprobs) {
        jot_null(json);
        return;
    }
    jot_open(json);
    jot_put_open_list(json, "content");
    if (bytes > 0) jot_raw(json, entries, bytes); /* several values with their commas */
    jot_close_list(json);
    jot_put_null(json, "refusal");
    jot_close(json);
}

/* Most clients read the first name, some the second. */
static void put_reasoning(struct jot *json, const struct call *call, const char *text, size_t bytes)
{
    jot_put_text(json, "reasoning_content", text, bytes);
    if (call->server->settings.both_reasoning_fields) jot_put_text(json, "reasoning", text, bytes);
}

static bool put_message(struct jot *json, struct call *call, struct err *err)
{
    struct buf *text = &call->text;
    jot_put_open(json, "message");
    jot_put_words(json, "role", "assistant");
    if (!call_join(call, ANSWER_CONTENT, text, err)) return false;
    size_t n_calls = call_count(call, ANSWER_CALL);
    if (n_calls > 0 && text->bytes == 0)
        jot_put_null(json, "content");
    else
        jot_put_text(json, "content", text->data, text->bytes);
    jot_put_null(json, "refusal");
    buf_clear(text);
    if (!call_join(call, ANSWER_REASONING, text, err)) return false;
    if (text->bytes > 0) put_reasoning(json, call, text->data, text->bytes);
    if (n_calls > 0) {
        jot_put_open_list(json, "tool_calls");
        for (size_t i = 0; i < call->n_items; i++)
            if (call->items[i].part == ANSWER_CALL) put_call(json, call, &call->items[i], -1);
        jot_close_list(json);
    }
    jot_close(json);
    buf_clear(text);
    for (size_t i = 0; i < call->n_items; i++) {
        const struct buf *entries = &call->items[i].logprobs;
        if (entries->bytes == 0) continue;
        if ((text->bytes && !buf_add_char(text, ',', err)) || !buf_add(text, entries->data, entries->bytes, err))
            return false;
    }
    put_logprobs(json, call, text->data, text->bytes);
    return true;
}

static bool reply(struct call *call, struct buf *out, struct err *err)
{
    struct jot json = jot_to(out);
    jot_open(&json);
    openai_put_head(&json, call, "chat.completion");
    jot_put_open_list(&json, "choices");
    jot_open(&json);
    jot_put_integer(&json, "index", 0);
    if (!put_message(&json, call, err)) return false;
    jot_put_words(&json, "finish_reason", finish_reason(call));
    jot_close(&json);
    jot_close_list(&json);
    usage_json_put(&json, call);
    jot_close(&json);
    return jot_end(&json, err);
}

/* --- a stream --- */

/* Up to and with `"delta":`, whose value the caller writes. */
static struct jot open_chunk(struct call *call)
{
    struct jot json = sse_open(&call->out, NULL);
    jot_open(&json);
    openai_put_head(&json, call, "chat.completion.chunk");
    jot_put_open_list(&json, "choices");
    jot_open(&json);
    jot_put_integer(&json, "index", 0);
    jot_key(&json, "delta");
    return json;
}

static bool close_chunk(struct call *call, struct jot *json, const char *reason, struct err *err)
{
    jot_put_words(json, "finish_reason", reason);
    jot_close(json);
    jot_close_list(json);
    if (call->includes_usage) jot_put_null(json, "usage");
    jot_close(json);
    return sse_close(json, err);
}

static bool begin(struct call *call, struct err *err)
{
    struct jot json = open_chunk(call);
    jot_open(&json);
    jot_put_words(&json, "role", "assistant");
    jot_put_words(&json, "content", "");
    jot_close(&json);
    jot_put_null(&json, "logprobs");
    return close_chunk(call, &json, NULL, err);
}

static bool part(struct call *call, struct item *item, const struct answer_event *event, struct err *err)
{
    struct jot json = open_chunk(call);
    jot_open(&json);
    if (event->part == ANSWER_CALL) {
        jot_put_open_list(&json, "tool_calls");
        put_call(&json, call, item, (int64_t)call_count(call, ANSWER_CALL) - 1);
        jot_close_list(&json);
    } else {
        if (event->part == ANSWER_REASONING)
            put_reasoning(&json, call, event->text, event->bytes);
        else
            jot_put_text(&json, "content", event->text, event->bytes);
    }
    jot_close(&json);
    if (event->part == ANSWER_CONTENT && call->wants_logprobs)
        put_logprobs(&json, call, call->pending[0].data, call->pending[0].bytes);
    else
        jot_put_null(&json, "logprobs");
    return close_chunk(call, &json, NULL, err);
}

static bool empty_chunk(struct call *call, struct err *err)
{
    struct jot json = open_chunk(call);
    jot_open(&json);
    jot_close(&json);
    jot_put_null(&json, "logprobs");
    return close_chunk(call, &json, call->is_complete ? finish_reason(call) : NULL, err);
}

static bool keep_alive(struct call *call, struct err *err)
{
    return openai_keep_alive(call, empty_chunk, err);
}

static bool end(struct call *call, struct err *err)
{
    return empty_chunk(call, err) && openai_end(call, "chat.completion.chunk", err);
}

bool chat_api_token(struct call *call, const struct sampled *sampled, bool is_prompt, struct err *err)
{
    /* Markers are no content, and a token that is nothing but special has no text. */
    const struct text_model *model = call->model->text;
    bool is_marker = chat_ids_control(&model->chat, sampled->id) != CHAT_TEXT ||
                     tokenizer_token(model->tokenizer, sampled->id).kind == TOKEN_SPECIAL;
    if (is_prompt || is_marker) return true;
    if (call->pending[0].bytes > 0 && !buf_add_char(&call->pending[0], ',', err)) return false;
    struct jot json = jot_to(&call->pending[0]);
    logprobs_json_entry(&json, model->tokenizer, sampled);
    return jot_end(&json, err);
}

const struct protocol chat_protocol = {
    .id_prefix = "chatcmpl-",
    .input = "messages",
    .item_prefix = "item_",
    .call_prefix = "call_",
    .decode = decode,
    .reply = reply,
    .begin = begin,
    .part = part,
    .keep_alive = keep_alive,
    .end = end,
    .fail = openai_fail,
    .token = chat_api_token,
};
