/* Text to tokens and back, and the prompt that a conversation becomes. */
#include "serve/small_api.h"

#include "serve/chat_api.h"
#include "serve/fields.h"
#include "serve/jot.h"
#include "serve/logprobs_json.h"
#include <inttypes.h>
#include <json-c/json_object.h>

#define BODY_BYTES_MAX (UINT64_C(256) << 20)

static void finish(struct httpd_exchange *exchange, struct jot *json)
{
    struct err err = {0};
    bool ok = jot_end(json, &err);
    server_reply(exchange, json->out, ok, &err);
    buf_fini(json->out);
}

/* Raw text, under either of its names. */
static bool encode_text(struct call *call, struct worker *worker, const char *name, bool with_prefix,
                        struct problem *problem)
{
    struct err err = {0};
    const struct text_model *model = call->model->text;
    struct json_object *text = json_object_object_get(call->body, name);
    if (!json_object_is_type(text, json_type_string))
        return problem_set(problem, PROBLEM_INVALID_TYPE, name, "%s: must be a string", name);
    const char *bytes = json_object_get_string(text);
    size_t n = (size_t)json_object_get_string_len(text);
    bool ok = with_prefix
                  ? text_model_encode_raw(model, server_encoder(worker, call->model), bytes, n, &call->ids, &err)
                  : encoder_encode(server_encoder(worker, call->model), bytes, n, ENCODE_ALL, &call->ids, &err);
    return ok || problem_from(problem, PROBLEM_INVALID_VALUE, &err);
}

static bool tokenize(struct call *call, struct worker *worker, struct problem *problem)
{
    bool with_prefix = true;
    if (!field_bool(call->body, "add_special_tokens", &with_prefix, problem)) return false;
    if (json_object_object_get(call->body, "content"))
        return encode_text(call, worker, "content", with_prefix, problem);
    if (json_object_object_get(call->body, "prompt")) return encode_text(call, worker, "prompt", with_prefix, problem);
    if (json_object_object_get(call->body, "messages")) return chat_api_encode(call, worker, problem);
    return problem_set(problem, PROBLEM_MISSING_FIELD, "content", "content: missing; send content, prompt or messages");
}

static void put_tokens(struct jot *json, const struct call *call, bool with_pieces)
{
    jot_put_open_list(json, "tokens");
    for (size_t i = 0; i < call->ids.n; i++) {
        if (!with_pieces) {
            jot_integer(json, call->ids.ids[i]);
            continue;
        }
        jot_open(json);
        jot_put_integer(json, "id", call->ids.ids[i]);
        jot_key(json, "piece");
        logprobs_json_token(json, call->model->text->tokenizer, call->ids.ids[i]);
        jot_close(json);
    }
    jot_close_list(json);
}

void small_tokenize(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct problem problem = {0};
    bool with_pieces = false;
    struct call *call = call_open(server, exchange, &chat_protocol, &problem);
    if (!call || !field_bool(call->body, "with_pieces", &with_pieces, &problem) || !tokenize(call, worker, &problem)) {
        server_refuse(exchange, &problem);
    } else {
        struct buf body;
        buf_init(&body, server->alloc, BODY_BYTES_MAX);
        struct jot json = jot_to(&body);
        jot_open(&json);
        put_tokens(&json, call, with_pieces);
        jot_put_integer(&json, "count", (int64_t)call->ids.n);
        jot_put_integer(&json, "max_model_len", call->model->context_tokens);
        jot_close(&json);
        finish(exchange, &json);
    }
    call_close(call);
}

static bool detokenize(const struct call *call, struct buf *text, struct problem *problem)
{
    struct err err = {0};
    struct json_object *list = NULL;
    struct detokenizer detokenizer;
    if (!field_list(call->body, "tokens", &list, problem)) return false;
    if (!list) return problem_set(problem, PROBLEM_MISSING_FIELD, "tokens", "tokens: missing");
    detokenizer_init(&detokenizer, call->model->text->tokenizer, false);
    size_t n = json_object_array_length(list);
    for (size_t i = 0; i < n; i++) {
        struct json_object *value = json_object_array_get_idx(list, i);
        int64_t id = json_object_get_int64(value);
        if (!json_object_is_type(value, json_type_int) || id < 0 || id > UINT32_MAX)
            return problem_set(problem, PROBLEM_INVALID_VALUE, "tokens", "tokens: element %zu is not a token id", i);
        if (!detokenizer_add(&detokenizer, (uint32_t)id, text, &err)) {
            problem_from(problem, PROBLEM_INVALID_VALUE, &err);
            return false;
        }
    }
    return detokenizer_end(&detokenizer, text, &err) || problem_from(problem, PROBLEM_INVALID_VALUE, &err);
}

void small_detokenize(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct problem problem = {0};
    struct buf text, body;
    (void)worker;
    buf_init(&text, server->alloc, BODY_BYTES_MAX);
    buf_init(&body, server->alloc, BODY_BYTES_MAX);
    struct call *call = call_open(server, exchange, &chat_protocol, &problem);
    if (!call || !detokenize(call, &text, &problem)) {
        server_refuse(exchange, &problem);
    } else {
        struct jot json = jot_to(&body);
        jot_open(&json);
        jot_put_text(&json, "content", text.data, text.bytes);
        jot_put_text(&json, "prompt", text.data, text.bytes);
        jot_close(&json);
        finish(exchange, &json);
    }
    buf_fini(&text);
    buf_fini(&body);
    call_close(call);
}

void small_apply_template(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct problem problem = {0};
    struct err err = {0};
    struct buf text, body;
    buf_init(&text, server->alloc, BODY_BYTES_MAX);
    buf_init(&body, server->alloc, BODY_BYTES_MAX);
    struct call *call = call_open(server, exchange, &chat_protocol, &problem);
    if (!call || !chat_api_encode(call, worker, &problem)) {
        server_refuse(exchange, &problem);
    } else if (!detokenizer_decode(call->model->text->tokenizer, call->ids.ids, call->ids.n, false, &text, &err)) {
        problem_from(&problem, PROBLEM_INVALID_VALUE, &err);
        server_refuse(exchange, &problem);
    } else {
        struct jot json = jot_to(&body);
        jot_open(&json);
        jot_put_text(&json, "prompt", text.data, text.bytes);
        jot_close(&json);
        finish(exchange, &json);
    }
    buf_fini(&text);
    buf_fini(&body);
    call_close(call);
}
