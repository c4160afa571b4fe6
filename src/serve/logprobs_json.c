#include "serve/logprobs_json.h"

#include "base/utf8.h"

enum { CHARACTERS = 3 }; /* bytes of U+FFFD for each bad one at most */

void logprobs_json_token(struct jot *json, const struct tokenizer *tokenizer, uint32_t id)
{
    struct token token = tokenizer_token(tokenizer, id);
    struct utf8_stream stream = {0};
    struct buf text;
    buf_init(&text, json->out->alloc, (size_t)token.n_bytes * CHARACTERS);
    if (json->err.kind == ERR_NONE && utf8_stream_add(&stream, &text, token.bytes, token.n_bytes, &json->err) &&
        utf8_stream_end(&stream, &text, &json->err))
        jot_text(json, text.data, text.bytes);
    else
        jot_null(json);
    buf_fini(&text);
}

void logprobs_json_key(char key[LOGPROBS_KEY_BYTES], const struct tokenizer *tokenizer, uint32_t id)
{
    struct token token = tokenizer_token(tokenizer, id);
    size_t n = 0, used;
    for (size_t at = 0; at < token.n_bytes && n + 5 < LOGPROBS_KEY_BYTES; at += used) {
        uint32_t code;
        utf8_next(token.bytes + at, token.n_bytes - at, &code, &used); /* U+FFFD unless it is valid */
        n += utf8_put(key + n, code ? code : 0xFFFD);
    }
    key[n] = 0;
}

static void put_members(struct jot *json, const struct tokenizer *tokenizer, const struct logprob *logprob)
{
    struct token token = tokenizer_token(tokenizer, logprob->id);
    jot_key(json, "token");
    logprobs_json_token(json, tokenizer, logprob->id);
    jot_put_real(json, "logprob", logprob_for_json(logprob->value));
    jot_put_open_list(json, "bytes");
    for (uint32_t i = 0; i < token.n_bytes; i++) jot_integer(json, (unsigned char)token.bytes[i]);
    jot_close_list(json);
}

void logprobs_json_entry(struct jot *json, const struct tokenizer *tokenizer, const struct sampled *sampled)
{
    const struct logprobs *l = &sampled->logprobs;
    jot_open(json);
    put_members(json, tokenizer, &l->chosen);
    jot_put_open_list(json, "top_logprobs");
    for (uint32_t i = 0; i < l->n_top; i++) {
        jot_open(json);
        put_members(json, tokenizer, &l->top[i]);
        jot_close(json);
    }
    jot_close_list(json);
    jot_close(json);
}
