#ifndef FMT_CHAT_CONTROL_H
#define FMT_CHAT_CONTROL_H
/* The added tokens that structure a chat: the template writes them and the output parser acts on them.
 *
 * Ids are looked up by content in the tokenizer of the model, never compiled in. */
#include "base/err.h"
#include <stdint.h>

#define CHAT_CONTROL_LIST(X)            \
    X(GMASK, "[gMASK]")                 \
    X(SOP, "<sop>")                     \
    X(SYSTEM, "<|system|>")             \
    X(USER, "<|user|>")                 \
    X(ASSISTANT, "<|assistant|>")       \
    X(OBSERVATION, "<|observation|>")   \
    X(THINK, "<think>")                 \
    X(THINK_END, "</think>")            \
    X(CALL, "<tool_call>")              \
    X(CALL_END, "</tool_call>")         \
    X(RESPONSE, "<tool_response>")      \
    X(RESPONSE_END, "</tool_response>") \
    X(KEY, "<arg_key>")                 \
    X(KEY_END, "</arg_key>")            \
    X(VALUE, "<arg_value>")             \
    X(VALUE_END, "</arg_value>")        \
    X(BOX, "<|begin_of_box|>")          \
    X(BOX_END, "<|end_of_box|>")

enum chat_control {
#define X(name, text) CHAT_##name,
    CHAT_CONTROL_LIST(X)
#undef X
        CHAT_CONTROL_COUNT,
    CHAT_TEXT = CHAT_CONTROL_COUNT, /* no control token: ordinary text */
};

const char *chat_control_text(enum chat_control control);

#endif
