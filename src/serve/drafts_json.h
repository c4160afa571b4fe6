#ifndef SERVE_DRAFTS_JSON_H
#define SERVE_DRAFTS_JSON_H
/* What is told about drafts, as members named `speculation`. */
#include "run/service.h"
#include "serve/jot.h"

struct served_model;

/* Where they come from and how many there may be: of a model. */
void drafts_put_mode(struct jot *json, const struct served_model *model);

/* What they did, cost and brought, and what the choice of their number goes by. */
void drafts_put_stats(struct jot *json, const struct service_stats *stats);

#endif
