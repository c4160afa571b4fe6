#include "fmt/json_scan.h"

#include "base/utf8.h"
#include <string.h>

bool json_scan_fail(const struct json_scan *scan, struct err *err, const char *what)
{
    return err_set(err, ERR_DATA, "%s: byte %zu: %s", scan->name, scan->origin + scan->at, what);
}

bool json_scan_init(struct json_scan *scan, const char *name, const char *text, size_t bytes, size_t origin,
                    struct err *err)
{
    *scan = (struct json_scan){.name = name, .text = text, .bytes = bytes, .origin = origin};
    if (!utf8_check(text, bytes, &scan->at)) return json_scan_fail(scan, err, "not UTF-8");
    const char *nul = memchr(text, 0, bytes);
    scan->at = nul ? (size_t)(nul - text) : 0;
    return !nul || json_scan_fail(scan, err, "a NUL inside JSON text");
}

char json_scan_peek(struct json_scan *scan)
{
    while (scan->at < scan->bytes && memchr(" \t\n\r", scan->text[scan->at], 4)) scan->at++;
    return scan->at < scan->bytes ? scan->text[scan->at] : 0;
}

bool json_scan_mark(struct json_scan *scan, char mark, struct err *err)
{
    char found = json_scan_peek(scan);
    if (found == mark) {
        scan->at++;
        return true;
    }
    if (found == 0)
        return err_set(err, ERR_DATA, "%s: byte %zu: the text ends where '%c' was expected", scan->name,
                       scan->origin + scan->at, mark);
    return err_set(err, ERR_DATA, "%s: byte %zu: expected '%c', found '%c'", scan->name, scan->origin + scan->at, mark,
                   found > ' ' && found < 0x7f ? found : '?');
}

bool json_scan_next(struct json_scan *scan, char close, bool *first, bool *more, struct err *err)
{
    char found = json_scan_peek(scan);
    bool was_first = *first;
    *first = false;
    if (found == close) {
        scan->at++;
        *more = false;
        return true;
    }
    *more = true;
    return was_first || json_scan_mark(scan, ',', err);
}

static bool hex4(struct json_scan *scan, uint32_t *out, struct err *err)
{
    if (scan->bytes - scan->at < 4) return json_scan_fail(scan, err, "the text ends inside an escape");
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = scan->text[scan->at];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) return json_scan_fail(scan, err, "an escape needs four hexadecimal digits");
        *out = *out * 16 + digit;
        scan->at++;
    }
    return true;
}

