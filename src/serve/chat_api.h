#ifndef SERVE_CHAT_API_H
#define SERVE_CHAT_API_H
/* OpenAI chat completions. */
#include "serve/call.h"

extern const struct protocol chat_protocol;

/* How a stream of this family ends when it fails; the text completions do the same. */
bool chat_api_fail(struct call *call, const struct problem *problem, struct err *err) MUST_CHECK;

#endif
