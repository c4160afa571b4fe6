#ifndef SERVE_SMALL_API_H
#define SERVE_SMALL_API_H
/* The routes that generate nothing: health, models, tokens, numbers, and what is refused on purpose. Each is the
 * `serve` of a route (routes.h). */
#include "serve/server_int.h"

typedef void route_fn(struct server *server, struct worker *worker, struct httpd_exchange *exchange);

route_fn small_health, small_root, small_models, small_model, small_cancel, small_end_thinking;
route_fn small_tokenize, small_detokenize, small_apply_template;
route_fn admin_budget;
route_fn small_stats, small_metrics, small_fit;

#endif
