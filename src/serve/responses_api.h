#ifndef SERVE_RESPONSES_API_H
#define SERVE_RESPONSES_API_H
/* OpenAI responses, and those that are stored. */
#include "serve/call.h"

extern const struct protocol responses_protocol;

void responses_get(struct server *server, struct worker *worker, struct httpd_exchange *exchange);
void responses_delete(struct server *server, struct worker *worker, struct httpd_exchange *exchange);
void responses_input_items(struct server *server, struct worker *worker, struct httpd_exchange *exchange);
void responses_cancel(struct server *server, struct worker *worker, struct httpd_exchange *exchange);

#endif
