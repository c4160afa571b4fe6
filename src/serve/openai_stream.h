#ifndef SERVE_OPENAI_STREAM_H
#define SERVE_OPENAI_STREAM_H
/* What chat and text completions have in common: their head, their stream options, and how their streams stay alive,
 * end and fail. */
#include "serve/call.h"
#include "serve/jot.h"

/* id, object, created, model, system_fingerprint. */
void openai_put_head(struct jot *json, const struct call *call, const char *object);

/* stream_options: only with stream; the call learns include_usage. */
bool openai_read_stream_options(struct call *call, struct problem *problem) MUST_CHECK;

/* A comment tells people how far it is, and an empty chunk, which `empty` writes, keeps those awake who only see
 * chunks.
 */
typedef bool openai_chunk_fn(struct call *call, struct err *err);
bool openai_keep_alive(struct call *call, openai_chunk_fn *empty, struct err *err) MUST_CHECK;

/* Behind the last chunk with a choice: usage, where it was asked for, and [DONE]. */
bool openai_end(struct call *call, const char *object, struct err *err) MUST_CHECK;

/* A protocol's `fail`. */
bool openai_fail(struct call *call, const struct problem *problem, struct err *err) MUST_CHECK;

#endif
