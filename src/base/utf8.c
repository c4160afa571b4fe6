#include "base/utf8.h"

#include "base/assert.h"
#include <string.h>

enum { REPLACEMENT = 0xFFFD };

/* The second byte has a narrower range after some first bytes; that alone rules out overlong forms, surrogates and
 * code points above U+10FFFF. */
static size_t length_of(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) return 2;
    if (first >= 0xE0 && first <= 0xEF) return 3;
    if (first >= 0xF0 && first <= 0xF4) return 4;
    return 0;
}

enum utf8_kind utf8_next(const char *text, size_t bytes, uint32_t *code, size_t *used)
{
    ASSERT(bytes > 0);
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low, high;
    size_t length = length_of(s[0], &low, &high);
    *code = REPLACEMENT;
    *used = 1;
    if (length == 0) return UTF8_INVALID;
    if (length == 1) {
        *code = s[0];
        return UTF8_VALID;
    }
    uint32_t value = s[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++, low = 0x80, high = 0xBF) {
        *used = i;
        if (i == bytes) return UTF8_CUT;
        if (s[i] < low || s[i] > high) return UTF8_INVALID;
        value = value << 6 | (s[i] & 0x3Fu);
    }
    *code = value;
    *used = length;
    return UTF8_VALID;
}

bool utf8_check(const char *text, size_t bytes, size_t *offset)
{
    for (size_t at = 0, used; at < bytes; at += used) {
        uint32_t code;
        if (utf8_next(text + at, bytes - at, &code, &used) == UTF8_VALID) continue;
        *offset = at;
        return false;
    }
    return true;
}

size_t utf8_put(char out[4], uint32_t code)
{
    ASSERT(code <= 0x10FFFF);
    ASSERT(code < 0xD800 || code > 0xDFFF);
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (length == 1) {
        out[0] = (char)code;
        return 1;
    }
    for (size_t i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00u >> length) | code);
    return length;
}

bool utf8_is_space(uint32_t code)
{
    if (code <= 0x20) return code == 0x20 || (code >= 0x09 && code <= 0x0D) || code >= 0x1C;
    switch (code) {
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000: return true;
    default: return code >= 0x2000 && code <= 0x200A;
    }
}

const char *utf8_strip(const char *text, size_t *bytes)
{
    uint32_t code;
    size_t used;
    while (*bytes && utf8_next(text, *bytes, &code, &used) == UTF8_VALID && utf8_is_space(code)) {
        text += used;
        *bytes -= used;
    }
    while (*bytes) {
        size_t start = *bytes - 1;
        while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80) start--;
        if (utf8_next(text + start, *bytes - start, &code, &used) != UTF8_VALID || !utf8_is_space(code)) break;
        *bytes = start;
    }
    return text;
}

static bool put_replacement(struct buf *out, struct err *err)
{
    return buf_add(out, "\xEF\xBF\xBD", 3, err);
}

/* Completes, refuses or lengthens the held prefix with the first bytes of the text; tells how many it took. */
static bool finish_held(struct utf8_stream *stream, struct buf *out, const char *text, size_t bytes, size_t *taken,
                        struct err *err)
{
    char joined[4];
    uint32_t code;
    size_t used, n = stream->n_held;
    memcpy(joined, stream->held, n);
    *taken = 0;
    while (*taken < bytes && n < sizeof joined) {
        joined[n++] = text[(*taken)++];
        enum utf8_kind kind = utf8_next(joined, n, &code, &used);
        if (kind == UTF8_CUT) continue;
        stream->n_held = 0;
        if (kind == UTF8_VALID) return buf_add(out, joined, used, err);
        *taken -= n - used; /* the byte that did not fit begins something of its own */
        return put_replacement(out, err);
    }
    memcpy(stream->held, joined, n);
    stream->n_held = (uint8_t)n;
    return true;
}

bool utf8_stream_add(struct utf8_stream *stream, struct buf *out, const char *text, size_t bytes, struct err *err)
{
    size_t at = 0;
    if (bytes == 0) return true;
    if (stream->n_held && !finish_held(stream, out, text, bytes, &at, err)) return false;
    size_t start = at; /* of the valid bytes that are not yet in `out` */
    while (at < bytes) {
        uint32_t code;
        size_t used;
        enum utf8_kind kind = utf8_next(text + at, bytes - at, &code, &used);
        if (kind != UTF8_VALID && !buf_add(out, text + start, at - start, err)) return false;
        if (kind == UTF8_INVALID && !put_replacement(out, err)) return false;
        if (kind == UTF8_CUT) {
            memcpy(stream->held, text + at, used);
            stream->n_held = (uint8_t)used;
            return true;
        }
        at += used;
        if (kind == UTF8_INVALID) start = at;
    }
    return at == start || buf_add(out, text + start, at - start, err); /* no text may be no pointer either */
}

bool utf8_stream_end(struct utf8_stream *stream, struct buf *out, struct err *err)
{
    if (!stream->n_held) return true;
    stream->n_held = 0;
    return put_replacement(out, err);
}
