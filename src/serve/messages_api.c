/* POST /v1/messages */
#include "serve/messages_api.h"

#include "serve/fields.h"
#include "serve/messages_in.h"
#include "serve/sse.h"
#include <json-c/json_object.h>
#include <string.h>

/* Sent back by clients and never looked at. */
#define SIGNATURE "weir"

/* --- the request --- */

static const struct field_rule rules[] = {
    {"messages", FIELD_READ, NULL},
    {"system", FIELD_READ, NULL},
    {"tools", FIELD_READ, NULL},
    {"tool_choice", FIELD_READ, NULL},
    {"thinking", FIELD_READ, NULL},
    {"output_config", FIELD_READ, NULL},
    {"output_format", FIELD_READ, NULL},
    {"context_management", FIELD_IGNORED, NULL},
    {"container", FIELD_IGNORED, NULL},
    {"inference_geo", FIELD_IGNORED, NULL},
    {"betas", FIELD_IGNORED, NULL},
    {"mcp_servers", FIELD_REFUSED, NULL},
    {NULL, FIELD_READ, NULL},
};

/* Thinking, and how much of it; a budget is not enforced, and the answer says so. */
static bool read_thinking(struct call *call, struct json_object *config, struct problem *problem)
{
    struct err err = {0};
    struct json_object *thinking = json_object_object_get(call->body, "thinking");
    const char *effort = NULL;
    if (!field_text(config, "effort", &effort, problem)) return problem_inside(problem, "output_config");
    if (effort && !chat_options_effort(&call->chat, "output_config.effort", effort, &err))
        return problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    if (!chat_options_read(&call->chat, call->body, &err)) return problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    call->shows_thinking = !field_is(thinking, "display", "omitted");
    if (json_object_object_get(thinking, "budget_tokens"))
        httpd_set_header(call->exchange, "x-not-enforced", "thinking.budget_tokens");
    return true;
}

/* The beginning of an answer goes on where it ends, if nothing has to be thought before it. */
static bool read_prefill(struct call *call, bool prefills, struct problem *problem)
{
    size_t n = json_object_array_length(call->messages);
    struct json_object *last = n ? json_object_array_get_idx(call->messages, n - 1) : NULL;
    if (!prefills) return true;
    if (call->chat.thinking)
        return problem_set(problem, PROBLEM_UNSUPPORTED, "messages",
                           "messages: the last one is of the assistant, which is not supported while thinking is on");
    if (json_object_object_get(last, "tool_calls"))
        return problem_set(problem, PROBLEM_INVALID_VALUE, "messages",
                           "messages: the last one holds tool_use, and no result of it follows");
    call->chat.no_generation_prompt = true;
    return true;
}

/* What the answer must look like is in a member of its own, or was before it had that. */
static bool read_format(struct json_object *config, struct json_object **format, const char **name,
                        struct problem *problem)
{
    struct json_object *newer = NULL;
    if (!field_object(config, "format", &newer, problem)) return problem_inside(problem, "output_config");
    if (!newer) return true;
    if (*format)
        return problem_set(problem, PROBLEM_CONFLICT, "output_format",
                           "output_format: the answer is already constrained by output_config.format");
    *format = newer;
    *name = "output_config.format";
    return true;
}

static bool decode_prompt(struct call *call, struct worker *worker, struct problem *problem)
{
    bool prefills = false;
    struct json_object *config = NULL, *format = NULL;
    const char *name = "output_format";
    return call_read_common(call, rules, problem) && messages_read(call, &prefills, problem) &&
           call_read_tools(call, TOOLS_MESSAGES, problem) &&
           field_object(call->body, "output_config", &config, problem) &&
           field_object(call->body, "output_format", &format, problem) &&
           read_format(config, &format, &name, problem) && call_check_thinking(call, problem) &&
           read_thinking(call, config, problem) && read_prefill(call, prefills, problem) &&
           (call_encode_chat(call, worker, problem) || messages_blame(call, problem)) &&
           call_read_constraint(call, format, name, problem);
}

static bool decode(struct call *call, struct worker *worker, struct problem *problem)
{
    if (!decode_prompt(call, worker, problem)) return false;
    if (!sampling_has(&call->sampling, SAMPLING_MAX_TOKENS))
        return problem_set(problem, PROBLEM_MISSING_FIELD, "max_tokens", "max_tokens: missing");
    return call_finish_decode(call, problem);
}

