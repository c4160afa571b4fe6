#ifndef FMT_OUTPUT_PARSER_H
#define FMT_OUTPUT_PARSER_H
/* What a model generated, sorted into reasoning, content and tool calls.
 *
 * The parser takes token ids with their bytes, one by one, so a marker that is spelled by ordinary tokens is text and
 * nothing depends on how the ids arrive. Events come as soon as they are certain: reasoning and content as text, always
 * whole and valid UTF-8; a call once, when it is complete, with arguments that are valid JSON. What looks like a call
 * and is none (no declared name, broken form, cut at the token limit) comes as the text that it is: nothing is repaired
 * and nothing is lost. The events do not depend on anything but the ids.
 *
 * Owned by one thread. The tools and ids must live longer. */
#include "fmt/chat_ids.h"
#include "fmt/chat_tools.h"

enum output_kind { OUTPUT_REASONING, OUTPUT_CONTENT, OUTPUT_CALL };

struct output_event {
    enum output_kind kind;
    const char *text; /* [bytes], without a NUL; of a call: the arguments, one compact JSON object */
    size_t bytes;
    const struct chat_tool *tool; /* of a call */
};

/* Borrowed for the length of the call. False ends the parser, with the error that was set. */
typedef bool output_fn(void *context, const struct output_event *event, struct err *err);

struct output_rules {
    const struct chat_ids *ids;
    const struct chat_tools *tools; /* declared and allowed; NULL or none: markers of calls are plain text */
    bool starts_in_think;           /* chat_prompt_ends_in_think */
    bool starts_at_once;            /* line feeds in front of the content are part of it */
    bool one_call;                  /* nothing is read after the first complete call */
    output_fn *emit;
    void *context;
};

enum output_end {
    OUTPUT_END_EOS, /* the model ended its turn: a call whose pairs are complete is accepted without its last marker */
    OUTPUT_END_CUT, /* token limit, stop sequence, cancelled: an open call is text */
};

struct output_parser;

struct output_parser *output_parser_new(struct alloc *alloc, const struct output_rules *rules,
                                        struct err *err) MUST_CHECK;
void output_parser_free(struct output_parser *parser); /* NULL is fine */

/* One generated id and its token. Special tokens are left out of every text but that of an argument. */
bool output_parser_feed(struct output_parser *parser, uint32_t id, struct token token, struct err *err) MUST_CHECK;

/* Once, after the last id (which does not include the EOS). Nothing may be fed afterwards. */
bool output_parser_end(struct output_parser *parser, enum output_end end, struct err *err) MUST_CHECK;

/* True after the first complete call under one_call: generation can stop. Ids fed from then on are ignored. */
bool output_parser_is_done(const struct output_parser *parser);

/* True between <tool_call> and its end: there a role marker is not the end of the turn. */
bool output_parser_in_call(const struct output_parser *parser);

uint32_t output_parser_calls(const struct output_parser *parser);            /* complete so far */
uint32_t output_parser_reasoning_tokens(const struct output_parser *parser); /* without markers */

#endif
