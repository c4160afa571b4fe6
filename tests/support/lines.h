#ifndef SUPPORT_LINES_H
#define SUPPORT_LINES_H
/* Fixture files of JSON lines. */
#include "base/alloc.h"
#include <json-c/json_object.h>

/* A whole file of the source tree, NUL-terminated; the test fails when it cannot be read. alloc_put gives it back. */
char *fixture_read(struct alloc *alloc, const char *path, size_t *bytes);

/* Calls `each` for every line of a file of JSON lines and returns how many there were. */
typedef void fixture_line_fn(void *context, struct json_object *line, size_t number);
size_t fixture_lines(struct alloc *alloc, const char *path, fixture_line_fn *each, void *context);

/* A member that must be there and be a string. */
const char *fixture_text(struct json_object *object, const char *key, size_t *bytes);

/* JSON from a C string that must be valid. */
struct json_object *fixture_json(struct alloc *alloc, const char *text);

#endif
