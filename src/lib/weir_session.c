#include "lib/lib_int.h"

#include "base/assert.h"
#include "run/random.h"
#include <inttypes.h>
#include <string.h>

static bool busy(const struct weir_session *s, struct err *err)
{
    if (!s->goes_on) return false;
    err_set(err, ERR_BUSY, "the session is still answering");
    return true;
}

/* ---- made and ended ---- */

enum weir_status weir_session_new(struct weir_session **session, struct weir_engine *engine, struct weir_error *error)
{
    struct err err = {0};
    struct weir_session *s = NULL;
    bool ok = lib_need(session, "session", &err) && lib_enter(engine, &err);
    if (session) *session = NULL;
    if (!ok) return lib_end(false, &err, error);
    s = alloc_get(engine->alloc, sizeof *s, &err);
    if (s) {
        s->engine = engine;
        s->result.size = sizeof s->result;
        token_list_init(&s->ids, engine->alloc, engine_settings_of(engine->engine)->context_tokens);
        arena_init(&s->texts, engine->alloc, REQUEST_BYTES_MAX);
        engine->n_sessions++;
        *session = s;
    }
    lib_leave(engine);
    return lib_end(s != NULL, &err, error);
}

enum weir_status weir_session_free(struct weir_session *session, struct weir_error *error)
{
    struct err err = {0};
    struct weir_session *s = session;
    if (!s) return lib_end(true, &err, error);
    struct weir_engine *e = s->engine;
    if (!lib_enter(e, &err)) return lib_end(false, &err, error);
    if (s->goes_on) {
        s->request.event = NULL;
        job_cancel(&s->job);
        scheduler_end_cancelled(e->scheduler);
        ASSERT(!s->goes_on);
    }
    arena_fini(&s->texts);
    token_list_fini(&s->ids);
    alloc_put(e->alloc, s);
    e->n_sessions--;
    lib_leave(e);
    return lib_end(true, &err, error);
}

size_t weir_session_tokens(const struct weir_session *session)
{
    return session->ids.n;
}

void weir_cancel(struct weir_session *session)
{
    job_cancel(&session->job);
}

void weir_end_thinking(struct weir_session *session)
{
    job_end_thinking(&session->job);
}

/* ---- what the scheduler tells ---- */

static void tell(struct weir_session *s, const struct weir_event *event)
{
    if (s->request.event && !s->is_refused) s->is_refused = s->request.event(s->request.context, event) != 0;
}

static void see_progress(void *context, const struct job_progress *progress)
{
    struct weir_session *s = context;
    const struct weir_event event = {
        .kind = WEIR_EVENT_PROGRESS, .text = "", .n_read = progress->n_done, .n_prompt = progress->n_prompt};
    tell(s, &event);
    if (s->is_refused) job_cancel(&s->job);
}

static void see_started(void *context, const struct job_progress *progress)
{
    struct weir_session *s = context;
    s->started_ns = clock_now_ns(s->engine->clock);
    s->result.n_cached = progress->n_cached;
}

static bool see_part(void *context, const struct answer_event *part, struct err *err)
{
    static const enum weir_event_kind kinds[] = {
        [ANSWER_REASONING] = WEIR_EVENT_REASONING, [ANSWER_CONTENT] = WEIR_EVENT_TEXT, [ANSWER_CALL] = WEIR_EVENT_CALL};
    struct weir_session *s = context;
    char *text = lib_block(s->engine->alloc, part->text, part->bytes, err); /* with a NUL behind it */
    if (!text) return false;
    const struct weir_event event = {
        .kind = kinds[part->part], .text = text, .bytes = part->bytes, .name = part->tool ? part->tool->name : NULL};
    s->n_calls += part->part == ANSWER_CALL;
    tell(s, &event);
    weir_free(text);
    return true;
}

