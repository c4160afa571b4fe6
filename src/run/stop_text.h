#ifndef RUN_STOP_TEXT_H
#define RUN_STOP_TEXT_H
/* The visible text of an answer on its way out: cut before a stop string, and safe to send piece by piece.
 *
 * Bytes of tokens go in; what comes out is valid UTF-8 and final. Held back are the longest suffix that begins some
 * stop string and an incomplete code point behind what is released, and nothing else. The output does not depend on
 * how the input is cut. Bytes that are not UTF-8 become U+FFFD on the way out, after matching.
 *
 * Only text in which stop strings count goes in here: not reasoning, not the arguments of calls, not the prompt.
 *
 * Values and a borrowed set, no memory of its own: what is held back is the beginning of a stop string, so it is read
 * from there. A copy is a snapshot. Owned by one thread. */
#include "base/utf8.h"
#include "run/stop.h"

struct stop_text {
    const struct stop_set *set; /* outlives the text */
    struct utf8_stream utf8;
    uint32_t state;
    uint8_t match; /* index of the stop string that ended the text; STOP_NO_STRING while it goes on */
};

void stop_text_init(struct stop_text *text, const struct stop_set *set);

/* Appends to `out` what has become safe. When a stop string completes, its index is in text->match, everything before
 * it is out, and this and all later bytes are dropped. After a failure, which comes from `out`, the text is over. */
bool stop_text_add(struct stop_text *text, struct buf *out, const char *bytes, size_t n, struct err *err) MUST_CHECK;

/* The answer ended for another reason: what was held back is text after all. */
bool stop_text_end(struct stop_text *text, struct buf *out, struct err *err) MUST_CHECK;

/* Bytes held back for stop strings. */
uint32_t stop_text_held(const struct stop_text *text);

#endif
