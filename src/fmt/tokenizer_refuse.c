/* How a tokenizer.json that cannot be used is refused: where in it, and what stands there. */
#include "fmt/tokenizer_int.h"
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool load_refuse(struct err *err, const char *path, const char *format, ...)
{
    char what[768];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(err, ERR_DATA, "%s: %s", path, what);
}

struct quoted load_quote(const char *text, size_t bytes)
{
    struct quoted quoted;
    size_t n = 0;
    quoted.text[n++] = '"';
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (n + 8 > sizeof quoted.text) { /* an escape of four, the mark of a cut, a quote and a NUL */
            memcpy(quoted.text + n, "...", 3);
            n += 3;
            break;
        }
        if (byte < 0x20 || byte >= 0x7f || byte == '"' || byte == '\\')
            n += (size_t)snprintf(quoted.text + n, sizeof quoted.text - n, "\\x%02x", byte);
        else
            quoted.text[n++] = (char)byte;
    }
    quoted.text[n++] = '"';
    quoted.text[n] = 0;
    return quoted;
}

struct quoted load_quote_json(struct json_object *value)
{
    const char *text = json_object_is_type(value, json_type_string) ? json_object_get_string(value)
                                                                    : json_object_to_json_string(value);
    return text ? load_quote(text, strlen(text)) : load_quote("?", 1);
}
