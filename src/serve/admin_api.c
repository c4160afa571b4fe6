/* What only this machine may ask for: the memory budget, seen and changed while the server runs. */
#include "serve/small_api.h"

#include "base/units.h"
#include "serve/call.h"
#include "serve/fields.h"
#include "serve/jot.h"
#include "serve/routes.h"
#include <inttypes.h>
#include <json-c/json_object.h>

enum { BODY_BYTES_MAX = 4096 };

/* A number of bytes, or a size as on the command line: "20G". */
static bool read_budget(struct json_object *body, uint64_t *bytes, struct problem *problem)
{
    int64_t number = 0;
    struct json_object *value = json_object_object_get(body, "budget");
    if (!value) return problem_set(problem, PROBLEM_MISSING_FIELD, "budget", "budget: missing");
    if (json_object_is_type(value, json_type_string)) {
        if (units_parse_bytes(json_object_get_string(value), bytes)) return true;
        return problem_set(problem, PROBLEM_INVALID_VALUE, "budget", "budget: must be a size, such as 20G");
    }
    if (!field_integer(body, "budget", 1, INT64_MAX, &number, problem)) return false;
    *bytes = (uint64_t)number;
    return true;
}

static bool change(struct server *server, struct httpd_exchange *exchange, struct problem *problem)
{
    uint64_t bytes;
    struct err err = {0};
    struct json_object *body = NULL;
    if (!call_parse_body(&body, server, exchange, problem)) return false;
    bool ok = read_budget(body, &bytes, problem);
    if (ok && !service_set_budget(server->settings.models[0].service, bytes, &err))
        ok = problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    json_object_put(body);
    if (ok) server_log(server, "event=budget id=%s budget_bytes=%" PRIu64, httpd_id(exchange), bytes);
    return ok;
}

/* The plan is that of the start; what is in force and what is held is as of the last pass. */
static void answer(struct server *server, struct httpd_exchange *exchange, const struct plan *plan)
{
    struct buf body;
    struct err err = {0};
    struct service_stats stats;
    service_stats(server->settings.models[0].service, &stats);
    buf_init(&body, server->alloc, BODY_BYTES_MAX);
    struct jot json = jot_to(&body);
    jot_open(&json);
    jot_put_integer(&json, "budget", (int64_t)stats.budget_bytes);
    jot_put_integer(&json, "least", (int64_t)plan_least_bytes(plan));
    jot_put_integer(&json, "most", (int64_t)plan->budget_bytes);
    jot_put_integer(&json, "slots", stats.slots.n_slots);
    jot_put_integer(&json, "slots_retired", stats.slots.n_retired);
    jot_close(&json);
    bool ok = jot_end(&json, &err);
    server_reply(exchange, &body, ok, &err);
    buf_fini(&body);
}

void admin_budget(struct server *server, struct worker *worker, struct httpd_exchange *exchange)
{
    struct plan plan;
    struct problem problem = {0};
    struct service *service = server->settings.models[0].service;
    const struct visit *visit = httpd_user(exchange);
    (void)worker;
    if (!httpd_is_local(exchange))
        problem_set(&problem, PROBLEM_FORBIDDEN, NULL, "the budget can be changed from the server's own machine only");
    else if (server->settings.n_models > 1)
        problem_set(&problem, PROBLEM_UNSUPPORTED, NULL,
                    "the engines of several models open with the budget of the start; it cannot be changed");
    else if (!service_plan(service, &plan))
        problem_set(&problem, service_state(service, NULL) == SERVICE_LOADING ? PROBLEM_LOADING : PROBLEM_NOT_FOUND,
                    NULL, "there is no memory plan: the model is not open, or is held in memory as a whole");
    else if (visit->route->method == METHOD_GET || change(server, exchange, &problem)) {
        answer(server, exchange, &plan);
        return;
    }
    server_refuse(exchange, &problem);
}
