/* States and the functions that handle an id in them:
 *
 *   THINK, CONTENT  feed_text   text goes out; <tool_call> opens a call when tools are declared
 *   NAME            feed_name   until <arg_key>, or </tool_call> of a call without arguments
 *   KEY             feed_key    until </arg_key>
 *   GAP             feed_gap    until <arg_value>; the model is known to leave it out, so other text begins the value
 *   VALUE           feed_value  every marker but </arg_value> is text of the value
 *   CLOSING         feed_closing  after </arg_value>, which was the end of the value only if <arg_key>, </tool_call> or
 *                               the end of the output follows; otherwise it was text, and VALUE goes on
 *   DONE            one call was wanted and came
 *
 * 1. `raw` holds the open call from its <tool_call> on, marker by marker, and is empty in THINK, CONTENT and DONE.
 * 2. `base` is the state that the call was found in. A call that fails becomes text of that state; a call that
 *    succeeds leads to CONTENT, because a complete call ends the reasoning.
 * 3. `held` is white space at the end of the content, held back while a call may follow: a call swallows it. */
#include "fmt/output_parser.h"

#include "base/assert.h"
#include "base/utf8.h"
#include "fmt/json_text.h"
#include "fmt/tool_value.h"
#include <json-c/json_object.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 256 << 20 };

enum state { STATE_THINK, STATE_CONTENT, STATE_NAME, STATE_KEY, STATE_GAP, STATE_VALUE, STATE_CLOSING, STATE_DONE };

/* One id as the states see it. */
struct piece {
    enum chat_control control;
    const char *text; /* what it says if it is taken as text */
    size_t bytes;
    bool is_blank;
};

struct output_parser {
    struct alloc *alloc;
    struct output_rules rules;
    enum state state, base;
    bool has_ended;
    uint32_t n_calls, n_reasoning, n_call_ids; /* the last: ids of the open call */

    struct utf8_stream stream; /* of the state's text */
    struct buf clean;          /* scratch: text about to go out */
    struct buf held;
    bool skips_newlines; /* the line feeds between </think> and the content */
    bool after_call;     /* nothing but white space came since the last call */
    char last[2];        /* of the reasoning, newest last */

    struct buf raw, name, key, value;
    struct buf pending; /* CLOSING: </arg_value> and the blanks behind it */
    size_t call_end_at; /* where in the value the last </tool_call> begins, if only blanks follow it */
    bool ends_in_call_end;
    bool is_broken; /* this call can only become text */
    const struct chat_tool *tool;
    struct json_object *arguments;
};

struct output_parser *output_parser_new(struct alloc *alloc, const struct output_rules *rules, struct err *err)
{
    struct output_parser *p = alloc_get(alloc, sizeof *p, err);
    if (!p) return NULL;
    p->alloc = alloc;
    p->rules = *rules;
    p->state = rules->starts_in_think ? STATE_THINK : STATE_CONTENT;
    p->skips_newlines = !rules->starts_in_think && !rules->starts_at_once; /* the prompt ended in </think> */
    struct buf *const bufs[] = {&p->clean, &p->held, &p->raw, &p->name, &p->key, &p->value, &p->pending};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) buf_init(bufs[i], alloc, TEXT_BYTES_MAX);
    return p;
}

void output_parser_free(struct output_parser *p)
{
    if (!p) return;
    struct buf *const bufs[] = {&p->clean, &p->held, &p->raw, &p->name, &p->key, &p->value, &p->pending};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++) buf_fini(bufs[i]);
    json_object_put(p->arguments);
    alloc_put(p->alloc, p);
}