/* The code point of a \u escape, whose \u was taken; a surrogate must have its other half behind it. */
static bool unicode_escape(struct json_scan *scan, uint32_t *point, struct err *err)
{
    if (!hex4(scan, point, err)) return false;
    if (*point == 0) return json_scan_fail(scan, err, "a NUL inside a string");
    if (*point < 0xd800 || *point > 0xdfff) return true;
    uint32_t low;
    if (*point > 0xdbff || scan->bytes - scan->at < 2 || memcmp(scan->text + scan->at, "\\u", 2) != 0)
        return json_scan_fail(scan, err, "half of a surrogate pair");
    scan->at += 2;
    if (!hex4(scan, &low, err)) return false;
    if (low < 0xdc00 || low > 0xdfff) return json_scan_fail(scan, err, "half of a surrogate pair");
    *point = 0x10000 + ((*point - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* One escape, whose backslash was taken, as UTF-8. */
static bool escape(struct json_scan *scan, char out[4], size_t *n, struct err *err)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (scan->at == scan->bytes) return json_scan_fail(scan, err, "the text ends inside a string");
    char c = scan->text[scan->at];
    if (c == 'u') {
        uint32_t point;
        scan->at++;
        if (!unicode_escape(scan, &point, err)) return false;
        *n = utf8_put(out, point);
        return true;
    }
    const char *letter = strchr(letters, c);
    if (!letter) return json_scan_fail(scan, err, "unknown escape");
    scan->at++;
    out[0] = values[letter - letters];
    *n = 1;
    return true;
}

bool json_scan_string(struct json_scan *scan, char *out, size_t room, size_t *out_bytes, struct err *err)
{
    size_t used = 0;
    if (!json_scan_mark(scan, '"', err)) return false;
    for (;;) {
        if (scan->at == scan->bytes) return json_scan_fail(scan, err, "the text ends inside a string");
        char piece[4] = {scan->text[scan->at]};
        size_t n = 1;
        if (piece[0] == '"') break;
        if ((unsigned char)piece[0] < 0x20) return json_scan_fail(scan, err, "a control character inside a string");
        scan->at++;
        if (piece[0] == '\\' && !escape(scan, piece, &n, err)) return false;
        if (!out) continue;
        if (n >= room - used) return json_scan_fail(scan, err, "a string that is too long for its place");
        memcpy(out + used, piece, n);
        used += n;
    }
    scan->at++;
    if (out) out[used] = 0;
    if (out_bytes) *out_bytes = used;
    return true;
}

bool json_scan_key(struct json_scan *scan, char *out, size_t room, struct err *err)
{
    return json_scan_string(scan, out, room, NULL, err) && json_scan_mark(scan, ':', err);
}

static bool is_digit(const struct json_scan *scan)
{
    return scan->at < scan->bytes && scan->text[scan->at] >= '0' && scan->text[scan->at] <= '9';
}

bool json_scan_whole(struct json_scan *scan, uint64_t *out, struct err *err)
{
    *out = 0;
    json_scan_peek(scan);
    if (!is_digit(scan)) return json_scan_fail(scan, err, "expected a number of digits only");
    bool leads_with_zero = scan->text[scan->at] == '0';
    size_t start = scan->at;
    for (; is_digit(scan); scan->at++) {
        *out = *out * 10 + (uint64_t)(scan->text[scan->at] - '0');
        if (*out > UINT64_C(1) << 53) return json_scan_fail(scan, err, "a number above 2^53");
    }
    if (leads_with_zero && scan->at - start > 1) return json_scan_fail(scan, err, "a number with a leading zero");
    if (scan->at < scan->bytes && memchr(".eE", scan->text[scan->at], 3))
        return json_scan_fail(scan, err, "expected a whole number");
    return true;
}

static bool skip_digits(struct json_scan *scan, struct err *err)
{
    if (!is_digit(scan)) return json_scan_fail(scan, err, "expected a digit");
    while (is_digit(scan)) scan->at++;
    return true;
}

static bool take(struct json_scan *scan, const char *set)
{
    bool hit = scan->at < scan->bytes && strchr(set, scan->text[scan->at]);
    scan->at += hit;
    return hit;
}

static bool skip_number(struct json_scan *scan, struct err *err)
{
    take(scan, "-");
    bool leads_with_zero = take(scan, "0");
    if (leads_with_zero && is_digit(scan)) return json_scan_fail(scan, err, "a number with a leading zero");
    if (!leads_with_zero && !skip_digits(scan, err)) return false;
    if (take(scan, ".") && !skip_digits(scan, err)) return false;
    if (!take(scan, "eE")) return true;
    take(scan, "+-");
    return skip_digits(scan, err);
}

static bool skip_word(struct json_scan *scan, const char *word, struct err *err)
{
    size_t n = strlen(word);
    if (scan->bytes - scan->at < n || memcmp(scan->text + scan->at, word, n) != 0)
        return json_scan_fail(scan, err, "expected a value");
    scan->at += n;
    return true;
}

static bool skip_scalar(struct json_scan *scan, struct err *err)
{
    switch (json_scan_peek(scan)) {
    case '"': return json_scan_string(scan, NULL, 0, NULL, err);
    case 't': return skip_word(scan, "true", err);
    case 'f': return skip_word(scan, "false", err);
    case 'n': return skip_word(scan, "null", err);
    case 0: return json_scan_fail(scan, err, "the text ends where a value was expected");
    default: return skip_number(scan, err);
    }
}

/* Without recursion: `close` is the stack of marks that are still to come. */
bool json_scan_skip(struct json_scan *scan, struct err *err)
{
    char close[JSON_DEPTH_MAX];
    bool first[JSON_DEPTH_MAX];
    size_t depth = 0;
    do {
        bool more = true;
        if (depth > 0 && !json_scan_next(scan, close[depth - 1], &first[depth - 1], &more, err)) return false;
        if (!more) {
            depth--;
            continue;
        }
        if (depth > 0 && close[depth - 1] == '}' &&
            (!json_scan_string(scan, NULL, 0, NULL, err) || !json_scan_mark(scan, ':', err)))
            return false;
        char open = json_scan_peek(scan);
        if (open == '{' || open == '[') {
            if (depth == JSON_DEPTH_MAX) return json_scan_fail(scan, err, "nested too deep (limit 64)");
            scan->at++;
            close[depth] = open == '{' ? '}' : ']';
            first[depth++] = true;
        } else if (!skip_scalar(scan, err)) {
            return false;
        }
    } while (depth > 0);
    return true;
}

bool json_scan_end(struct json_scan *scan, struct err *err)
{
    json_scan_peek(scan);
    if (scan->at == scan->bytes) return true;
    return json_scan_fail(scan, err, "something follows behind the end of the JSON text");
}