static void tell_token(struct weir_session *s, const struct sampled *sampled)
{
    struct weir_logprob top[LOGPROB_TOP_MAX];
    struct weir_event event = {.kind = WEIR_EVENT_TOKEN, .text = "", .id = sampled->id};
    if (s->request.wants_logprobs) {
        event.logprob = sampled->logprobs.chosen.value;
        event.n_top = sampled->logprobs.n_top;
        event.top = top;
        for (size_t i = 0; i < event.n_top; i++)
            top[i] = (struct weir_logprob){sampled->logprobs.top[i].id, sampled->logprobs.top[i].value};
    }
    tell(s, &event);
}

/* The ids that end an answer change with what it is in the middle of. */
static void update_ends(struct weir_session *s)
{
    if (s->answer) s->rules.eos = answer_ends(s->answer, &s->rules.n_eos);
}

static const uint64_t *see_allowed(void *context)
{
    struct weir_session *s = context;
    return answer_form_allowed(s->form, &s->failure);
}

static uint32_t see_forced(void *context, uint32_t *ids, uint32_t n_max)
{
    struct weir_session *s = context;
    return answer_form_forced(s->form, ids, n_max);
}

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct weir_session *s = context;
    if (s->answered_ns == 0) s->answered_ns = clock_now_ns(s->engine->clock);
    s->result.n_generated++;
    tell_token(s, sampled);
    if (!token_list_add(&s->ids, &sampled->id, 1, &s->failure)) return STOP_ERROR;
    if (s->answer && !answer_add(s->answer, sampled->id, &s->failure)) return STOP_ERROR;
    update_ends(s);
    if (s->answer) s->result.n_reasoning = answer_reasoning_tokens(s->answer);
    if (s->is_refused || job_is_cancelled(&s->job)) return STOP_CANCELLED; /* a pass may give several */
    enum stop_reason reason = s->answer ? answer_reason(s->answer) : STOP_NONE;
    if (reason != STOP_NONE || !s->form) return reason;
    return answer_form_advance(s->form, sampled->id, &s->failure);
}

static enum weir_reason reason_of(enum stop_reason reason)
{
    switch (reason) {
    case STOP_NONE: return WEIR_REASON_NONE;
    case STOP_EOS: return WEIR_REASON_END;
    case STOP_ID:
    case STOP_STRING: return WEIR_REASON_STOP;
    case STOP_GRAMMAR: return WEIR_REASON_COMPLETE;
    case STOP_TOOL: return WEIR_REASON_CALL;
    case STOP_LENGTH: return WEIR_REASON_LENGTH;
    case STOP_CANCELLED: return WEIR_REASON_CANCELLED;
    case STOP_ERROR: break;
    }
    return WEIR_REASON_ERROR;
}

static void free_answer(struct weir_session *s)
{
    answer_form_free(s->form);
    answer_free(s->answer);
    s->form = NULL;
    s->answer = NULL;
    s->goes_on = false;
}

/* What was held back of the text comes out, and the reason is the text's to tell. */
static enum stop_reason end_text(struct weir_session *s, enum stop_reason reason)
{
    if (!s->answer || s->failure.kind != ERR_NONE || reason == STOP_ERROR) return reason;
    if (!answer_end(s->answer, reason, &s->failure)) return STOP_ERROR;
    const struct stop_string *stop = answer_stop_string(s->answer);
    if (stop) s->result.stop = stop->bytes; /* with a NUL behind it, in the session's own memory */
    enum stop_reason told = answer_reason(s->answer);
    return told == STOP_GRAMMAR && s->n_calls > 0 ? STOP_TOOL : told;
}

