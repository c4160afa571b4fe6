#ifndef GRAM_GBNF_H
#define GRAM_GBNF_H
/* Grammar texts in the GBNF dialect: `name ::= alternatives`, start rule `root`.
 *
 * Quoted literals, classes, `.` (any character), references, groups, `|`, `* + ? {m} {m,} {m,n}`, comments from `#`. A
 * rule goes on in the next line inside parentheses, behind `::=` or `|`, and where the next line begins with `|`.
 *
 * Rules that do not refer back to themselves become one automaton with what uses them, so that only true recursion
 * costs a stack. */
#include "gram/builder.h"

enum { GBNF_BYTES_MAX = 256 << 10, GBNF_RULES_MAX = 1024 };

struct gbnf_text {
    const char *text;
    size_t bytes;
    bool inlines; /* join rules into automata; without it automata are smaller and walks slower */
};

/* The node of `root`, or failure with ERR_USER: invalid_schema for what the text says, with the rule or byte;
 * unsupported_schema for left recursion, naming the cycle, and for limits. */
bool gbnf_node(struct builder *builder, const struct gbnf_text *text, uint32_t *node, struct err *err) MUST_CHECK;

#endif
