#ifndef SERVE_MESSAGES_IN_H
#define SERVE_MESSAGES_IN_H
/* Anthropic messages as the messages that the chat template takes. */
#include "serve/call.h"

/* Fills call->messages from `system` and `messages` of the body. *prefills: the last message is the beginning of the
 * answer. */
bool messages_read(struct call *call, bool *prefills, struct problem *problem) MUST_CHECK;

/* A problem with a message that was made becomes one with what it was made of, such as "messages[2].content[1]". False.
 */
bool messages_blame(const struct call *call, struct problem *problem);

#endif
