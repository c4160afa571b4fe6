#ifndef SERVE_RESPONSES_IN_H
#define SERVE_RESPONSES_IN_H
/* Items of the Responses API as the messages that the chat template takes. */
#include "serve/call.h"

/* Fills call->input_items (those of the previous response, then the new ones) and call->messages, with `instructions`
 * in front. The tools were read before. */
bool responses_read(struct call *call, struct problem *problem) MUST_CHECK;

/* A problem with "messages[2].content" becomes one with the member of the item that this was made from, such as
 * "input[1].output". False. */
bool responses_blame(const struct call *call, struct problem *problem);

#endif
