#include "gram/pattern_reader.h"

#include "base/utf8.h"
#include <string.h>

bool pattern_reader_init(struct pattern_reader *p, const char *where, const char *text, size_t bytes, struct err *err)
{
    size_t offset;
    *p = (struct pattern_reader){.where = where, .text = text, .bytes = bytes};
    return utf8_check(text, bytes, &offset) || pattern_invalid(p, offset, err, "this is not UTF-8");
}

bool pattern_invalid(const struct pattern_reader *p, size_t at, struct err *err, const char *what)
{
    return err_set(err, ERR_USER, "invalid_schema: %s: byte %zu: %s", p->where, at, what);
}

bool pattern_unsupported(const struct pattern_reader *p, size_t at, struct err *err, const char *what)
{
    return err_set(err, ERR_USER, "unsupported_schema: %s: byte %zu: %s", p->where, at, what);
}

uint32_t pattern_peek(const struct pattern_reader *p)
{
    uint32_t code;
    size_t used;
    if (p->at >= p->bytes) return PATTERN_END;
    utf8_next(p->text + p->at, p->bytes - p->at, &code, &used);
    return code;
}

uint32_t pattern_take(struct pattern_reader *p)
{
    uint32_t code;
    size_t used;
    if (p->at >= p->bytes) return PATTERN_END;
    utf8_next(p->text + p->at, p->bytes - p->at, &code, &used);
    p->at += used;
    return code;
}

bool pattern_take_if(struct pattern_reader *p, uint32_t code)
{
    if (pattern_peek(p) != code) return false;
    pattern_take(p);
    return true;
}

bool pattern_looks_at(const struct pattern_reader *p, const char *text)
{
    size_t n = strlen(text);
    return n <= p->bytes - p->at && memcmp(p->text + p->at, text, n) == 0;
}

/* ---- escapes ---- */

static bool hex(struct pattern_reader *p, size_t at, int digits, uint32_t *value, struct err *err)
{
    *value = 0;
    for (int i = 0; i < digits; i++) {
        uint32_t c = pattern_peek(p);
        uint32_t digit = c >= '0' && c <= '9'   ? c - '0'
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                : 16;
        if (digit == 16) return pattern_invalid(p, at, err, "hexadecimal digits are missing in an escape");
        *value = *value << 4 | digit;
        pattern_take(p);
    }
    return true;
}

