#ifndef GRAM_JSON_TERMS_H
#define GRAM_JSON_TERMS_H
/* The regular parts of JSON text.
 *
 * White space between marks is nothing, one space, or one or two line feeds with up to 20 spaces or tabs behind them:
 * without a bound a model can go on with blanks for ever. Or it is what a pattern of the client says. */
#include "gram/regular.h"

enum json_blanks {
    JSON_BLANKS_ANY,   /* as above */
    JSON_BLANKS_FIXED, /* ", " and ": " and nothing else */
    JSON_BLANKS_PATTERN,
};

struct json_spacing {
    enum json_blanks blanks;
    uint32_t pattern; /* the term of it */
};

/* What is white space in JSON among what a pattern matches, as JSON_BLANKS_PATTERN. ERR_USER: it is no pattern, matches
 * something else too, or nothing. */
bool json_spacing_read(struct json_spacing *spacing, struct regular *regular, const char *pattern, size_t bytes,
                       struct err *err) MUST_CHECK;

uint32_t json_blanks_term(struct regular *regular, struct json_spacing spacing); /* where no mark asks for a space */
/* A mark with the blanks around it. Of `,` and `:` on both sides; of closing brackets in front. */
uint32_t json_mark_term(struct regular *regular, struct json_spacing spacing, char mark);

/* One code point inside a string, in any of its spellings: raw, short escape, \uXXXX, a pair of those. */
uint32_t json_char_term(struct regular *regular);
uint32_t json_string_term(struct regular *regular); /* with its quotes */
/* The same without U+0000, which many readers cannot have in the name of a member. */
uint32_t json_key_term(struct regular *regular);

/* At most 16 digits in front of the point and 16 behind it; an exponent has at most three, and is at most 289, so that
 * every number is finite as a double. */
uint32_t json_number_term(struct regular *regular);
uint32_t json_integer_term(struct regular *regular);

#endif
