/* POST /v1/completions
 *
 * Log-probabilities are four lists of JSON values: tokens, token_logprobs, top_logprobs, text_offset. A token's entries
 * wait in call->pending until its text is out, and then move to call->list, or into the chunk of a stream. */
#include "serve/completions_api.h"

#include "fmt/json_build.h"
#include "fmt/json_text.h"
#include "serve/fields.h"
#include "serve/logprobs_json.h"
#include "serve/openai_stream.h"
#include "serve/sse.h"
#include "serve/usage_json.h"
#include <inttypes.h>
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

enum { PROMPTS_MAX = 128 };
enum { TOKENS, LOGPROBS, TOPS, OFFSETS, LISTS };
static const char *const list_names[LISTS] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

/* --- the request --- */

static const struct field_rule rules[] = {
    {"prompt", FIELD_READ, NULL},
    {"echo", FIELD_READ, NULL},
    {"logprobs", FIELD_READ, NULL},
    {"stream_options", FIELD_READ, NULL},
    {"suffix", FIELD_REFUSED, "this model has no format for filling in the middle"},
    {"response_format", FIELD_READ, NULL},
    {NULL, FIELD_READ, NULL},
};

/* The first ids of an encoded text that are not the text's own. */
static uint32_t n_added(const struct text_model *model, const char *text, size_t bytes)
{
    const uint32_t *prefix;
    uint32_t n = tokenizer_raw_prefix(model->tokenizer, &prefix);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct token token = tokenizer_token(model->tokenizer, prefix[i]);
        if (bytes - at < token.n_bytes || memcmp(text + at, token.bytes, token.n_bytes) != 0) return n;
        at += token.n_bytes;
    }
    return 0;
}

static bool add_text(struct call *call, struct worker *worker, struct json_object *value, struct problem *problem)
{
    struct err err = {0};
    const struct text_model *model = call->model->text;
    const char *text = json_object_get_string(value);
    size_t bytes = (size_t)json_object_get_string_len(value), start = call->ids.n;
    if (!text_model_encode_raw(model, server_encoder(worker, call->model), text, bytes, &call->ids, &err))
        return problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    call->prompts[call->n_prompts++] = (struct call_prompt){
        .start = start, .n = (uint32_t)(call->ids.n - start), .n_added = n_added(model, text, bytes)};
    return true;
}

static bool add_ids(struct call *call, struct json_object *list, struct problem *problem)
{
    struct err err = {0};
    uint32_t end = call->model->text->n_tokens;
    size_t n = json_object_array_length(list), start = call->ids.n;
    for (size_t i = 0; i < n; i++) {
        struct json_object *value = json_object_array_get_idx(list, i);
        int64_t id = json_object_get_int64(value);
        if (!json_object_is_type(value, json_type_int) || id < 0 || id >= end)
            return problem_set(problem, PROBLEM_INVALID_VALUE, "prompt",
                               "prompt: element %zu is not a token id (0 to %" PRIu32 ")", i, end - 1);
        uint32_t known = (uint32_t)id;
        if (!token_list_add(&call->ids, &known, 1, &err)) return problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    }
    if (n == 0) return problem_set(problem, PROBLEM_INVALID_VALUE, "prompt", "prompt: an empty list of ids");
    call->prompts[call->n_prompts++] = (struct call_prompt){.start = start, .n = (uint32_t)n};
    return true;
}

static bool add_prompt(struct call *call, struct worker *worker, struct json_object *value, struct problem *problem)
{
    if (json_object_is_type(value, json_type_string)) return add_text(call, worker, value, problem);
    if (json_object_is_type(value, json_type_array)) return add_ids(call, value, problem);
    return problem_set(problem, PROBLEM_INVALID_TYPE, "prompt",
                       "prompt: must be a string, a list of ids, or a list of either");
}