/* \uXXXX, or two of them for a code point above U+FFFF. */
static bool unicode(struct pattern_reader *p, size_t at, uint32_t *code, struct err *err)
{
    uint32_t low;
    if (!hex(p, at, 4, code, err)) return false;
    if (*code < 0xD800 || *code > 0xDFFF) return true;
    if (*code > 0xDBFF || !pattern_looks_at(p, "\\u"))
        return pattern_invalid(p, at, err, "a surrogate without its pair");
    p->at += 2;
    if (!hex(p, at, 4, &low, err)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return pattern_invalid(p, at, err, "a surrogate without its pair");
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

static bool add_named(struct code_set *set, uint32_t name, struct err *err)
{
    static const struct {
        char name;
        struct code_range ranges[4];
        uint32_t n;
    } classes[] = {
        {'d', {{'0', '9'}}, 1},
        {'w', {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}, 4},
        {'s', {{0x09, 0x0D}, {' ', ' '}}, 2},
    };
    bool negated = name < 'a';
    struct code_set named;
    code_set_init(&named, set->alloc);
    bool ok = true;
    for (size_t i = 0; i < 3; i++)
        for (uint32_t k = 0; classes[i].name == (char)(name | 0x20) && k < classes[i].n; k++)
            ok = ok && code_set_add(&named, classes[i].ranges[k].low, classes[i].ranges[k].high, err);
    if (ok && negated) ok = code_set_negate(&named, err);
    for (uint32_t k = 0; ok && k < named.n; k++) ok = code_set_add(set, named.ranges[k].low, named.ranges[k].high, err);
    code_set_fini(&named);
    return ok;
}

/* What a letter or digit behind a backslash must not be, and why. */
static const char *refusal(uint32_t c)
{
    if (c >= '1' && c <= '9') return "back references are not supported";
    switch (c) {
    case 'b':
    case 'B': return "word boundaries are not supported";
    case 'p':
    case 'P': return "Unicode property classes are not supported";
    case 'k': return "back references are not supported";
    case 'A':
    case 'Z':
    case 'z':
    case 'G': return "anchors other than ^ and $ are not supported";
    default: return "this escape is not supported";
    }
}

bool pattern_escape(struct pattern_reader *p, size_t at, struct code_set *set, uint32_t *single, struct err *err)
{
    static const char letters[] = "nrtfv0", values[] = "\n\r\t\f\v";
    uint32_t c = pattern_take(p);
    *single = PATTERN_END;
    if (c == PATTERN_END) return pattern_invalid(p, at, err, "a backslash at the end");
    if (c < 0x80 && c && strchr("dDwWsS", (int)c)) return add_named(set, c, err);
    const char *found = c < 0x80 && c ? strchr(letters, (int)c) : NULL;
    bool is_alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (found) {
        *single = (unsigned char)values[found - letters];
        uint32_t next = pattern_peek(p);
        if (c == '0' && next >= '0' && next <= '9')
            return pattern_unsupported(p, at, err, "octal escapes are not supported");
    } else if (c == 'x') {
        if (!hex(p, at, 2, single, err)) return false;
    } else if (c == 'u') {
        if (!unicode(p, at, single, err)) return false;
    } else if (is_alnum) {
        return pattern_unsupported(p, at, err, refusal(c));
    } else {
        *single = c;
    }
    return code_set_add(set, *single, *single, err);
}

/* ---- classes ---- */

/* One code point or escape of a class; *single as in pattern_escape. */
static bool class_item(struct pattern_reader *p, struct code_set *set, uint32_t *single, struct err *err)
{
    size_t at = p->at;
    uint32_t c = pattern_take(p);
    if (c == '\\') return pattern_escape(p, at, set, single, err);
    if (c == '[' && (pattern_peek(p) == ':' || pattern_peek(p) == '.' || pattern_peek(p) == '='))
        return pattern_unsupported(p, at, err, "named classes are not supported");
    *single = c;
    return code_set_add(set, c, c, err);
}

bool pattern_class(struct pattern_reader *p, size_t at, struct code_set *set, struct err *err)
{
    bool negated = pattern_take_if(p, '^');
    if (pattern_peek(p) == ']') return pattern_unsupported(p, at, err, "an empty class is not supported");
    while (!pattern_take_if(p, ']')) {
        uint32_t low, high;
        size_t item_at = p->at;
        if (pattern_peek(p) == PATTERN_END) return pattern_invalid(p, at, err, "a class without its closing bracket");
        if (!class_item(p, set, &low, err)) return false;
        if (pattern_peek(p) != '-' || pattern_looks_at(p, "-]")) continue;
        pattern_take(p);
        if (pattern_peek(p) == PATTERN_END) return pattern_invalid(p, at, err, "a class without its closing bracket");
        if (!class_item(p, set, &high, err)) return false;
        if (low == PATTERN_END || high == PATTERN_END)
            return pattern_invalid(p, item_at, err, "a range needs a character on both sides");
        if (low > high) return pattern_invalid(p, item_at, err, "a range runs backwards");
        if (!code_set_add(set, low, high, err)) return false;
    }
    if (negated) return code_set_negate(set, err);
    code_set_tidy(set);
    return true;
}

/* ---- quantifiers ---- */

static bool number(struct pattern_reader *p, uint32_t *value)
{
    bool any = false;
    *value = 0;
    for (uint32_t c = pattern_peek(p); c >= '0' && c <= '9'; c = pattern_peek(p), any = true) {
        if (*value <= PATTERN_COUNT_MAX) *value = *value * 10 + (c - '0');
        pattern_take(p);
    }
    return any;
}

/* {m}, {m,} or {m,n}; anything else leaves the reader where it was. */
static bool braces(struct pattern_reader *p, struct pattern_count *count)
{
    size_t at = p->at;
    pattern_take(p);
    bool ok = number(p, &count->min);
    count->max = count->min;
    if (ok && pattern_take_if(p, ',') && !number(p, &count->max)) count->max = REGULAR_MANY;
    if (ok && pattern_take_if(p, '}')) return true;
    p->at = at;
    return false;
}

bool pattern_quantifier(struct pattern_reader *p, struct pattern_count *count, bool *found, struct err *err)
{
    size_t at = p->at;
    uint32_t c = pattern_peek(p);
    *found = true;
    if (c == '*' || c == '+' || c == '?') {
        pattern_take(p);
        *count = (struct pattern_count){c == '+', c == '?' ? 1 : REGULAR_MANY};
        return true;
    }
    *found = c == '{' && braces(p, count);
    if (!*found) return true;
    if (count->min > PATTERN_COUNT_MAX || (count->max != REGULAR_MANY && count->max > PATTERN_COUNT_MAX))
        return pattern_unsupported(p, at, err, "a count may be 1000 at most");
    return count->min <= count->max || pattern_invalid(p, at, err, "a count runs backwards");
}
