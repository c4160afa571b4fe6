#ifndef RUN_ANSWER_H
#define RUN_ANSWER_H
/* The text of one answer: generated ids go in one by one; reasoning, content and tool calls come out, each piece final,
 * whole and valid UTF-8, ready to be sent.
 *
 * Joins the output parser and the stop strings. Stop strings count in content only; content is cut before the first
 * byte of one. What is held back, because it may be the beginning of one, comes out in front of a later call or
 * reasoning, or at the end. A raw answer is content from beginning to end, special tokens left out. The events depend
 * on the ids alone, not on how they arrive.
 *
 * Knows no engine, so that answers which are decoded together each have their own. Owned by one thread; model, sampling
 * and tools are borrowed. */
#include "fmt/output_parser.h"
#include "run/stop.h"
#include "run/text_model.h"

struct answer;

enum answer_part { ANSWER_REASONING, ANSWER_CONTENT, ANSWER_CALL };

struct answer_event {
    enum answer_part part;
    const char *text; /* [bytes], without a NUL; of a call: its arguments, one compact JSON object */
    size_t bytes;
    const struct chat_tool *tool; /* of a call */
};

/* Borrowed for the length of the call. False ends the answer, with the error that was set. */
typedef bool answer_fn(void *context, const struct answer_event *event, struct err *err);

struct answer_request {
    bool is_chat;                   /* else raw, and the next four mean nothing */
    bool starts_in_think;           /* as text_model_encode_chat says */
    bool starts_at_once;            /* line feeds in front of the content are part of it: it goes on with what the
                                       prompt ends in, or its form is constrained */
    const struct chat_tools *tools; /* declared and allowed; NULL: markers of calls are plain text */
    bool one_call;                  /* parallel calls are off: the first complete call ends the answer */
    answer_fn *emit;                /* may be NULL */
    void *context;
};

bool answer_new(struct answer **answer, struct alloc *alloc, const struct text_model *model,
                const struct sampling *sampling, const struct answer_request *request, struct err *err) MUST_CHECK;
void answer_free(struct answer *answer); /* NULL is fine */

/* The ids that end the answer now, which are neither added nor counted: those of the model, and for a chat also the
 * role markers that are no text outside of a call. Good until the next answer_add. */
const uint32_t *answer_ends(const struct answer *answer, uint32_t *n);

/* One generated id that does not end the answer. Nothing may be added once answer_reason tells an end. */
bool answer_add(struct answer *answer, uint32_t id, struct err *err) MUST_CHECK;

/* Once, with why generation ended, unless answer_reason already told: what was held back comes out. */
bool answer_end(struct answer *answer, enum stop_reason why, struct err *err) MUST_CHECK;

/* STOP_NONE while it goes on; STOP_STRING or STOP_TOOL when an id was the last one. After answer_end the reason of the
 * answer, which is STOP_TOOL whenever the model ended its turn with at least one complete call. */
enum stop_reason answer_reason(const struct answer *answer);

/* The stop string that ended it, or NULL. */
const struct stop_string *answer_stop_string(const struct answer *answer);

uint32_t answer_reasoning_tokens(const struct answer *answer);

#endif
