#ifndef FMT_CHAT_IDS_H
#define FMT_CHAT_IDS_H
/* Control tokens as ids: what the tokenizer of a model calls them, and prompts encoded with them.
 *
 * Values only; read-only after chat_ids_find. */
#include "fmt/chat_template.h"
#include "fmt/tokenizer_encoder.h"

struct chat_ids {
    uint32_t id[CHAT_CONTROL_COUNT]; /* UINT32_MAX: the tokenizer has no such token (the box marks only) */
};

/* ERR_DATA names a token that chats need and the tokenizer lacks. */
bool chat_ids_find(struct chat_ids *ids, const struct tokenizer *tokenizer, struct err *err) MUST_CHECK;

/* CHAT_TEXT: not a control token. */
enum chat_control chat_ids_control(const struct chat_ids *ids, uint32_t id);

/* Appends the ids of a prompt. `mode` is for the text in it: ENCODE_NONE keeps whatever clients wrote text;
 * ENCODE_ALL encodes the whole string as the reference library does, markers in client text included. */
bool chat_ids_encode(const struct chat_ids *ids, const struct chat_prompt *prompt, struct encoder *encoder,
                     enum encode_mode mode, struct token_list *out, struct err *err) MUST_CHECK;

#endif
