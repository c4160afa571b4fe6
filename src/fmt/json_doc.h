#ifndef FMT_JSON_DOC_H
#define FMT_JSON_DOC_H
/* JSON text that somebody else wrote, read strictly (RFC 8259) into json-c objects.
 *
 * The objects and their accessors are json-c's; its text reader is not used, because even in strict mode it takes NaN,
 * "1.", "-00", overlong UTF-8 and raw control characters, turns 18446744073709551616 into 18446744073709551615 without
 * a word, ends a key at an escaped NUL, loses some surrogate pairs, and tells no position. Here:
 *   - errors name the text and the byte offset;
 *   - the text must be valid UTF-8; an escaped lone surrogate becomes U+FFFD;
 *   - a repeated key keeps its first place and its last value; a key that holds U+0000 is refused (json-c's keys are
 *     C strings), string values may hold it: use json_object_get_string_len;
 *   - an integer beyond 64 bits is a json_type_double that remembers its digits (see json_text.h), and may be infinite
 *     as a double; every other number is finite;
 *   - nesting, size and the number of values have limits, so that a small text cannot become a large tree.
 *
 * The value null is a NULL pointer, as everywhere in json-c. json_object_put gives the document back. */
#include "base/alloc.h"
#include <json-c/json_object.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JSON_DOC_DEPTH_MAX = 128,
    JSON_DIGITS_MAX = 4300, /* of one number, as in Python */
};

struct json_rules {
    enum err_kind kind; /* of what is wrong with the text: ERR_USER for a request, ERR_DATA for a file */
    size_t bytes_max;
    uint32_t values_max;
};

/* For requests: 16 MiB, a million values. */
extern const struct json_rules json_rules_request;

/* For the small files of a model folder: 16 MiB, a million values. */
extern const struct json_rules json_rules_file;

/* `name` says in messages what the text is. Scratch memory comes from `alloc` and is given back before the return. */
bool json_doc_parse(struct json_object **doc, struct alloc *alloc, const struct json_rules *rules, const char *name,
                    const char *text, size_t bytes, struct err *err) MUST_CHECK;

#endif
