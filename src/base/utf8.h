#ifndef BASE_UTF8_H
#define BASE_UTF8_H
/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.
 *
 * Where invalid bytes are replaced, each maximal subpart gives one U+FFFD (the decoder rule of the WHATWG). */
#include "base/buf.h"
#include <stddef.h>
#include <stdint.h>

enum utf8_kind {
    UTF8_VALID,
    UTF8_INVALID, /* these bytes are not the beginning of any code point together with what follows them */
    UTF8_CUT,     /* the text ends inside a code point that more bytes could complete */
};

/* Looks at the code point at the beginning of text[bytes], bytes > 0. *used: its length, or that of the maximal
 * invalid or incomplete subpart (1 to 3). *code: U+FFFD unless valid. */
enum utf8_kind utf8_next(const char *text, size_t bytes, uint32_t *code, size_t *used);

/* True when all of it is valid; otherwise *offset is where the first bad byte sequence begins. */
bool utf8_check(const char *text, size_t bytes, size_t *offset);

/* Writes a code point (not a surrogate, at most U+10FFFF) and returns its length. */
size_t utf8_put(char out[4], uint32_t code);

/* What Python's str.strip() takes off: White_Space and U+001C..U+001F. */
bool utf8_is_space(uint32_t code);

/* Moves both ends of text[*bytes] inwards over white space and returns the new beginning. Valid UTF-8 only. */
const char *utf8_strip(const char *text, size_t *bytes);

/* Bytes that arrive in pieces, which may end anywhere. A zeroed struct is ready to use. */
struct utf8_stream {
    char held[3]; /* an incomplete but still possible code point */
    uint8_t n_held;
};

/* Appends to `out` all that is decided; the whole output is the same for every cutting of the input. */
bool utf8_stream_add(struct utf8_stream *stream, struct buf *out, const char *text, size_t bytes,
                     struct err *err) MUST_CHECK;

/* What is still held becomes one U+FFFD. The stream is as new afterwards. */
bool utf8_stream_end(struct utf8_stream *stream, struct buf *out, struct err *err) MUST_CHECK;

#endif
