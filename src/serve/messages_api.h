#ifndef SERVE_MESSAGES_API_H
#define SERVE_MESSAGES_API_H
/* Anthropic messages, and the count of their tokens. */
#include "serve/call.h"

extern const struct protocol messages_protocol;

/* POST /v1/messages/count_tokens */
void messages_count_tokens(struct server *server, struct worker *worker, struct httpd_exchange *exchange);

#endif