static void see_done(void *context, const struct job_result *job)
{
    struct weir_session *s = context;
    struct weir_result *r = &s->result;
    int64_t now = clock_now_ns(s->engine->clock);
    if (job->reason == STOP_ERROR && s->failure.kind == ERR_NONE) s->failure = job->err;
    enum stop_reason reason = end_text(s, job->reason);
    r->reason = s->failure.kind == ERR_NONE ? reason_of(reason) : WEIR_REASON_ERROR;
    r->n_passes = job->usage.n_passes;
    r->n_drafted = job->usage.n_drafted;
    r->n_accepted = job->usage.n_accepted;
    r->context_is_full = r->reason == WEIR_REASON_LENGTH && r->n_generated < s->request.max_tokens;
    if (s->started_ns) r->prompt_ns = (s->answered_ns ? s->answered_ns : now) - s->started_ns;
    if (s->answered_ns) r->answer_ns = now - s->answered_ns;
    free_answer(s);
}

/* ---- answering ---- */

static void fill_job(struct weir_session *s)
{
    const struct weir_engine *e = s->engine;
    const struct weir_request *r = &s->request;
    struct job *job = &s->job;
    const struct config *config = engine_config(e->engine);
    s->rules.sampling = &s->sampling;
    s->rules.eos = config->eos;
    s->rules.n_eos = config->n_eos;
    s->rules.banned = e->text ? e->text->dead : NULL;
    s->rules.n_banned = e->text ? e->text->n_dead : 0;
    s->rules.wants_logprobs = r->wants_logprobs;
    s->rules.n_top_logprobs = r->n_top_logprobs;
    update_ends(s);
    job->prompt = s->prompt->ids.ids;
    job->n_prompt = (uint32_t)s->prompt->ids.n;
    job->rules = &s->rules;
    job->priority = r->is_background ? JOB_BACKGROUND : JOB_INTERACTIVE;
    job->thinking = (struct job_thinking){0};
    if (s->prompt->is_chat)
        job->thinking = (struct job_thinking){.is_open = s->prompt->starts_in_think,
                                              .begin = e->text->chat.id[CHAT_THINK],
                                              .end = e->text->chat.id[CHAT_THINK_END],
                                              .n_max = r->thinking_max};
    job->events = (struct job_events){.context = s,
                                      .started = see_started,
                                      .progress = see_progress,
                                      .token = see_token,
                                      .done = see_done,
                                      .allowed = s->form ? see_allowed : NULL,
                                      .forced = s->form ? see_forced : NULL};
    atomic_store(&job->is_cancelled, false);
    atomic_store(&job->ends_thinking, false);
}

static bool make_key(struct weir_session *s, struct err *err)
{
    if (s->request.has_seed) s->rules.key = random_key_from_seed((int64_t)s->request.seed);
    return s->request.has_seed || random_key_fresh(&s->rules.key, err);
}

static bool make_answer(struct weir_session *s, struct err *err)
{
    const struct weir_prompt *p = s->prompt;
    const struct answer_request request = {
        .is_chat = p->is_chat,
        .starts_in_think = p->starts_in_think,
        .starts_at_once = p->goes_on || s->request.constraint != WEIR_CONSTRAINT_NONE,
        .tools = p->tools.n_tools > 0 ? &p->tools : NULL,
        .one_call = s->request.one_call,
        .emit = see_part,
        .context = s,
    };
    return !s->engine->text || answer_new(&s->answer, s->engine->alloc, s->engine->text, &s->sampling, &request, err);
}

/* Queues the answer; what the session holds becomes the prompt. */
static bool submit(struct weir_session *s, struct err *err)
{
    struct token_list fresh;
    token_list_init(&fresh, s->engine->alloc, s->ids.n_max);
    fill_job(s);
    bool ok = token_list_add(&fresh, s->prompt->ids.ids, s->prompt->ids.n, err) &&
              scheduler_submit(s->engine->scheduler, &s->job, err);
    if (ok) {
        struct token_list old = s->ids;
        s->ids = fresh;
        fresh = old;
    }
    token_list_fini(&fresh);
    return ok;
}

