#ifndef SERVE_MESSAGES_IN_H
#define SERVE_MESSAGES_IN_H
/* Anthropic messages as the messages that the chat template takes. */
#include "serve/call.h"

/* Fills call->messages from `system` and `messages` of the body. *prefills: the last message is the beginning of the
 * answer. */
bool messages_read(struct call *call, bool *prefills, struct problem *problem) MUST_CHECK;

#endif