static bool read_prompts(struct call *call, struct worker *worker, struct problem *problem)
{
    struct err err = {0};
    struct json_object *prompt = json_object_object_get(call->body, "prompt");
    if (!prompt) return problem_set(problem, PROBLEM_MISSING_FIELD, "prompt", "prompt: missing");
    bool is_list = json_object_is_type(prompt, json_type_array);
    bool is_ids = is_list && json_object_is_type(json_object_array_get_idx(prompt, 0), json_type_int);
    size_t n = is_list && !is_ids ? json_object_array_length(prompt) : 1;
    if (n == 0 || n > PROMPTS_MAX)
        return problem_set(problem, PROBLEM_INVALID_VALUE, "prompt", "prompt: %zu prompts; 1 to %d are possible", n,
                           PROMPTS_MAX);
    call->prompts = arena_get_array(&call->arena, n, sizeof *call->prompts, &err);
    if (!call->prompts) return problem_from(problem, PROBLEM_INTERNAL, &err);
    for (size_t i = 0; i < n; i++) {
        struct json_object *one = is_list && !is_ids ? json_object_array_get_idx(prompt, i) : prompt;
        if (!add_prompt(call, worker, one, problem)) return false;
    }
    if (n > 1 && call->streams)
        return problem_set(problem, PROBLEM_UNSUPPORTED, "stream", "stream: only with a single prompt");
    return true;
}

static bool read_options(struct call *call, struct problem *problem)
{
    int64_t n = -1;
    if (!field_bool(call->body, "echo", &call->echoes, problem) ||
        !field_integer(call->body, "logprobs", 0, LOGPROB_TOP_MAX, &n, problem) ||
        !openai_read_stream_options(call, problem))
        return false;
    call->wants_logprobs = n >= 0;
    call->n_top_logprobs = n > 0 ? (uint32_t)n : 0;
    call->wants_prompt_logprobs = call->echoes && call->wants_logprobs;
    if (call->wants_prompt_logprobs && call->streams)
        return problem_set(problem, PROBLEM_UNSUPPORTED, "logprobs",
                           "logprobs: those of an echoed prompt cannot be streamed");
    return true;
}

static bool decode(struct call *call, struct worker *worker, struct problem *problem)
{
    struct json_object *format = NULL;
    detokenizer_init(&call->shown, call->model->text->tokenizer, true);
    return field_object(call->body, "response_format", &format, problem) && call_read_common(call, rules, problem) &&
           read_options(call, problem) && read_prompts(call, worker, problem) &&
           call_read_constraint(call, format, "response_format", problem) && call_finish_decode(call, problem);
}

/* --- log-probabilities --- */

static bool add_raw(struct buf *list, const char *text, struct err *err)
{
    return (list->bytes == 0 || buf_add_char(list, ',', err)) && buf_add_text(list, text, err);
}

/* Two ids may read alike; the likelier one, which comes first, is the one that counts. */
static bool add_tops(struct buf *list, const struct tokenizer *tokenizer, const struct logprobs *l, struct err *err)
{
    if (list->bytes > 0 && !buf_add_char(list, ',', err)) return false;
    struct json_object *seen = json_object_new_object();
    struct jot json = jot_to(list);
    bool ok = seen != NULL;
    jot_open(&json);
    for (uint32_t i = 0; i < l->n_top && ok; i++) {
        char key[LOGPROBS_KEY_BYTES];
        logprobs_json_key(key, tokenizer, l->top[i].id);
        if (json_object_object_get_ex(seen, key, NULL)) continue;
        ok = json_build_share(seen, key, NULL);
        jot_put_real(&json, key, logprob_for_json(l->top[i].value));
    }
    jot_close(&json);
    json_object_put(seen);
    if (!ok) return err_set(err, ERR_NOMEM, "no memory for log-probabilities");
    return jot_end(&json, err);
}

