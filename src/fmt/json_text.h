#ifndef FMT_JSON_TEXT_H
#define FMT_JSON_TEXT_H
/* JSON text out of json-c objects, in one of two forms, always valid and always the same for the same value.
 *
 * JSON_PYTHON is, byte for byte, Python's json.dumps(value, ensure_ascii=False): models were trained on tool schemas in
 * this form, and any other spelling is another prompt. JSON_COMPACT differs only in having no blanks.
 * Strings escape '"', '\' and U+0000..U+001F only; numbers are Python's: integers with all their digits, floats as the
 * shortest text that reads back as the same double, which must be finite: json_doc_parse gives nothing else. */
#include "base/buf.h"

struct json_object;

enum json_style { JSON_PYTHON, JSON_COMPACT };

bool json_text_add(struct buf *out, const struct json_object *value, enum json_style style, struct err *err) MUST_CHECK;

/* A string with its quotes. What is not UTF-8, as in names of files, becomes U+FFFD, one for each maximal subpart. */
bool json_text_add_string(struct buf *out, const char *text, size_t bytes, struct err *err) MUST_CHECK;

/* The inside of a string, which must be valid UTF-8 as a whole. Escaping has no state: a text may come in pieces cut
 * anywhere. */
bool json_text_add_escaped(struct buf *out, const char *text, size_t bytes, struct err *err) MUST_CHECK;

/* Python's repr of a finite double, at most 24 characters and a NUL. */
enum { JSON_NUMBER_BYTES = 32 };
void json_text_number(char out[JSON_NUMBER_BYTES], double value);

#endif
