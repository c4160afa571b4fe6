#ifndef SERVE_USAGE_JSON_H
#define SERVE_USAGE_JSON_H
/* What an answer cost, as chat and text completions tell it. */
#include "serve/call.h"
#include "serve/jot.h"

/* The member `usage`. */
void usage_json_put(struct jot *json, const struct call *call);

#endif
