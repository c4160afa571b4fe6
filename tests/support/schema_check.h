#ifndef SUPPORT_SCHEMA_CHECK_H
#define SUPPORT_SCHEMA_CHECK_H
/* A JSON Schema validator that shares nothing with src/gram: it walks the value along the schema, matches patterns with
 * PCRE2 and looks at formats by hand. Only the keywords that are enforced. */
#include <json-c/json.h>
#include <stdbool.h>

/* True when valid; otherwise `why` says what is wrong. */
bool schema_holds(struct json_object *root, struct json_object *schema, struct json_object *value, char why[256]);

#endif
