#include "run/answer.h"

#include "base/assert.h"
#include "run/stop_text.h"

#define PIECE_BYTES_MAX (UINT64_C(1) << 30) /* of one event: an open call that turns out to be text comes whole */

struct answer {
    struct alloc *alloc;
    const struct text_model *model;
    const struct sampling *sampling;
    struct answer_request request;
    struct stop_set stops;
    struct stop_text visible;     /* content on its way out */
    struct buf piece;             /* what has just become safe */
    struct output_parser *parser; /* NULL: raw */
    enum stop_reason reason;
    bool has_ended;
};

static bool emit(struct answer *a, const struct answer_event *event, struct err *err)
{
    return !a->request.emit || a->request.emit(a->request.context, event, err);
}

static bool emit_piece(struct answer *a, struct err *err)
{
    const struct answer_event event = {.part = ANSWER_CONTENT, .text = a->piece.data, .bytes = a->piece.bytes};
    return event.bytes == 0 || emit(a, &event, err);
}

static bool add_content(struct answer *a, const char *text, size_t bytes, struct err *err)
{
    buf_clear(&a->piece);
    if (!stop_text_add(&a->visible, &a->piece, text, bytes, err)) return false;
    if (a->visible.match != STOP_NO_STRING) a->reason = STOP_STRING;
    return emit_piece(a, err);
}

/* What is held back is text after all; content may go on behind it. */
static bool release_content(struct answer *a, struct err *err)
{
    buf_clear(&a->piece);
    if (!stop_text_end(&a->visible, &a->piece, err)) return false;
    stop_text_init(&a->visible, &a->stops);
    return emit_piece(a, err);
}

static bool see_output(void *context, const struct output_event *event, struct err *err)
{
    struct answer *a = context;
    struct answer_event out = {.text = event->text, .bytes = event->bytes, .tool = event->tool};
    if (a->reason == STOP_STRING) return true; /* behind a stop string there is nothing */
    switch (event->kind) {
    case OUTPUT_CONTENT: return add_content(a, event->text, event->bytes, err);
    case OUTPUT_REASONING: out.part = ANSWER_REASONING; break;
    case OUTPUT_CALL: out.part = ANSWER_CALL; break;
    }
    return release_content(a, err) && emit(a, &out, err);
}

bool answer_new(struct answer **answer, struct alloc *alloc, const struct text_model *model,
                const struct sampling *sampling, const struct answer_request *request, struct err *err)
{
    struct answer *a = alloc_get(alloc, sizeof *a, err);
    if (!a) return false;
    a->alloc = alloc;
    a->model = model;
    a->sampling = sampling;
    a->request = *request;
    buf_init(&a->piece, alloc, PIECE_BYTES_MAX);
    if (!stop_set_init(&a->stops, alloc, sampling->stop, sampling->n_stop, err)) goto fail;
    stop_text_init(&a->visible, &a->stops);
    const struct output_rules rules = {
        .ids = &model->chat,
        .tools = request->tools,
        .starts_in_think = request->starts_in_think,
        .starts_at_once = request->starts_at_once,
        .one_call = request->one_call,
        .emit = see_output,
        .context = a,
    };
    if (request->is_chat && !(a->parser = output_parser_new(alloc, &rules, err))) goto fail;
    *answer = a;
    return true;
fail:
    answer_free(a);
    return false;
}

void answer_free(struct answer *answer)
{
    if (!answer) return;
    output_parser_free(answer->parser);
    stop_set_fini(&answer->stops);
    buf_fini(&answer->piece);
    alloc_put(answer->alloc, answer);
}

const uint32_t *answer_ends(const struct answer *answer, uint32_t *n)
{
    bool roles_end = answer->parser && !output_parser_in_call(answer->parser);
    *n = roles_end ? answer->model->n_ends_chat : answer->model->n_ends_model;
    return answer->model->ends;
}

bool answer_add(struct answer *answer, uint32_t id, struct err *err)
{
    struct token token = tokenizer_token(answer->model->tokenizer, id);
    ASSERT(answer->reason == STOP_NONE);
    if (!answer->parser) return token.kind == TOKEN_SPECIAL || add_content(answer, token.bytes, token.n_bytes, err);
    if (!output_parser_feed(answer->parser, id, token, err)) return false;
    if (answer->reason == STOP_NONE && output_parser_is_done(answer->parser)) answer->reason = STOP_TOOL;
    return true;
}

bool answer_end(struct answer *answer, enum stop_reason why, struct err *err)
{
    ASSERT(!answer->has_ended);
    answer->has_ended = true;
    if (answer->reason == STOP_NONE) {
        enum output_end end = why == STOP_EOS ? OUTPUT_END_EOS : OUTPUT_END_CUT;
        if (answer->parser && !output_parser_end(answer->parser, end, err)) return false;
        if (answer->reason == STOP_NONE) answer->reason = why; /* the rest may have completed a stop string */
    }
    if (answer->reason != STOP_STRING && !release_content(answer, err)) return false;
    bool turn_ended = answer->reason == STOP_EOS || answer->reason == STOP_ID || answer->reason == STOP_STRING;
    if (turn_ended && answer->parser && output_parser_calls(answer->parser)) answer->reason = STOP_TOOL;
    return true;
}

enum stop_reason answer_reason(const struct answer *answer)
{
    return answer->reason;
}

const struct stop_string *answer_stop_string(const struct answer *answer)
{
    uint8_t match = answer->visible.match;
    return match == STOP_NO_STRING ? NULL : &answer->sampling->stop[match];
}

uint32_t answer_reasoning_tokens(const struct answer *answer)
{
    return answer->parser ? output_parser_reasoning_tokens(answer->parser) : 0;
}
