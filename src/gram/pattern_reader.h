#ifndef GRAM_PATTERN_READER_H
#define GRAM_PATTERN_READER_H
/* What regular expressions and grammar texts have in common: code points with a position, escapes, classes, counts.
 * The text must be valid UTF-8, which pattern_reader_init checks. Owned by one thread. */
#include "gram/code_set.h"

enum { PATTERN_END = UINT32_MAX, PATTERN_COUNT_MAX = 1000, PATTERN_DEPTH_MAX = 64 };

struct pattern_reader {
    const char *where; /* for messages: "regex", a JSON pointer, ... */
    const char *text;
    size_t bytes, at;
};

bool pattern_reader_init(struct pattern_reader *reader, const char *where, const char *text, size_t bytes,
                         struct err *err) MUST_CHECK;

/* The code point here, not taken; PATTERN_END at the end. */
uint32_t pattern_peek(const struct pattern_reader *reader);
uint32_t pattern_take(struct pattern_reader *reader);
bool pattern_take_if(struct pattern_reader *reader, uint32_t code);
bool pattern_looks_at(const struct pattern_reader *reader, const char *text);

/* "invalid_schema: WHERE: byte AT: what", false always. */
bool pattern_invalid(const struct pattern_reader *reader, size_t at, struct err *err, const char *what);
/* The same with unsupported_schema. */
bool pattern_unsupported(const struct pattern_reader *reader, size_t at, struct err *err, const char *what);

/* Behind a backslash, which was taken at `at`: adds what the escape stands for. *single: the code point when it is one,
 * else PATTERN_END. */
bool pattern_escape(struct pattern_reader *reader, size_t at, struct code_set *set, uint32_t *single,
                    struct err *err) MUST_CHECK;

/* Behind the opening bracket, which was taken at `at`, up to and with the closing one. The set comes out tidy. */
bool pattern_class(struct pattern_reader *reader, size_t at, struct code_set *set, struct err *err) MUST_CHECK;

/* What a quantifier asks for: *found is false when there is none here. Counts above PATTERN_COUNT_MAX are refused. */
struct pattern_count {
    uint32_t min, max; /* REGULAR_MANY */
};
bool pattern_quantifier(struct pattern_reader *reader, struct pattern_count *count, bool *found,
                        struct err *err) MUST_CHECK;

#endif
