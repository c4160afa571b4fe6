#ifndef GRAM_CONSTRAINT_H
#define GRAM_CONSTRAINT_H
/* What an answer must look like, compiled.
 *
 * Made from a request, before any other work, or refused with ERR_USER and a text that begins with the code for the
 * client: conflicting_constraints, invalid_schema or unsupported_schema, then the place (a JSON pointer, or a byte of a
 * pattern) and what is wrong. Nothing is ever weakened: what cannot be enforced is refused.
 *
 * A constraint never changes and may be used by any number of threads at once. It is counted: constraint_hold adds an
 * owner, constraint_drop takes one away, and the last one frees it. Positions in it are in struct matcher. */
#include "fmt/chat_tools.h"
#include "gram/control_ids.h"
#include "gram/json_terms.h"

struct json_object;
struct constraint;

enum constraint_kind {
    CONSTRAINT_NONE, /* text */
    CONSTRAINT_JSON_OBJECT,
    CONSTRAINT_SCHEMA,
    CONSTRAINT_REGEX,
    CONSTRAINT_GBNF,
    CONSTRAINT_CHOICE,
};

enum constraint_calls {
    CALLS_FREE,     /* calls are not constrained */
    CALLS_AUTO,     /* a call may be made instead of the value; or, with no value, in any text */
    CALLS_REQUIRED, /* at least one call and nothing else */
};

struct constraint_request {
    enum constraint_kind kind;
    struct json_object *value; /* schema: the schema; choice: an array of strings */
    const char *text;          /* regex, grammar */
    size_t bytes;
    bool strict; /* schema: OpenAI's demands on strict schemas hold, or it is refused */
    enum json_blanks blanks;
    const char *blanks_pattern; /* what white space between marks must match, as JSON_BLANKS_PATTERN */
    size_t n_blanks_pattern;

    enum constraint_calls calls;
    const struct chat_tools *tools; /* those that may be called */
    const bool *strict_tools;       /* [n_tools], or NULL for none. Under CALLS_AUTO without a value the arguments of
                                       tools that are not strict are free */
    bool one_call;                  /* after the first call nothing may follow */
};

/* Everything in the request is borrowed for the call. A request that constrains nothing gives *constraint NULL. */
bool constraint_new(struct constraint **constraint, struct alloc *alloc, const struct constraint_request *request,
                    const struct control_ids *ids, struct err *err) MUST_CHECK;

struct constraint *constraint_hold(struct constraint *constraint);
void constraint_drop(struct constraint *constraint); /* NULL is fine */

/* Whether it says what the answer itself must look like, and not calls alone. NULL: it does not. */
bool constraint_has_value(const struct constraint *constraint);

/* For matchers and tests. */
struct grammar;
const struct grammar *constraint_grammar(const struct constraint *constraint);

#endif
