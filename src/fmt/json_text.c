#include "fmt/json_text.h"

#include "base/assert.h"
#include "base/utf8.h"
#include <float.h>
#include <inttypes.h>
#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* d.ddde[+-]xx with `digits` digits; true when it reads back as the same double. */
static bool print_rounded(char *out, double value, int digits)
{
    snprintf(out, JSON_NUMBER_BYTES, "%.*e", digits - 1, value);
    return strtod(out, NULL) == value;
}

/* The same one unit in the last place away from zero. Below a power of two doubles lie closer than above it, so the
 * nearest decimal of a given length can miss the value while the next larger one reads back as it. */
static bool print_next(char *out, double value, int digits)
{
    snprintf(out, JSON_NUMBER_BYTES, "%.*e", digits - 1, value);
    char *first = out + (out[0] == '-');
    for (char *c = strchr(out, 'e') - 1; c >= first; c--) {
        if (*c == '.') continue;
        if (*c != '9') {
            (*c)++;
            return strtod(out, NULL) == value;
        }
        *c = '0';
    }
    return false; /* all nines: a shorter text would have done */
}

/* Shortest first. A normal double that has a text of up to 15 digits prints as that text, and zeros, with 15. */
static void print_shortest(char *out, double value)
{
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    while (!print_rounded(out, value, digits) && !print_next(out, value, digits)) digits++;
    ASSERT(digits <= 17);
}

static char *put(char *out, const char *text, int n)
{
    memcpy(out, text, (size_t)n);
    return out + n;
}

void json_text_number(char out[JSON_NUMBER_BYTES], double value)
{
    static const char zeros[] = "0000000000000000";
    char printed[JSON_NUMBER_BYTES], digits[20];
    ASSERT(isfinite(value));
    print_shortest(printed, value);
    int n = 0;
    const char *c = printed;
    if (*c == '-') *out++ = *c++;
    for (; *c != 'e'; c++)
        if (*c != '.') digits[n++] = *c;
    while (n > 1 && digits[n - 1] == '0') n--;
    int exponent = (int)strtol(c + 1, NULL, 10);
    if (exponent < -4 || exponent > 15) {
        *out++ = digits[0];
        if (n > 1) *out++ = '.';
        out = put(out, digits + 1, n - 1);
        snprintf(out, 6, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent) % 1000);
        return;
    }
    int whole = exponent < 0 ? 0 : exponent + 1; /* digits before the point, some of them perhaps not printed */
    int given = n < whole ? n : whole;
    if (whole == 0) out = put(out, zeros, 1);
    out = put(put(out, digits, given), zeros, whole - given);
    *out++ = '.';
    out = put(out, zeros, exponent < 0 ? -exponent - 1 : n == given);
    *put(out, digits + given, n - given) = 0;
}

bool json_text_add_escaped(struct buf *out, const char *text, size_t bytes, struct err *err)
{
    static const char shorts[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t plain = 0;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (!buf_add(out, text + plain, i - plain, err)) return false;
        plain = i + 1;
        const char *found = c ? strchr(shorts, c) : NULL;
        char escape[8];
        int n = found ? snprintf(escape, sizeof escape, "\\%c", letters[found - shorts])
                      : snprintf(escape, sizeof escape, "\\u%04x", c);
        if (!buf_add(out, escape, (size_t)n, err)) return false;
    }
    return buf_add(out, text + plain, bytes - plain, err);
}

/* Names of files and folders are any bytes. */
static bool add_any_bytes(struct buf *out, const char *text, size_t bytes, struct err *err)
{
    size_t bad;
    while (!utf8_check(text, bytes, &bad)) {
        uint32_t code;
        size_t used;
        char replacement[4];
        utf8_next(text + bad, bytes - bad, &code, &used);
        if (!json_text_add_escaped(out, text, bad, err) || !buf_add(out, replacement, utf8_put(replacement, code), err))
            return false;
        text += bad + used;
        bytes -= bad + used;
    }
    return json_text_add_escaped(out, text, bytes, err);
}

bool json_text_add_string(struct buf *out, const char *text, size_t bytes, struct err *err)
{
    return buf_add_char(out, '"', err) && add_any_bytes(out, text, bytes, err) && buf_add_char(out, '"', err);
}

/* An integer beyond 64 bits keeps its digits beside the double; every other double has nothing there. */
static bool add_double(struct buf *out, struct json_object *value, struct err *err)
{
    const char *digits = json_object_get_userdata(value);
    if (digits && digits[strspn(digits, "-0123456789")] == 0) return buf_add_text(out, digits, err);
    char number[JSON_NUMBER_BYTES];
    json_text_number(number, json_object_get_double(value));
    return buf_add_text(out, number, err);
}

static bool add_integer(struct buf *out, const struct json_object *value, struct err *err)
{
    int64_t integer = json_object_get_int64(value);
    if (integer == INT64_MAX) return buf_printf(out, err, "%" PRIu64, json_object_get_uint64(value));
    return buf_printf(out, err, "%" PRId64, integer);
}

static bool add_array(struct buf *out, const struct json_object *array, enum json_style style, struct err *err)
{
    size_t n = json_object_array_length(array);
    if (!buf_add_char(out, '[', err)) return false;
    for (size_t i = 0; i < n; i++) {
        if (i && !buf_add_text(out, style == JSON_PYTHON ? ", " : ",", err)) return false;
        if (!json_text_add(out, json_object_array_get_idx(array, i), style, err)) return false;
    }
    return buf_add_char(out, ']', err);
}

static bool add_object(struct buf *out, const struct json_object *object, enum json_style style, struct err *err)
{
    if (!buf_add_char(out, '{', err)) return false;
    const struct lh_entry *first = json_object_get_object(object)->head;
    for (const struct lh_entry *e = first; e; e = e->next) {
        const char *key = lh_entry_k(e);
        if (e != first && !buf_add_text(out, style == JSON_PYTHON ? ", " : ",", err)) return false;
        if (!json_text_add_string(out, key, strlen(key), err)) return false;
        if (!buf_add_text(out, style == JSON_PYTHON ? ": " : ":", err)) return false;
        if (!json_text_add(out, lh_entry_v(e), style, err)) return false;
    }
    return buf_add_char(out, '}', err);
}

bool json_text_add(struct buf *out, const struct json_object *value, enum json_style style, struct err *err)
{
    struct json_object *plain = (struct json_object *)value; /* json-c's readers do not all say const */
    switch (json_object_get_type(value)) {
    case json_type_null: return buf_add_text(out, "null", err);
    case json_type_boolean: return buf_add_text(out, json_object_get_boolean(value) ? "true" : "false", err);
    case json_type_int: return add_integer(out, value, err);
    case json_type_double: return add_double(out, plain, err);
    case json_type_string:
        return json_text_add_string(out, json_object_get_string(plain), (size_t)json_object_get_string_len(value), err);
    case json_type_array: return add_array(out, value, style, err);
    case json_type_object: return add_object(out, value, style, err);
    }
    return err_set(err, ERR_FAILED, "a JSON value of unknown type");
}
