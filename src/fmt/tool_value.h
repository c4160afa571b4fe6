#ifndef FMT_TOOL_VALUE_H
#define FMT_TOOL_VALUE_H
/* The JSON value that a model meant by the text of a tool argument.
 *
 * The model writes strings raw and everything else as JSON, so only the tool's schema tells the string "5" from the
 * number 5. A text is never refused: what is not the JSON that the schema asks for stays a string, and the client
 * validates. Pure; any thread. */
#include "base/alloc.h"
#include <stddef.h>

struct json_object;

/* `parameters` is the tool's schema or NULL. The text must be valid UTF-8. Fails with ERR_NOMEM only. */
struct tool_argument {
    const char *key;
    const char *text;
    size_t bytes;
};
bool tool_value_make(struct json_object **value, struct alloc *alloc, struct json_object *parameters,
                     const struct tool_argument *argument, struct err *err) MUST_CHECK;

/* True when the schema lists an argument that every call must have. */
bool tool_value_required(struct json_object *parameters);

#endif