/* Entries of one token at the end of `lists`; l NULL: it has none, because nothing stands in front of it. */
static bool add_entry(struct call *call, struct buf lists[LISTS], uint32_t id, const struct logprobs *l,
                      struct err *err)
{
    const struct tokenizer *tokenizer = call->model->text->tokenizer;
    char number[JSON_NUMBER_BYTES];
    struct buf text;
    if (lists[TOKENS].bytes > 0 && !buf_add_char(&lists[TOKENS], ',', err)) return false;
    struct jot json = jot_to(&lists[TOKENS]);
    logprobs_json_token(&json, tokenizer, id);
    if (!jot_end(&json, err)) return false;
    if (l) json_text_number(number, logprob_for_json(l->chosen.value));
    if (!add_raw(&lists[LOGPROBS], l ? number : "null", err)) return false;
    if (l ? !add_tops(&lists[TOPS], tokenizer, l, err) : !add_raw(&lists[TOPS], "null", err)) return false;
    snprintf(number, sizeof number, "%" PRIu64, call->n_shown);
    if (!add_raw(&lists[OFFSETS], number, err)) return false;

    buf_init(&text, call->server->alloc, 1 << 20);
    bool ok = detokenizer_add(&call->shown, id, &text, err);
    for (size_t i = 0; ok && i < text.bytes; i++) call->n_shown += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    buf_fini(&text);
    return ok;
}

/* A prompt of one token has no events of its own: its entry is made in front of those of the answer, or at the end of
 * an answer that has none. */
static bool add_lonely_token(struct call *call, struct err *err)
{
    const struct call_prompt *prompt = &call->prompts[call->at_prompt];
    if (!call->wants_prompt_logprobs || prompt->n != 1 || prompt->n_added > 0 || call->n_seen_prompt > 0) return true;
    call->n_seen_prompt = 1;
    return add_entry(call, call->list, call->ids.ids[prompt->start], NULL, err);
}

static bool token(struct call *call, const struct sampled *sampled, bool is_prompt, struct err *err)
{
    const struct call_prompt *prompt = &call->prompts[call->at_prompt];
    const uint32_t *ids = call->ids.ids + prompt->start;
    if (!is_prompt)
        return add_lonely_token(call, err) && add_entry(call, call->pending, sampled->id, &sampled->logprobs, err);
    /* Prompt tokens are told from the second one on. Those that the server put in front are hidden, and the first that
     * shows has no entry, as if nothing stood there. */
    uint32_t at = call->n_seen_prompt + 1;
    call->n_seen_prompt = at;
    if (at == 1 && prompt->n_added == 0 && !add_entry(call, call->list, ids[0], NULL, err)) return false;
    if (at < prompt->n_added) return true;
    const struct logprobs *l = at == prompt->n_added ? NULL : &sampled->logprobs;
    return add_entry(call, call->list, sampled->id, l, err);
}

static bool take(struct call *call, struct item *item, struct err *err)
{
    (void)item;
    if (call->streams) return true; /* they go with the chunk */
    for (size_t i = 0; i < LISTS; i++) {
        const struct buf *from = &call->pending[i];
        if (from->bytes == 0) continue;
        if ((call->list[i].bytes > 0 && !buf_add_char(&call->list[i], ',', err)) ||
            !buf_add(&call->list[i], from->data, from->bytes, err))
            return false;
    }
    return true;
}

static void put_logprobs(struct jot *json, const struct call *call, const struct buf lists[LISTS])
{
    jot_key(json, "logprobs");
    if (!call->wants_logprobs) {
        jot_null(json);
        return;
    }
    jot_open(json);
    for (size_t i = 0; i < LISTS; i++) {
        jot_put_open_list(json, list_names[i]);
        if (lists[i].bytes > 0) jot_raw(json, lists[i].data, lists[i].bytes);
        jot_close_list(json);
    }
    jot_close(json);
}

/* --- the answer --- */

static const char *finish_reason(const struct call *call)
{
    return call->result.reason == STOP_LENGTH ? "length" : "stop";
}

static bool echo_text(const struct call *call, struct buf *out, struct err *err)
{
    const struct call_prompt *prompt = &call->prompts[call->at_prompt];
    return detokenizer_decode(call->model->text->tokenizer, call->ids.ids + prompt->start + prompt->n_added,
                              prompt->n - prompt->n_added, true, out, err);
}

