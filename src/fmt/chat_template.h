#ifndef FMT_CHAT_TEMPLATE_H
#define FMT_CHAT_TEMPLATE_H
/* The chat template of GLM-5.2: a conversation becomes a prompt.
 *
 * A prompt is the rendered string and a list of runs over it, CONTROL and TEXT by turns. Everything that a client wrote
 * is TEXT, whatever it looks like, so that a tool result that says "<|user|>" cannot open a turn. Adjacent texts are
 * one run, because the tokenizer must see them as one. Encoding the whole string with control tokens recognised gives
 * the same ids as encoding the runs, as long as no client text holds the text of a control token.
 *
 * Messages are json-c objects in the form of the chat completions API: role, content (string, null or a list of text
 * parts), and for an assistant reasoning_content and tool_calls. `developer` is `system`. What the template cannot say
 * (other roles, media) is ERR_USER with the place ("messages[2].content[0]: ..."). */
#include "base/buf.h"
#include "fmt/chat_control.h"
#include "fmt/chat_options.h"

struct json_object;

/* A message of the assistant whose ids are known, because the model wrote it. They say what the template would. */
struct chat_own_turn {
    size_t message; /* its index */
    const char *reasoning;
    size_t reasoning_bytes;
    const uint32_t *thought, *rest; /* the ids of the reasoning, used where the prompt shows just this one; those of
                                       text and calls */
    size_t n_thought, n_rest;
};

struct chat_request {
    struct json_object *messages; /* array */
    struct json_object *tools;    /* array or NULL; see chat_tools.h */
    struct chat_options options;
    const struct chat_own_turn *own; /* [n_own] in the order of messages; outlives the prompt */
    size_t n_own;
};

struct chat_run {
    enum chat_control control; /* CHAT_TEXT: text */
    size_t start, bytes;       /* in chat_prompt.text; never 0 bytes */
    const uint32_t *ids;       /* [n_ids] that stand for this text, markers in it included; NULL: it is to be encoded */
    size_t n_ids;
};

struct chat_prompt {
    struct alloc *alloc;
    struct buf text; /* the whole rendered string */
    struct chat_run *runs;
    size_t n_runs, runs_room;
};

enum { CHAT_PROMPT_BYTES_MAX = 64 << 20 };

/* Fills `prompt`, which chat_prompt_fini gives back, also after a failure. */
bool chat_prompt_render(struct chat_prompt *prompt, struct alloc *alloc, const struct chat_request *request,
                        struct err *err) MUST_CHECK;
void chat_prompt_fini(struct chat_prompt *prompt); /* safe twice and on a zeroed struct */

/* True when the answer begins inside an open think block: the output parser must know. */
bool chat_prompt_ends_in_think(const struct chat_prompt *prompt);

/* One more message of plain text at the end of an array; a reasoning (NULL: none) makes sense for an assistant only.
 * The texts must be valid UTF-8. */
struct chat_words {
    const char *role, *text, *reasoning;
    size_t text_bytes, reasoning_bytes;
};
bool chat_messages_add(struct json_object *messages, const struct chat_words *words, struct err *err) MUST_CHECK;

#endif
