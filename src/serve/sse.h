#ifndef SERVE_SSE_H
#define SERVE_SSE_H
/* Server-sent events around JSON: "event: NAME", "data: {...}", a blank line. */
#include "serve/jot.h"

/* Begins an event whose data is one JSON value, which the caller then writes. `name` NULL: no event line. On failure
 * the writer knows. */
struct jot sse_open(struct buf *out, const char *name);
bool sse_close(struct jot *json, struct err *err) MUST_CHECK;

/* The same, where the value is an object that is still open. */
bool sse_close_object(struct jot *json, struct err *err) MUST_CHECK;

/* A line that parsers drop. `text` has no line break. */
bool sse_comment(struct buf *out, const char *text, struct err *err) MUST_CHECK;

#endif