/* One choice, behind those of the prompts before it, in call->text. */
static bool answered(struct call *call, struct err *err)
{
    struct buf text;
    if (call->streams) return true;
    if (call->at_prompt > 0 && !buf_add_char(&call->text, ',', err)) return false;
    buf_init(&text, call->server->alloc, call->text.bytes_max);
    bool ok = add_lonely_token(call, err) && (!call->echoes || echo_text(call, &text, err)) &&
              call_join(call, ANSWER_CONTENT, &text, err);
    struct jot json = jot_to(&call->text);
    jot_open(&json);
    jot_put_text(&json, "text", text.data, text.bytes);
    jot_put_integer(&json, "index", (int64_t)call->at_prompt);
    put_logprobs(&json, call, call->list);
    jot_put_words(&json, "finish_reason", finish_reason(call));
    jot_close(&json);
    ok = ok && jot_end(&json, err);
    buf_fini(&text);
    for (size_t i = 0; i < LISTS; i++) buf_clear(&call->list[i]);
    call->n_seen_prompt = 0;
    call->n_shown = 0;
    detokenizer_init(&call->shown, call->model->text->tokenizer, true);
    call_forget_items(call);
    return ok;
}

static bool reply(struct call *call, struct buf *out, struct err *err)
{
    struct jot json = jot_to(out);
    jot_open(&json);
    openai_put_head(&json, call, "text_completion");
    jot_put_open_list(&json, "choices");
    jot_raw(&json, call->text.data, call->text.bytes);
    jot_close_list(&json);
    usage_json_put(&json, call);
    jot_close(&json);
    return jot_end(&json, err);
}

/* --- a stream --- */

static bool put_chunk(struct call *call, const char *text, size_t bytes, const char *reason, struct err *err)
{
    static const struct buf none[LISTS];
    struct jot json = sse_open(&call->out, NULL);
    jot_open(&json);
    openai_put_head(&json, call, "text_completion");
    jot_put_open_list(&json, "choices");
    jot_open(&json);
    jot_put_text(&json, "text", text, bytes);
    jot_put_integer(&json, "index", 0);
    put_logprobs(&json, call, bytes > 0 ? call->pending : none); /* they wait for the text of their tokens */
    jot_put_words(&json, "finish_reason", reason);
    jot_close(&json);
    jot_close_list(&json);
    if (call->includes_usage) jot_put_null(&json, "usage");
    jot_close(&json);
    return sse_close(&json, err);
}

static bool begin(struct call *call, struct err *err)
{
    struct buf text;
    if (!call->echoes) return put_chunk(call, "", 0, NULL, err); /* something that parsers see */
    buf_init(&text, call->server->alloc, call->text.bytes_max);
    bool ok = echo_text(call, &text, err) && put_chunk(call, text.data, text.bytes, NULL, err);
    buf_fini(&text);
    return ok;
}

static bool part(struct call *call, struct item *item, const struct answer_event *event, struct err *err)
{
    (void)item;
    return put_chunk(call, event->text, event->bytes, NULL, err);
}

static bool empty_chunk(struct call *call, struct err *err)
{
    return put_chunk(call, "", 0, call->is_complete ? finish_reason(call) : NULL, err);
}

static bool keep_alive(struct call *call, struct err *err)
{
    return openai_keep_alive(call, empty_chunk, err);
}

static bool end(struct call *call, struct err *err)
{
    return empty_chunk(call, err) && openai_end(call, "text_completion", err);
}

const struct protocol completions_protocol = {
    .id_prefix = "cmpl-",
    .input = "prompt",
    .item_prefix = "item_",
    .call_prefix = "call_",
    .decode = decode,
    .reply = reply,
    .begin = begin,
    .part = part,
    .keep_alive = keep_alive,
    .end = end,
    .fail = openai_fail,
    .token = token,
    .take = take,
    .answered = answered,
};