void messages_count_tokens(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct err err = {0};
    struct problem problem = {0};
    struct call *call = call_open(server, exchange, &messages_protocol, &problem);
    if (!call || !decode_prompt(call, worker, &problem)) {
        server_refuse(exchange, &problem);
    } else {
        struct buf body;
        buf_init(&body, server->alloc, 256);
        struct jot json = jot_to(&body);
        jot_open(&json);
        jot_put_integer(&json, "input_tokens", (int64_t)call->ids.n);
        jot_close(&json);
        bool ok = jot_end(&json, &err);
        server_reply(exchange, &body, ok, &err);
        buf_fini(&body);
    }
    call_close(call);
}

/* --- the answer --- */

static const char *stop_reason(const struct call *call)
{
    switch (call->result.reason) {
    case STOP_TOOL: return "tool_use";
    case STOP_STRING: return "stop_sequence";
    case STOP_LENGTH: return call->result.context_full ? "model_context_window_exceeded" : "max_tokens";
    default: return "end_turn";
    }
}

static void put_stop(struct jot *json, const struct call *call)
{
    const struct stop_string *string = call->result.reason == STOP_STRING ? call->result.stop_string : NULL;
    jot_put_words(json, "stop_reason", stop_reason(call));
    jot_key(json, "stop_sequence");
    if (string)
        jot_text(json, string->bytes, string->n_bytes);
    else
        jot_null(json);
}

/* The tokens that were cached are counted apart: both together are the prompt. */
static void put_usage(struct jot *json, uint32_t n_prompt, uint32_t n_cached, uint32_t n_out)
{
    jot_put_open(json, "usage");
    jot_put_integer(json, "input_tokens", (int64_t)n_prompt - n_cached);
    jot_put_integer(json, "cache_creation_input_tokens", 0);
    jot_put_integer(json, "cache_read_input_tokens", n_cached);
    jot_put_integer(json, "output_tokens", n_out);
    jot_close(json);
}

static void put_block(struct jot *json, const struct call *call, const struct item *item)
{
    jot_open(json);
    switch (item->part) {
    case ANSWER_REASONING:
        jot_put_words(json, "type", "thinking");
        jot_put_text(json, "thinking", item->text.data, call->shows_thinking ? item->text.bytes : 0);
        jot_put_words(json, "signature", SIGNATURE);
        break;
    case ANSWER_CONTENT:
        jot_put_words(json, "type", "text");
        jot_put_text(json, "text", item->text.data, item->text.bytes);
        break;
    case ANSWER_CALL:
        jot_put_words(json, "type", "tool_use");
        jot_put_words(json, "id", item->id);
        jot_put_words(json, "name", tools_origin(&call->tools, item->tool)->name);
        jot_key(json, "input");
        jot_raw(json, item->text.data, item->text.bytes);
        break;
    }
    jot_close(json);
}

static void put_head(struct jot *json, const struct call *call)
{
    jot_put_words(json, "id", call->id);
    jot_put_words(json, "type", "message");
    jot_put_words(json, "role", "assistant");
    jot_put_words(json, "model", call->model->name);
}

static bool reply(struct call *call, struct buf *out, struct err *err)
{
    struct jot json = jot_to(out);
    jot_open(&json);
    put_head(&json, call);
    jot_put_open_list(&json, "content");
    for (size_t i = 0; i < call->n_items; i++) put_block(&json, call, &call->items[i]);
    jot_close_list(&json);
    put_stop(&json, call);
    put_usage(&json, call->usage.n_prompt, call->usage.n_cached, call->usage.n_generated);
    jot_close(&json);
    return jot_end(&json, err);
}

/* --- a stream --- */

static struct jot open_event(struct call *call, const char *type)
{
    struct jot json = sse_open(&call->out, type);
    jot_open(&json);
    jot_put_words(&json, "type", type);
    return json;
}

static bool keep_alive(struct call *call, struct err *err)
{
    struct jot json = open_event(call, "ping");
    return sse_close_object(&json, err);
}

