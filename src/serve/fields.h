#ifndef SERVE_FIELDS_H
#define SERVE_FIELDS_H
/* Members of a request: reading them by type, and saying what becomes of those that are not read.
 *
 * A null is absent. The readers leave their output untouched when the member is absent. Borrowed strings live as long
 * as the document. */
#include "base/arena.h"
#include "run/sampling.h"
#include "serve/problem.h"

struct json_object;

bool field_text(struct json_object *object, const char *name, const char **out, struct problem *problem) MUST_CHECK;
bool field_bool(struct json_object *object, const char *name, bool *out, struct problem *problem) MUST_CHECK;
bool field_object(struct json_object *object, const char *name, struct json_object **out,
                  struct problem *problem) MUST_CHECK;
bool field_list(struct json_object *object, const char *name, struct json_object **out,
                struct problem *problem) MUST_CHECK;
bool field_integer(struct json_object *object, const char *name, int64_t least, int64_t most, int64_t *out,
                   struct problem *problem) MUST_CHECK;

/* The string member, or "" when it is absent or no string. */
const char *field_word(struct json_object *object, const char *name);
bool field_is(struct json_object *object, const char *name, const char *word);

/* What an endpoint does with a member. REFUSED: it would change the output and is not supported; values that ask for
 * nothing (false, "", 0, empty) pass. NEVER: whatever it says. A null is absent in both. */
enum field_use { FIELD_READ, FIELD_IGNORED, FIELD_REFUSED, FIELD_NEVER };

struct field_rule {
    const char *name;
    enum field_use use;
    const char *hint; /* for a refusal; NULL: none */
};

struct field_rules {
    const struct field_rule *rules[2]; /* each ends with a rule without a name; the second may be NULL */
    bool strict;                       /* an unknown member is refused too */
};

/* Looks at every member of a request. Sampling parameters go into `sampling`; max_completion_tokens is stronger than
 * max_tokens. */
bool fields_read(struct json_object *body, const struct field_rules *rules, struct sampling *sampling,
                 struct arena *arena, struct problem *problem) MUST_CHECK;

#endif
