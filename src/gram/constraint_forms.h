#ifndef GRAM_CONSTRAINT_FORMS_H
#define GRAM_CONSTRAINT_FORMS_H
/* The members of a request body that ask for structured output, in all the forms that clients use:
 *
 *   response_format: {type: text | json_object | json_schema, json_schema: {schema, strict}}
 *   text.format (Responses), output_config.format and output_format (Anthropic): {type, schema, strict}
 *   guided_json, guided_regex, guided_choice, guided_grammar; grammar
 *   structured_outputs: {json | regex | choice | grammar | json_object, any_whitespace}, or a bare schema
 *
 * More than one of them that constrains something is refused, conflicting_constraints; so are structural tags and white
 * space patterns, unsupported_schema. A null is not there. Tools are not read here. */
#include "gram/constraint.h"

struct constraint_forms {
    struct constraint_request request; /* kind, value, text, bytes, strict and blanks; borrowed from the body */
    struct json_object *parsed;        /* a schema that came as text */
    const char *name;                  /* of the member that asked, or NULL */
};

/* Errors are ERR_USER (and ERR_NOMEM). The body must outlive the forms. */
bool constraint_forms_read(struct constraint_forms *forms, struct alloc *alloc, struct json_object *body,
                           struct err *err) MUST_CHECK;
void constraint_forms_fini(struct constraint_forms *forms); /* safe twice and on a zeroed struct */

#endif
