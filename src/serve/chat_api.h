#ifndef SERVE_CHAT_API_H
#define SERVE_CHAT_API_H
/* OpenAI chat completions. */
#include "serve/call.h"

extern const struct protocol chat_protocol;

/* The prompt of a chat request, without anything about its answer. Worker. */
bool chat_api_encode(struct call *call, struct worker *worker, struct problem *problem) MUST_CHECK;

/* A protocol's `token`: entries of content wait in call->pending[0]. */
bool chat_api_token(struct call *call, const struct sampled *sampled, bool is_prompt, struct err *err) MUST_CHECK;

#endif
