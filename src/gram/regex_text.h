#ifndef GRAM_REGEX_TEXT_H
#define GRAM_REGEX_TEXT_H
/* Regular expressions as clients write them, over code points.
 *
 * Literals, `.` (not line feed), classes, \d \D \w \W \s \S (ASCII), \n \r \t \f \v \0 \xHH \uXXXX, groups, `|`,
 * `* + ? {m} {m,} {m,n}` up to 1000, lazy marks (which change nothing). `^` and `$` where a whole alternative begins
 * and ends. Everything else is refused with its position: back references, look-around, word boundaries, flags,
 * possessive quantifiers, Unicode properties. */
#include "gram/code_set.h"

enum { REGEX_BYTES_MAX = 8192 };

struct regex_text {
    const char *where; /* for messages */
    const char *text;
    size_t bytes;
    enum spelling spelling;
    bool searches; /* an alternative without ^ may begin, one without $ may end anywhere in the text */
};

/* Errors are ERR_USER. */
bool regex_text_term(struct regular *regular, const struct regex_text *regex, uint32_t *term,
                     struct err *err) MUST_CHECK;

#endif