static bool begin(struct call *call, struct err *err)
{
    struct jot json = open_event(call, "message_start");
    jot_put_open(&json, "message");
    put_head(&json, call);
    jot_put_open_list(&json, "content");
    jot_close_list(&json);
    jot_put_null(&json, "stop_reason");
    jot_put_null(&json, "stop_sequence");
    put_usage(&json, call->prompts[0].n, call->n_cached, 1);
    jot_close(&json);
    return sse_close_object(&json, err) && keep_alive(call, err);
}

/* Blocks do not overlap: the one that is open ends before the next begins. n_open counts those that were begun; the
 * last of them is open unless it is a call. */
static bool close_block(struct call *call, struct err *err)
{
    if (call->n_open == 0) return true;
    int64_t index = (int64_t)call->n_open - 1;
    const struct item *item = &call->items[index];
    struct jot json;
    if (item->part == ANSWER_REASONING) {
        json = open_event(call, "content_block_delta");
        jot_put_integer(&json, "index", index);
        jot_put_open(&json, "delta");
        jot_put_words(&json, "type", "signature_delta");
        jot_put_words(&json, "signature", SIGNATURE);
        jot_close(&json);
        if (!sse_close_object(&json, err)) return false;
    }
    json = open_event(call, "content_block_stop");
    jot_put_integer(&json, "index", index);
    return sse_close_object(&json, err);
}

static bool open_block(struct call *call, const struct item *item, struct err *err)
{
    struct jot json = open_event(call, "content_block_start");
    jot_put_integer(&json, "index", (int64_t)call->n_open);
    jot_put_open(&json, "content_block");
    switch (item->part) {
    case ANSWER_REASONING:
        jot_put_words(&json, "type", "thinking");
        jot_put_words(&json, "thinking", "");
        jot_put_words(&json, "signature", "");
        break;
    case ANSWER_CONTENT:
        jot_put_words(&json, "type", "text");
        jot_put_words(&json, "text", "");
        break;
    case ANSWER_CALL:
        jot_put_words(&json, "type", "tool_use");
        jot_put_words(&json, "id", item->id);
        jot_put_words(&json, "name", tools_origin(&call->tools, item->tool)->name);
        jot_put_open(&json, "input");
        jot_close(&json);
        break;
    }
    jot_close(&json);
    call->n_open++;
    return sse_close_object(&json, err);
}

static bool part(struct call *call, struct item *item, const struct answer_event *event, struct err *err)
{
    static const char *const names[][2] = {[ANSWER_REASONING] = {"thinking_delta", "thinking"},
                                           [ANSWER_CONTENT] = {"text_delta", "text"},
                                           [ANSWER_CALL] = {"input_json_delta", "partial_json"}};
    if (call->n_open < call->n_items && (!close_block(call, err) || !open_block(call, item, err))) return false;
    if (event->part == ANSWER_REASONING && !call->shows_thinking) return true;
    struct jot json = open_event(call, "content_block_delta");
    jot_put_integer(&json, "index", (int64_t)call->n_open - 1);
    jot_put_open(&json, "delta");
    jot_put_words(&json, "type", names[event->part][0]);
    jot_put_text(&json, names[event->part][1], event->text, event->bytes);
    jot_close(&json);
    return sse_close_object(&json, err);
}

static bool end(struct call *call, struct err *err)
{
    if (!close_block(call, err)) return false;
    struct jot json = open_event(call, "message_delta");
    jot_put_open(&json, "delta");
    put_stop(&json, call);
    jot_close(&json);
    put_usage(&json, call->usage.n_prompt, call->usage.n_cached, call->usage.n_generated);
    if (!sse_close_object(&json, err)) return false;
    json = open_event(call, "message_stop");
    return sse_close_object(&json, err);
}

static bool fail(struct call *call, const struct problem *problem, struct err *err)
{
    return buf_add_text(&call->out, "event: error\ndata: ", err) &&
           problem_write(problem, FAMILY_ANTHROPIC, httpd_id(call->exchange), &call->out, err) &&
           buf_add_text(&call->out, "\n\n", err);
}

const struct protocol messages_protocol = {
    .id_prefix = "msg_",
    .input = "messages",
    .item_prefix = "item_",
    .call_prefix = "toolu_",
    .decode = decode,
    .reply = reply,
    .begin = begin,
    .part = part,
    .keep_alive = keep_alive,
    .end = end,
    .fail = fail,
};
