#include "fmt/json_doc.h"

#include "base/buf.h"
#include "base/utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <assert.h>
#include <string.h>

const struct json_rules json_rules_request = {.kind = ERR_USER, .bytes_max = 16 << 20, .values_max = 1000000};
const struct json_rules json_rules_file = {.kind = ERR_DATA, .bytes_max = 16 << 20, .values_max = 1000000};

static_assert(JSON_DOC_DEPTH_MAX == 128, "the message says how many");

struct reader {
    const struct json_rules *rules;
    const char *name, *text;
    size_t at, bytes;
    struct buf scratch; /* a stack: decoded keys and strings, each above those of the containers around it */
    uint32_t n_values, depth;
    struct err *err;
};

static bool wrong(const struct reader *r, size_t at, const char *what)
{
    return err_set(r->err, r->rules->kind, "%s: byte %zu: %s", r->name, at, what);
}

static bool out_of_memory(const struct reader *r)
{
    return err_set(r->err, ERR_NOMEM, "%s: no memory for a JSON value", r->name);
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->bytes && strchr(" \t\n\r", r->text[r->at]) && r->text[r->at]) r->at++;
}

/* Takes one expected byte after blanks. */
static bool take(struct reader *r, char c)
{
    skip_blanks(r);
    if (r->at == r->bytes || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static bool take_hex4(struct reader *r, uint32_t *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        char c = r->at < r->bytes ? r->text[r->at] : 0;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) return wrong(r, r->at, "\\u needs four hexadecimal digits");
        *unit = *unit << 4 | digit;
        r->at++;
    }
    return true;
}

/* After "\u": one code point, from one or two escapes. */
static bool take_unicode_escape(struct reader *r)
{
    uint32_t unit, low;
    if (!take_hex4(r, &unit)) return false;
    if (unit >= 0xD800 && unit <= 0xDBFF && r->bytes - r->at >= 2 && memcmp(r->text + r->at, "\\u", 2) == 0) {
        size_t second = r->at;
        r->at += 2;
        if (!take_hex4(r, &low)) return false;
        if (low >= 0xDC00 && low <= 0xDFFF)
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        else
            r->at = second; /* not its pair: decoded on its own in the next round */
    }
    if (unit >= 0xD800 && unit <= 0xDFFF) unit = 0xFFFD;
    char utf8[4];
    return buf_add(&r->scratch, utf8, utf8_put(utf8, unit), r->err);
}

static bool take_escape(struct reader *r)
{
    static const char plain[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->bytes) return wrong(r, r->at, "the text ends inside a string");
    char c = r->text[r->at++];
    if (c == 'u') return take_unicode_escape(r);
    const char *found = c ? strchr(plain, c) : NULL;
    if (!found) return wrong(r, r->at - 2, "not an escape that JSON has");
    return buf_add_char(&r->scratch, means[found - plain], r->err);
}

/* After the opening quote: pushes the decoded text and a NUL; *start and *length say where it is in the scratch. */
static bool take_string(struct reader *r, size_t *start, size_t *length)
{
    size_t opening = r->at - 1, plain = r->at;
    *start = r->scratch.bytes;
    for (;;) {
        if (r->at == r->bytes) return wrong(r, opening, "this string has no closing quote");
        unsigned char c = (unsigned char)r->text[r->at];
        if (c < 0x20) return wrong(r, r->at, "a control character in a string must be escaped");
        uint32_t code;
        size_t used = 1;
        if (c >= 0x80 && utf8_next(r->text + r->at, r->bytes - r->at, &code, &used) != UTF8_VALID)
            return wrong(r, r->at, "not valid UTF-8");
        if (c != '"' && c != '\\') {
            r->at += used;
            continue;
        }
        if (!buf_add(&r->scratch, r->text + plain, r->at - plain, r->err)) return false;
        r->at++;
        if (c == '"') break;
        if (!take_escape(r)) return false;
        plain = r->at;
    }
    *length = r->scratch.bytes - *start;
    return buf_add_char(&r->scratch, 0, r->err);
}

static void pop(struct reader *r, size_t start)
{
    r->scratch.bytes = start;
}

static bool parse_string(struct reader *r, struct json_object **out)
{
    size_t start, length;
    r->at++;
    if (!take_string(r, &start, &length)) return false;
    *out = json_object_new_string_len(r->scratch.data + start, (int)length);
    pop(r, start);
    return *out || out_of_memory(r);
}

static size_t take_digits(struct reader *r)
{
    size_t start = r->at;
    while (r->at < r->bytes && r->text[r->at] >= '0' && r->text[r->at] <= '9') r->at++;
    return r->at - start;
}

/* Moves over one number of the JSON grammar. */
static bool scan_number(struct reader *r, bool *is_integer)
{
    *is_integer = true;
    if (r->text[r->at] == '-') r->at++;
    size_t digits = r->at;
    if (!take_digits(r)) return wrong(r, r->at, "a number needs a digit here");
    if (r->text[digits] == '0' && r->at > digits + 1) return wrong(r, digits, "a number must not begin with 0");
    if (r->at < r->bytes && r->text[r->at] == '.') {
        *is_integer = false;
        r->at++;
        if (!take_digits(r)) return wrong(r, r->at, "a number needs a digit after its point");
    }
    if (r->at < r->bytes && (r->text[r->at] == 'e' || r->text[r->at] == 'E')) {
        *is_integer = false;
        r->at++;
        if (r->at < r->bytes && (r->text[r->at] == '+' || r->text[r->at] == '-')) r->at++;
        if (!take_digits(r)) return wrong(r, r->at, "a number needs a digit in its exponent");
    }
    return true;
}

