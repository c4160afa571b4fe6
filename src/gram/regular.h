#ifndef GRAM_REGULAR_H
#define GRAM_REGULAR_H
/* Regular languages over bytes, as terms that are never built twice.
 *
 * A term says which byte strings it matches. Equal terms are one number, so that the derivatives of a term (what may
 * follow after a byte) are few, and each becomes one state of a DFA (dfa.h). Intersection, complement and counted
 * repetition are terms like any other; nothing is copied for a count.
 *
 * Errors are sticky: after a failure every function returns REGULAR_NOTHING, and regular_ok tells what went wrong. So a
 * language is written down as one expression, and asked about once. Owned by one thread. */
#include "base/alloc.h"

enum {
    REGULAR_NOTHING, /* matches no string */
    REGULAR_EMPTY,   /* matches the empty string */
};
#define REGULAR_MANY UINT32_MAX /* no upper bound of a repetition */

struct byte_set {
    uint64_t word[4];
};

struct regular_term;
struct regular_memo;

struct regular {
    struct alloc *alloc;
    struct regular_term *terms;
    uint32_t n_terms, terms_room;
    uint32_t *parts; /* of unions and intersections */
    uint32_t n_parts, parts_room;
    struct byte_set *sets;
    uint32_t n_sets, sets_room;
    uint32_t *table; /* term numbers by hash; 0: empty */
    uint32_t table_mask;
    uint32_t *scratch; /* a stack of terms */
    uint32_t n_scratch, scratch_room;
    uint32_t texts[2], n_texts; /* see regular_text_is */
    struct regular_memo *memo;  /* derivatives by term and byte, open addressing */
    uint32_t n_memo, memo_mask; /* memo_mask: 0 while there is none */
    uint64_t steps_left;        /* bounds the time that a hostile pattern can take */
    struct err err;             /* kind ERR_NONE while all is well */
};

bool regular_init(struct regular *regular, struct alloc *alloc, struct err *err) MUST_CHECK;
void regular_fini(struct regular *regular); /* safe twice and on a zeroed struct */
bool regular_ok(const struct regular *regular, struct err *err) MUST_CHECK;

void byte_set_add(struct byte_set *set, unsigned low, unsigned high);
static inline bool byte_set_has(const struct byte_set *set, unsigned byte)
{
    return set->word[byte >> 6] >> (byte & 63) & 1;
}

uint32_t regular_set(struct regular *regular, const struct byte_set *set); /* one byte of these */
uint32_t regular_range(struct regular *regular, unsigned low, unsigned high);
uint32_t regular_bytes(struct regular *regular, const char *bytes, size_t n);
uint32_t regular_text(struct regular *regular, const char *text);
uint32_t regular_seq(struct regular *regular, uint32_t a, uint32_t b);
uint32_t regular_seq_of(struct regular *regular, const uint32_t *terms, uint32_t n);
/* a, then b, where b cannot begin in the middle of a. The same as a sequence, but what is left of a stays together. */
uint32_t regular_close(struct regular *regular, uint32_t a, uint32_t b);
uint32_t regular_or(struct regular *regular, uint32_t a, uint32_t b);
uint32_t regular_any_of(struct regular *regular, const uint32_t *terms, uint32_t n);
uint32_t regular_and(struct regular *regular, uint32_t a, uint32_t b);
uint32_t regular_not(struct regular *regular, uint32_t a);
uint32_t regular_repeat(struct regular *regular, uint32_t a, uint32_t min, uint32_t max);
uint32_t regular_many(struct regular *regular, uint32_t a);     /* zero or more */
uint32_t regular_optional(struct regular *regular, uint32_t a); /* zero or one */

/* Promises that `term`, any number of code points in one spelling, contains all that it is ever united with. */
void regular_text_is(struct regular *regular, uint32_t term);

bool regular_has_empty(const struct regular *regular, uint32_t term);

/* What may follow in the language of `term` after `byte`. */
uint32_t regular_derive(struct regular *regular, uint32_t term, unsigned byte);

/* Numbers the classes of bytes that `term` never tells apart; returns how many. */
uint32_t regular_classes(struct regular *regular, uint32_t term, uint8_t class_of[256]);

#endif