bool output_parser_is_done(const struct output_parser *p)
{
    return p->state == STATE_DONE;
}
bool output_parser_in_call(const struct output_parser *p)
{
    return p->state >= STATE_NAME && p->state <= STATE_CLOSING;
}
uint32_t output_parser_calls(const struct output_parser *p)
{
    return p->n_calls;
}
uint32_t output_parser_reasoning_tokens(const struct output_parser *p)
{
    return p->n_reasoning;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool has_tools(const struct output_parser *p)
{
    return p->rules.tools && p->rules.tools->n_tools > 0;
}

static bool emit(struct output_parser *p, enum output_kind kind, const char *text, size_t bytes, struct err *err)
{
    struct output_event event = {.kind = kind, .text = text, .bytes = bytes};
    return bytes == 0 || p->rules.emit(p->rules.context, &event, err);
}

static bool put_reasoning(struct output_parser *p, struct err *err)
{
    for (size_t i = p->clean.bytes < 2 ? 0 : p->clean.bytes - 2; i < p->clean.bytes; i++) {
        p->last[0] = p->last[1];
        p->last[1] = p->clean.data[i];
    }
    return emit(p, OUTPUT_REASONING, p->clean.data, p->clean.bytes, err);
}

static bool put_content(struct output_parser *p, struct err *err)
{
    size_t start = 0, end = p->clean.bytes;
    const char *text = p->clean.data;
    while (p->skips_newlines && start < end && text[start] == '\n') start++;
    if (start == end) return true;
    p->skips_newlines = false;
    if (has_tools(p))
        while (end > start && is_blank(text[end - 1])) end--;
    if (end > start) {
        if (!emit(p, OUTPUT_CONTENT, p->held.data, p->held.bytes, err)) return false;
        buf_clear(&p->held);
        p->after_call = false;
        if (!emit(p, OUTPUT_CONTENT, text + start, end - start, err)) return false;
    }
    return buf_add(&p->held, text + end, p->clean.bytes - end, err);
}

/* Text of THINK or CONTENT, as raw bytes that may end inside a code point. */
static bool put_text(struct output_parser *p, const char *text, size_t bytes, struct err *err)
{
    buf_clear(&p->clean);
    if (!utf8_stream_add(&p->stream, &p->clean, text, bytes, err)) return false;
    return p->state == STATE_THINK ? put_reasoning(p, err) : put_content(p, err);
}

/* Nothing more belongs to the text of this state. */
static bool finish_text(struct output_parser *p, struct err *err)
{
    buf_clear(&p->clean);
    if (!utf8_stream_end(&p->stream, &p->clean, err)) return false;
    return p->state == STATE_THINK ? put_reasoning(p, err) : put_content(p, err);
}

static bool open_call(struct output_parser *p, const struct piece *piece, struct err *err)
{
    if (!finish_text(p, err)) return false;
    p->base = p->state;
    p->state = STATE_NAME;
    p->n_call_ids = 1;
    p->is_broken = false;
    p->tool = NULL;
    json_object_put(p->arguments);
    p->arguments = NULL;
    buf_clear(&p->raw);
    buf_clear(&p->name);
    return buf_add(&p->raw, piece->text, piece->bytes, err);
}

/* `<tool_call>` in one pair of backticks inside reasoning is the model talking about calls. */
static bool is_quoted(const struct output_parser *p)
{
    return p->state == STATE_THINK && p->last[1] == '`' && p->last[0] != '`';
}

static bool feed_text(struct output_parser *p, const struct piece *piece, struct err *err)
{
    switch (piece->control) {
    case CHAT_THINK:
        if (p->state == STATE_THINK) return true;
        if (!finish_text(p, err) || !emit(p, OUTPUT_CONTENT, p->held.data, p->held.bytes, err)) return false;
        buf_clear(&p->held);
        p->state = STATE_THINK;
        p->last[0] = p->last[1] = 0;
        return true;
    case CHAT_THINK_END:
        if (p->state == STATE_CONTENT) return true;
        if (!finish_text(p, err)) return false;
        p->state = STATE_CONTENT;
        p->skips_newlines = !p->rules.starts_at_once;
        return true;
    case CHAT_CALL:
        if (has_tools(p) && !is_quoted(p)) return open_call(p, piece, err);
        break;
    case CHAT_BOX:
    case CHAT_BOX_END:
        if (p->state == STATE_CONTENT) return true;
        break;
    default: break;
    }
    if (p->state == STATE_THINK) p->n_reasoning++;
    return put_text(p, piece->text, piece->bytes, err);
}

/* The open call is none: what was read becomes text of the state that it was found in. */
static bool fail_call(struct output_parser *p, struct err *err)
{
    p->state = p->base;
    if (p->state == STATE_THINK) p->n_reasoning += p->n_call_ids;
    bool ok = put_text(p, p->raw.data, p->raw.bytes, err);
    buf_clear(&p->raw);
    return ok;
}

/* A piece that the form of a call does not allow here. Marks that mean something outside calls are read again there. */
static bool break_call(struct output_parser *p, const struct piece *piece, struct err *err)
{
    bool means_more = piece->control == CHAT_THINK || piece->control == CHAT_THINK_END || piece->control == CHAT_CALL;
    if (!means_more && !buf_add(&p->raw, piece->text, piece->bytes, err)) return false;
    if (means_more) p->n_call_ids--;
    if (!fail_call(p, err)) return false;
    return !means_more || feed_text(p, piece, err);
}

static bool succeed_call(struct output_parser *p, struct err *err)
{
    buf_clear(&p->clean);
    if (!json_text_add(&p->clean, p->arguments, JSON_COMPACT, err)) return false;
    struct output_event event = {.kind = OUTPUT_CALL, .text = p->clean.data, .bytes = p->clean.bytes, .tool = p->tool};
    p->state = p->rules.one_call ? STATE_DONE : STATE_CONTENT;
    p->n_calls++;
    p->after_call = true;
    p->skips_newlines = false;
    buf_clear(&p->held);
    buf_clear(&p->raw);
    return p->rules.emit(p->rules.context, &event, err);
}

static bool complete_call(struct output_parser *p, struct err *err)
{
    return p->tool && !p->is_broken ? succeed_call(p, err) : fail_call(p, err);
}

/* Makes a buf valid UTF-8. */
static bool clean_up(struct output_parser *p, struct buf *text, struct err *err)
{
    struct utf8_stream stream = {0};
    buf_clear(&p->clean);
    if (!utf8_stream_add(&stream, &p->clean, text->data, text->bytes, err)) return false;
    if (!utf8_stream_end(&stream, &p->clean, err)) return false;
    buf_clear(text);
    return buf_add(text, p->clean.data, p->clean.bytes, err);
}

static bool name_is_known(struct output_parser *p, struct err *err)
{
    if (!clean_up(p, &p->name, err)) return false;
    size_t bytes = p->name.bytes;
    const char *name = utf8_strip(p->name.data, &bytes);
    p->tool = chat_tools_find(p->rules.tools, name, bytes);
    json_object_put(p->arguments);
    p->arguments = json_object_new_object();
    return p->arguments || err_set(err, ERR_NOMEM, "no memory for the arguments of a call");
}

static bool open_key(struct output_parser *p)
{
    buf_clear(&p->key);
    p->state = STATE_KEY;
    return true;
}

static bool feed_name(struct output_parser *p, const struct piece *piece, struct err *err)
{
    switch (piece->control) {
    case CHAT_TEXT: return buf_add(&p->name, piece->text, piece->bytes, err);
    case CHAT_KEY: return name_is_known(p, err) && open_key(p);
    case CHAT_CALL_END: return name_is_known(p, err) && complete_call(p, err);
    default: return false;
    }
}

static bool feed_key(struct output_parser *p, const struct piece *piece, struct err *err)
{
    if (piece->control == CHAT_TEXT) return buf_add(&p->key, piece->text, piece->bytes, err);
    ASSERT(piece->control == CHAT_KEY_END);
    p->state = STATE_GAP;
    return true;
}

static bool add_to_value(struct output_parser *p, const struct piece *piece, struct err *err)
{
    if (piece->control == CHAT_CALL_END) {
        p->call_end_at = p->value.bytes;
        p->ends_in_call_end = true;
    } else if (!piece->is_blank) {
        p->ends_in_call_end = false;
    }
    return buf_add(&p->value, piece->text, piece->bytes, err);
}

static bool close_value(struct output_parser *p, const struct piece *piece, struct err *err)
{
    p->state = STATE_CLOSING;
    buf_clear(&p->pending);
    return buf_add(&p->pending, piece->text, piece->bytes, err);
}

static bool feed_value(struct output_parser *p, const struct piece *piece, struct err *err)
{
    return piece->control == CHAT_VALUE_END ? close_value(p, piece, err) : add_to_value(p, piece, err);
}

static bool feed_gap(struct output_parser *p, const struct piece *piece, struct err *err)
{
    if (piece->is_blank) return true;
    p->state = STATE_VALUE;
    buf_clear(&p->value);
    p->ends_in_call_end = false;
    return piece->control == CHAT_VALUE || feed_value(p, piece, err);
}

/* The value ended: one more member of the arguments. */
static bool add_argument(struct output_parser *p, struct err *err)
{
    if (!clean_up(p, &p->key, err) || !clean_up(p, &p->value, err)) return false;
    if (p->key.bytes && memchr(p->key.data, 0, p->key.bytes)) p->is_broken = true; /* keys are C strings in json-c */
    if (!p->tool || p->is_broken) return true;
    struct json_object *value;
    struct tool_argument argument = {p->key.bytes ? p->key.data : "", p->value.bytes ? p->value.data : "",
                                     p->value.bytes};
    if (!tool_value_make(&value, p->alloc, p->tool->parameters, &argument, err)) return false;
    if (json_object_object_add(p->arguments, argument.key, value) == 0) return true;
    json_object_put(value);
    return err_set(err, ERR_NOMEM, "no memory for an argument");
}

static bool feed_closing(struct output_parser *p, const struct piece *piece, struct err *err)
{
    if (piece->is_blank) return buf_add(&p->pending, piece->text, piece->bytes, err);
    if (piece->control == CHAT_KEY) return add_argument(p, err) && open_key(p);
    if (piece->control == CHAT_CALL_END) return add_argument(p, err) && complete_call(p, err);
    if (!buf_add(&p->value, p->pending.data, p->pending.bytes, err)) return false;
    p->state = STATE_VALUE;
    p->ends_in_call_end = false;
    return feed_value(p, piece, err);
}

/* What the form of a call has no place for. Values have a place for everything. */
static bool breaks_call(const struct output_parser *p, const struct piece *piece)
{
    enum chat_control c = piece->control;
    switch (p->state) {
    case STATE_NAME: return c != CHAT_TEXT && c != CHAT_KEY && c != CHAT_CALL_END;
    case STATE_KEY: return c != CHAT_TEXT && c != CHAT_KEY_END;
    case STATE_GAP: return c != CHAT_TEXT && c != CHAT_VALUE && c != CHAT_VALUE_END;
    default: return false;
    }
}

static bool feed_call(struct output_parser *p, const struct piece *piece, struct err *err)
{
    p->n_call_ids++;
    if (breaks_call(p, piece)) return break_call(p, piece, err);
    if (!buf_add(&p->raw, piece->text, piece->bytes, err)) return false;
    switch (p->state) {
    case STATE_NAME: return feed_name(p, piece, err);
    case STATE_KEY: return feed_key(p, piece, err);
    case STATE_GAP: return feed_gap(p, piece, err);
    case STATE_VALUE: return feed_value(p, piece, err);
    default: ASSERT(p->state == STATE_CLOSING); return feed_closing(p, piece, err);
    }
}

bool output_parser_feed(struct output_parser *p, uint32_t id, struct token token, struct err *err)
{
    ASSERT(!p->has_ended);
    if (p->state == STATE_DONE) return true;
    struct piece piece = {.control = chat_ids_control(p->rules.ids, id), .text = token.bytes, .bytes = token.n_bytes};
    if (token.kind == TOKEN_SPECIAL && p->state != STATE_VALUE && p->state != STATE_CLOSING) piece.bytes = 0;
    piece.is_blank = piece.control == CHAT_TEXT;
    for (size_t i = 0; piece.is_blank && i < piece.bytes; i++) piece.is_blank = is_blank(piece.text[i]);
    return output_parser_in_call(p) ? feed_call(p, &piece, err) : feed_text(p, &piece, err);
}

/* The turn ended inside a call. Is it complete but for markers that only repeat what the end says? */
static bool end_call(struct output_parser *p, struct err *err)
{
    switch (p->state) {
    case STATE_NAME:
        if (!name_is_known(p, err)) return false;
        p->is_broken = p->tool && tool_value_required(p->tool->parameters);
        return complete_call(p, err);
    case STATE_VALUE:
        if (p->ends_in_call_end) p->value.bytes = p->call_end_at;
        return add_argument(p, err) && complete_call(p, err);
    case STATE_CLOSING: return add_argument(p, err) && complete_call(p, err);
    default: return fail_call(p, err);
    }
}

bool output_parser_end(struct output_parser *p, enum output_end end, struct err *err)
{
    ASSERT(!p->has_ended);
    p->has_ended = true;
    if (output_parser_in_call(p) && !(end == OUTPUT_END_EOS ? end_call(p, err) : fail_call(p, err))) return false;
    if (p->state == STATE_DONE) return true;
    if (!finish_text(p, err)) return false;
    return p->after_call || emit(p, OUTPUT_CONTENT, p->held.data, p->held.bytes, err);
}
