#ifndef GRAM_CODE_SET_H
#define GRAM_CODE_SET_H
/* Sets of code points, and the bytes that spell them. Surrogates are never members. Owned by one thread. */
#include "gram/regular.h"

struct code_range {
    uint32_t low, high;
};

struct code_set {
    struct alloc *alloc;
    struct code_range *ranges; /* after code_set_tidy: ascending, apart from each other */
    uint32_t n, room;
};

enum spelling {
    SPELL_RAW,  /* UTF-8 */
    SPELL_JSON, /* inside a JSON string, each code point in the one form of json_text.h */
};

void code_set_init(struct code_set *set, struct alloc *alloc);
void code_set_fini(struct code_set *set); /* safe twice and on a zeroed struct */
bool code_set_add(struct code_set *set, uint32_t low, uint32_t high, struct err *err) MUST_CHECK;
bool code_set_negate(struct code_set *set, struct err *err) MUST_CHECK;
void code_set_tidy(struct code_set *set);

/* The language of the spellings of one member. The set must be tidy. */
uint32_t code_set_term(const struct code_set *set, struct regular *regular, enum spelling spelling);

/* The spelling of low..high, without a set. */
uint32_t code_range_term(struct regular *regular, uint32_t low, uint32_t high, enum spelling spelling);

/* Any code point. */
uint32_t code_any_term(struct regular *regular, enum spelling spelling);

#endif