static struct json_object *new_integer(const char *digits, double value)
{
    errno = 0;
    long long small = strtoll(digits, NULL, 10);
    if (!errno) return json_object_new_int64(small);
    errno = 0;
    unsigned long long large = strtoull(digits, NULL, 10);
    if (!errno && digits[0] != '-') return json_object_new_uint64(large);
    return json_object_new_double_s(value, digits);
}

static bool parse_number(struct reader *r, struct json_object **out)
{
    size_t start = r->at, mark = r->scratch.bytes;
    bool is_integer;
    if (!scan_number(r, &is_integer)) return false;
    if (r->at - start > JSON_DIGITS_MAX) return wrong(r, start, "a number of more than 4300 characters");
    if (!buf_add(&r->scratch, r->text + start, r->at - start, r->err)) return false;
    const char *digits = r->scratch.data + mark;
    double value = strtod(digits, NULL);
    if (!is_integer && value - value != 0) return wrong(r, start, "this number is too large for a 64-bit float");
    *out = is_integer ? new_integer(digits, value) : json_object_new_double(value);
    pop(r, mark);
    return *out || out_of_memory(r);
}

static bool parse_word(struct reader *r, struct json_object **out)
{
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (r->bytes - r->at < n || memcmp(r->text + r->at, words[i], n) != 0) continue;
        r->at += n;
        *out = i == 0 ? NULL : json_object_new_boolean(i == 1);
        return i == 0 || *out || out_of_memory(r);
    }
    return wrong(r, r->at, r->at == r->bytes ? "the text ends where a value should be" : "not a JSON value");
}

static bool parse_value(struct reader *r, struct json_object **out);

static bool parse_member(struct reader *r, struct json_object *object)
{
    size_t key, length, key_at;
    struct json_object *value = NULL;
    skip_blanks(r);
    key_at = r->at;
    if (!take(r, '"')) return wrong(r, r->at, "a member must begin with a quoted key");
    if (!take_string(r, &key, &length)) return false;
    if (memchr(r->scratch.data + key, 0, length)) return wrong(r, key_at, "a key that holds U+0000 is not supported");
    if (!take(r, ':')) return wrong(r, r->at, "a colon must follow the key");
    if (!parse_value(r, &value)) return false;
    if (json_object_object_add(object, r->scratch.data + key, value) != 0) {
        json_object_put(value);
        return out_of_memory(r);
    }
    pop(r, key);
    return true;
}

static bool parse_item(struct reader *r, struct json_object *array)
{
    struct json_object *value = NULL;
    if (!parse_value(r, &value)) return false;
    if (json_object_array_add(array, value) == 0) return true;
    json_object_put(value);
    return out_of_memory(r);
}

static bool parse_container(struct reader *r, struct json_object **out)
{
    bool is_object = r->text[r->at] == '{';
    char closing = is_object ? '}' : ']';
    if (r->depth == JSON_DOC_DEPTH_MAX) return wrong(r, r->at, "more than 128 levels of nesting");
    r->at++;
    r->depth++;
    struct json_object *container = is_object ? json_object_new_object() : json_object_new_array();
    if (!container) return out_of_memory(r);
    if (!take(r, closing)) {
        do {
            if (!(is_object ? parse_member(r, container) : parse_item(r, container))) goto fail;
        } while (take(r, ','));
        if (!take(r, closing)) {
            wrong(r, r->at, is_object ? "a comma or } must follow a member" : "a comma or ] must follow an item");
            goto fail;
        }
    }
    r->depth--;
    *out = container;
    return true;
fail:
    json_object_put(container);
    return false;
}

static bool parse_value(struct reader *r, struct json_object **out)
{
    skip_blanks(r);
    if (r->n_values++ == r->rules->values_max)
        return err_set(r->err, r->rules->kind, "%s: byte %zu: more than %u values", r->name, r->at,
                       (unsigned)r->rules->values_max);
    char c = r->at < r->bytes ? r->text[r->at] : 0;
    if (c == '{' || c == '[') return parse_container(r, out);
    if (c == '"') return parse_string(r, out);
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(r, out);
    return parse_word(r, out);
}

bool json_doc_parse(struct json_object **doc, struct alloc *alloc, const struct json_rules *rules, const char *name,
                    const char *text, size_t bytes, struct err *err)
{
    struct reader r = {.rules = rules, .name = name, .text = text, .bytes = bytes, .err = err};
    *doc = NULL;
    if (bytes > rules->bytes_max)
        return err_set(err, rules->kind, "%s: %zu bytes of JSON, at most %zu are read", name, bytes, rules->bytes_max);
    /* A decoded text is never longer than its source but for its NUL, one for each quoted string. */
    buf_init(&r.scratch, alloc, 2 * bytes + 8);
    bool ok = parse_value(&r, doc);
    if (ok) {
        skip_blanks(&r);
        if (r.at < bytes) ok = wrong(&r, r.at, "something follows the JSON value");
    }
    if (!ok) {
        json_object_put(*doc);
        *doc = NULL;
    }
    buf_fini(&r.scratch);
    return ok;
}
