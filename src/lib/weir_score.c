#include "lib/lib_int.h"

#include "run/score.h"
#include "run/trace_dump.h"

struct asking {
    const struct weir_score_request *request;
    uint32_t n_logits;
    struct weir_logprob *top; /* [n_top] */
};

void weir_score_request_init(struct weir_score_request *request, size_t size)
{
    const struct weir_score_request own = {0};
    lib_init(request, size, &own, sizeof own);
}

static bool unless(int refused, struct err *err)
{
    return !refused || err_set(err, ERR_CANCELLED, "the scoring was stopped");
}

static bool see_token(void *context, const struct score_token *token, struct err *err)
{
    const struct asking *a = context;
    const struct weir_scored scored = {
        .position = token->position,
        .id = token->token,
        .has_logprob = token->position > 0,
        .logprob = token->logprob,
        .top = a->top,
        .n_top = token->n_top,
    };
    for (size_t i = 0; i < token->n_top; i++)
        a->top[i] = (struct weir_logprob){token->top[i].token, token->top[i].logprob};
    return unless(a->request->token(a->request->context, &scored), err);
}

static bool see_logits(void *context, uint32_t position, const float *logits, struct err *err)
{
    const struct asking *a = context;
    return unless(a->request->logits(a->request->context, position, logits, a->n_logits), err);
}

static bool check(const struct weir_engine *e, const struct weir_prompt *prompt, struct err *err)
{
    const struct scheduler_stats stats = scheduler_stats(e->scheduler);
    uint32_t context = engine_settings_of(e->engine)->context_tokens;
    if (!lib_need(prompt, "prompt", err)) return false;
    if (prompt->model != e->model) return err_set(err, ERR_USER, "the prompt was made with another model");
    if (stats.n_running + stats.n_waiting > 0) return err_set(err, ERR_BUSY, "answers are going on");
    if (prompt->ids.n > context)
        return err_set(err, ERR_USER,
                       "there are %zu tokens and the context holds %u; open the engine for a longer context",
                       prompt->ids.n, context);
    return true;
}

static bool run(struct weir_engine *e, const struct weir_prompt *prompt, struct asking *a, struct score_result *result,
                struct err *err)
{
    const struct weir_score_request *r = a->request;
    /* Of a text, ids without a token take no part; ids are what they are. */
    uint32_t n_live = prompt->is_ids || !e->text ? a->n_logits : e->text->n_tokens;
    const struct score_watcher watcher = {
        .context = a, .token = r->token ? see_token : NULL, .logits = r->logits ? see_logits : NULL};
    struct err ignored = {0};
    struct trace_dump *trace = NULL;
    struct session session;
    if (!scheduler_make_room(e->scheduler, (uint32_t)prompt->ids.n))
        return err_set(err, ERR_FIT, "there is no room for the state of %zu tokens", prompt->ids.n);
    if (r->trace_path && !trace_dump_open(&trace, e->engine, r->trace_path, 0, err)) return false;
    session_init(&session, e->engine);
    bool ok = score_run(&session, prompt->ids.ids, prompt->ids.n, r->n_top, n_live, &watcher, result, err);
    session_fini(&session);
    return trace_dump_close(trace, ok ? err : &ignored) && ok;
}

static bool score(struct weir_engine *e, const struct weir_prompt *prompt, const struct weir_score_request *given,
                  struct weir_score_result *out, struct err *err)
{
    struct weir_score_request request = {0};
    struct asking asking = {.request = &request, .n_logits = engine_config(e->engine)->vocab};
    struct score_result result;
    if (!check(e, prompt, err) || !lib_take(&request, sizeof request, given, "weir_score_request", err)) return false;
    if (request.n_top > SCORE_TOP_MAX)
        return err_set(err, ERR_USER, "n_top is %u, and may be %d at most", request.n_top, SCORE_TOP_MAX);
    asking.top = alloc_get_array(e->alloc, request.n_top, sizeof *asking.top, err);
    if (!asking.top) return false;
    bool ok = run(e, prompt, &asking, &result, err);
    alloc_put(e->alloc, asking.top);
    const struct weir_score_result own = {
        .n_scored = result.n_scored, .logprob = result.logprob_sum, .perplexity = result.perplexity};
    return ok && lib_give(out, &own, sizeof own, "weir_score_result", err);
}

enum weir_status weir_score(struct weir_engine *engine, const struct weir_prompt *prompt,
                            const struct weir_score_request *request, struct weir_score_result *score_out,
                            struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_enter(engine, &err);
    if (ok) {
        ok = score(engine, prompt, request, score_out, &err);
        lib_leave(engine);
    }
    return lib_end(ok, &err, error);
}