static bool start(struct weir_session *s, const struct weir_prompt *prompt, const struct weir_request *request,
                  struct err *err)
{
    uint32_t context = engine_settings_of(s->engine->engine)->context_tokens;
    if (busy(s, err) || !lib_need(prompt, "prompt", err)) return false;
    if (prompt->model != s->engine->model) return err_set(err, ERR_USER, "the prompt was made with another model");
    if (prompt->ids.n >= context)
        return err_set(err, ERR_USER,
                       "the prompt has %zu tokens and the context holds %" PRIu32
                       ", one of them for an answer; open the engine for a longer context, or make the prompt shorter",
                       prompt->ids.n, context);
    arena_fini(&s->texts);
    arena_init(&s->texts, s->engine->alloc, REQUEST_BYTES_MAX);
    s->prompt = prompt;
    s->result = (struct weir_result){.size = sizeof s->result, .n_prompt = (uint32_t)prompt->ids.n};
    s->failure = (struct err){0};
    s->is_refused = false;
    s->n_calls = 0;
    s->started_ns = s->answered_ns = 0;
    if (!lib_request_read(&s->request, &s->sampling, &s->texts, s->engine->model, request, err)) goto fail;
    if (!make_key(s, err) || !make_answer(s, err) || !lib_constrain(s, err)) goto fail;
    if (!submit(s, err)) goto fail;
    return s->goes_on = true;
fail:
    free_answer(s);
    return false;
}

enum weir_status weir_start(struct weir_session *session, const struct weir_prompt *prompt,
                            const struct weir_request *request, struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_need(session, "session", &err) && lib_enter(session->engine, &err);
    if (ok) {
        ok = start(session, prompt, request, &err);
        lib_leave(session->engine);
    }
    return lib_end(ok, &err, error);
}

static size_t count_going_on(const struct weir_engine *e)
{
    const struct scheduler_stats stats = scheduler_stats(e->scheduler);
    return stats.n_running + stats.n_waiting;
}

enum weir_status weir_step(struct weir_engine *engine, size_t *n_going_on, struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_enter(engine, &err);
    if (ok) {
        scheduler_step(engine->scheduler);
        if (n_going_on) *n_going_on = count_going_on(engine);
        lib_leave(engine);
    }
    return lib_end(ok, &err, error);
}

/* The last answer's figures, and its failure. */
static bool tell_result(const struct weir_session *s, struct weir_result *result, struct err *err)
{
    if (!lib_give(result, &s->result, sizeof s->result, "weir_result", err)) return false;
    if (s->failure.kind == ERR_NONE) return true;
    *err = s->failure;
    return false;
}

enum weir_status weir_generate(struct weir_session *session, const struct weir_prompt *prompt,
                               const struct weir_request *request, struct weir_result *result, struct weir_error *error)
{
    struct err err = {0};
    struct weir_session *s = session;
    bool ok = lib_need(s, "session", &err) && lib_enter(s->engine, &err);
    if (!ok) return lib_end(false, &err, error);
    const struct weir_result nothing = {0};
    ok = lib_give(result, &nothing, sizeof nothing, "weir_result", &err) && start(s, prompt, request, &err);
    while (ok && s->goes_on) scheduler_step(s->engine->scheduler);
    ok = ok && tell_result(s, result, &err);
    lib_leave(s->engine);
    return lib_end(ok, &err, error);
}

enum weir_status weir_session_result(struct weir_session *session, struct weir_result *result, struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_need(session, "session", &err) && lib_enter(session->engine, &err);
    if (ok) {
        ok = tell_result(session, result, &err);
        lib_leave(session->engine);
    }
    return lib_end(ok, &err, error);
}

const char *weir_reason_name(enum weir_reason reason)
{
    static const char *const names[] = {
        [WEIR_REASON_NONE] = "none",           [WEIR_REASON_END] = "eos",    [WEIR_REASON_STOP] = "stop",
        [WEIR_REASON_COMPLETE] = "complete",   [WEIR_REASON_CALL] = "tool",  [WEIR_REASON_LENGTH] = "length",
        [WEIR_REASON_CANCELLED] = "cancelled", [WEIR_REASON_ERROR] = "error"};
    return (size_t)reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}
