#ifndef SERVE_USAGE_H
#define SERVE_USAGE_H
/* What an answer cost, as the OpenAI endpoints tell it, and how far a prompt is, in words. */
#include "serve/call.h"
#include "serve/jot.h"

/* The member `usage` of chat and text completions. */
void usage_put_openai(struct jot *json, const struct call *call);

/* serial, batch, or either with +spec. */
const char *usage_lane(const struct call *call);

/* "queued", "reading the prompt: 512 of 2048 tokens", "answering". In `text`, which is returned. */
enum { USAGE_PROGRESS_BYTES = 128 };
const char *usage_progress(const struct call *call, char text[USAGE_PROGRESS_BYTES]);

/* The one string of a custom tool's arguments: its member `input`. */
void tool_input_json(struct jot *json, struct alloc *alloc, const char *arguments, size_t bytes);

#endif
