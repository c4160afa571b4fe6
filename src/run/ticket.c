/* One request at the service: what happens to its job, on the engine thread, becomes events for its reader. */
#include "run/service_int.h"

#include "base/assert.h"
#include <inttypes.h>
#include <string.h>

static void free_events(struct ticket *t)
{
    struct alloc *alloc = t->service->alloc;
    while (t->first) {
        struct event_node *node = t->first;
        t->first = node->next;
        alloc_put(alloc, node);
    }
    alloc_put(alloc, t->current);
    alloc_put(alloc, t->done);
}

void ticket_put(struct ticket *ticket)
{
    struct ticket *t = ticket;
    if (atomic_fetch_sub(&t->holders, 1) != 1) return;
    void (*release)(void *context) = t->request.release;
    void *context = t->request.context;
    free_events(t);
    answer_free(t->answer);
    token_list_fini(&t->ids);
    pthread_mutex_destroy(&t->lock);
    alloc_put(t->service->alloc, t);
    if (release) release(context);
}

static void append(struct ticket *t, struct event_node *node)
{
    pthread_mutex_lock(&t->lock);
    if (t->first)
        t->last->next = node;
    else
        t->first = node;
    t->last = node;
    t->bytes += node->bytes;
    pthread_mutex_unlock(&t->lock);
}

static void wake(struct ticket *t, enum service_event_kind kind)
{
    bool matters = kind == SERVICE_STARTED || kind == SERVICE_DONE || !t->request.wakes_at_end_only;
    if (matters) t->request.wake(t->request.context);
}

/* A reader that is too far behind makes its answer stand still until it has caught up; one that reads nothing before
 * the end would wait for ever. */
static bool check_backlog(struct ticket *t, size_t bytes, struct err *err)
{
    size_t most = t->request.events_bytes_max;
    pthread_mutex_lock(&t->lock);
    bool is_full = bytes > most || t->bytes > most - bytes;
    bool pauses = is_full && !t->request.wakes_at_end_only;
    if (pauses) job_pause(&t->job);
    pthread_mutex_unlock(&t->lock);
    if (pauses) service_count_pause(t->service);
    return pauses || !is_full || err_set(err, ERR_FAILED, "the answer is larger than %zu bytes", most);
}

/* Puts an event where its reader finds it. False: it is more than may wait, or there is no memory. */
static bool tell(struct ticket *t, const struct service_event *event, struct err *err)
{
    const void *payload = event->sampled ? (const void *)event->sampled : event->part.text;
    size_t n_payload = event->sampled ? sizeof *event->sampled : event->part.bytes;
    size_t bytes = sizeof(struct event_node) + n_payload;
    if (!check_backlog(t, bytes, err)) return false;
    struct event_node *node = alloc_get(t->service->alloc, bytes, err);
    if (!node) return false;
    node->bytes = bytes;
    node->event = *event;
    if (n_payload) memcpy(node->payload, payload, n_payload);
    if (event->sampled)
        node->event.sampled = (const struct sampled *)(const void *)node->payload;
    else
        node->event.part.text = node->payload;
    append(t, node);
    wake(t, event->kind);
    return true;
}

const struct service_event *ticket_next(struct ticket *ticket)
{
    struct ticket *t = ticket;
    alloc_put(t->service->alloc, t->current);
    pthread_mutex_lock(&t->lock);
    struct event_node *node = t->first;
    if (node) {
        t->first = node->next;
        t->bytes -= node->bytes;
    }
    bool resumes = job_is_paused(&t->job) && t->bytes <= t->request.events_bytes_max / 2;
    if (resumes) job_resume(&t->job);
    pthread_mutex_unlock(&t->lock);
    if (resumes) service_nudge(t->service);
    t->current = node;
    return node ? &node->event : NULL;
}

struct job_progress ticket_progress(struct ticket *ticket)
{
    pthread_mutex_lock(&ticket->lock);
    struct job_progress progress = ticket->progress;
    pthread_mutex_unlock(&ticket->lock);
    return progress;
}

bool ticket_has_started(struct ticket *ticket)
{
    pthread_mutex_lock(&ticket->lock);
    bool has_started = ticket->has_started;
    pthread_mutex_unlock(&ticket->lock);
    return has_started;
}

/* A job that stands still is not looked at by itself. */
void ticket_cancel(struct ticket *ticket)
{
    job_cancel(&ticket->job);
    service_nudge(ticket->service);
}

void ticket_end_thinking(struct ticket *ticket)
{
    job_end_thinking(&ticket->job);
    service_nudge(ticket->service);
}

void ticket_release(struct ticket *ticket)
{
    ticket_cancel(ticket);
    ticket_put(ticket);
}

/* --- what the scheduler tells, on the engine thread --- */

static void see_started(void *context, const struct job_progress *progress)
{
    struct ticket *t = context;
    const struct service_event event = {.kind = SERVICE_STARTED, .progress = *progress};
    t->started_ns = clock_now_ns(t->service->settings.clock);
    pthread_mutex_lock(&t->lock);
    t->has_started = true;
    t->progress = *progress;
    pthread_mutex_unlock(&t->lock);
    if (!tell(t, &event, &t->failure)) job_cancel(&t->job);
}

static void see_progress(void *context, const struct job_progress *progress)
{
    struct ticket *t = context;
    pthread_mutex_lock(&t->lock);
    t->progress = *progress;
    pthread_mutex_unlock(&t->lock);
}

/* The ids that end an answer change with what it is in the middle of. */
static void update_ends(struct ticket *t)
{
    if (t->answer) t->rules.eos = answer_ends(t->answer, &t->rules.n_eos);
}

static bool see_part(void *context, const struct answer_event *part, struct err *err)
{
    struct ticket *t = context;
    const struct service_event event = {.kind = SERVICE_PART, .part = *part};
    t->n_calls += part->part == ANSWER_CALL;
    return tell(t, &event, err);
}

static const uint64_t *see_allowed(void *context)
{
    struct ticket *t = context;
    return answer_form_allowed(t->form, &t->failure);
}

static uint32_t see_forced(void *context, uint32_t *ids, uint32_t n_max)
{
    struct ticket *t = context;
    return answer_form_forced(t->form, ids, n_max);
}

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct ticket *t = context;
    const struct service_event event = {.kind = SERVICE_TOKEN, .sampled = sampled};
    if (t->answered_ns == 0) t->answered_ns = clock_now_ns(t->service->settings.clock);
    if (t->request.keeps_ids && !token_list_add(&t->ids, &sampled->id, 1, &t->failure)) return STOP_ERROR;
    if (t->request.wants_logprobs && !tell(t, &event, &t->failure)) return STOP_ERROR;
    if (!answer_add(t->answer, sampled->id, &t->failure)) return STOP_ERROR;
    update_ends(t);
    enum stop_reason reason = answer_reason(t->answer);
    if (reason != STOP_NONE || !t->form) return reason;
    return answer_form_advance(t->form, sampled->id, &t->failure);
}

static bool tell_prompt_token(struct ticket *t, const struct sampled *sampled, struct err *err)
{
    const struct service_event event = {.kind = SERVICE_PROMPT_TOKEN, .sampled = sampled};
    return tell(t, &event, err);
}

static bool see_prompt_logits(void *context, uint32_t position, const float *logits, struct err *err)
{
    struct ticket *t = context;
    struct sampled sampled;
    uint32_t next = position + 1;
    if (next >= t->request.n_prompt) return true;
    sampled.id = t->request.prompt[next];
    return logprob_row(&sampled.logprobs, logits, t->service->settings.model->n_tokens, sampled.id,
                       t->request.n_top_logprobs, err) &&
           tell_prompt_token(t, &sampled, err);
}

void ticket_see_prompt_token(struct ticket *ticket, const struct sampled *sampled)
{
    if (!tell_prompt_token(ticket, sampled, &ticket->failure)) ticket_cancel(ticket);
}

void ticket_see_done(struct ticket *ticket, const struct job_result *job)
{
    struct ticket *t = ticket;
    struct service *s = t->service;
    struct service_result *r = (struct service_result *)(void *)t->done->payload;
    int64_t now = clock_now_ns(s->settings.clock);
    *r = (struct service_result){.reason = job->reason, .err = job->err, .usage = job->usage};
    if (t->failure.kind == ERR_NONE && r->reason != STOP_ERROR && r->reason != STOP_CANCELLED) {
        bool ok = answer_end(t->answer, job->reason, &t->failure);
        ASSERT(ok || t->failure.kind != ERR_NONE);
        r->reason = answer_reason(t->answer);
        if (r->reason == STOP_GRAMMAR && t->n_calls > 0) r->reason = STOP_TOOL;
    }
    if (t->failure.kind != ERR_NONE) {
        r->reason = STOP_ERROR;
        r->err = t->failure;
    }
    r->stop_string = answer_stop_string(t->answer);
    r->n_reasoning = answer_reasoning_tokens(t->answer);
    r->context_full = r->reason == STOP_LENGTH && (int64_t)job->usage.n_generated < t->request.sampling->max_tokens;
    r->queued_ns = (t->started_ns ? t->started_ns : now) - t->submitted_ns;
    if (t->started_ns) r->prompt_ns = (t->answered_ns ? t->answered_ns : now) - t->started_ns;
    if (t->answered_ns) r->decode_ns = now - t->answered_ns;
    r->ids = t->ids.ids;
    r->n_ids = (uint32_t)t->ids.n;
    answer_form_free(t->form); /* here, because the tables go before the last ticket may */
    t->form = NULL;
    service_count_done(s, t, r);
    append(t, t->done);
    t->done = NULL; /* the reader's now */
    wake(t, SERVICE_DONE);
    ticket_put(t);
}

static void see_done(void *context, const struct job_result *job)
{
    ticket_see_done(context, job);
}

/* --- made --- */

static bool fill_ticket(struct ticket *t, const struct service_request *request, struct err *err)
{
    struct service *s = t->service;
    const struct text_model *model = s->settings.model;
    t->request = *request;
    t->request.answer.emit = see_part;
    t->request.answer.context = t;
    t->done = alloc_get(s->alloc, sizeof *t->done + sizeof(struct service_result), err);
    if (!t->done) return false;
    t->done->event.kind = SERVICE_DONE;
    t->done->event.result = (const struct service_result *)(const void *)t->done->payload;
    if (!answer_new(&t->answer, s->alloc, model, request->sampling, &t->request.answer, err)) return false;
    t->rules = (struct sampler_rules){
        .sampling = request->sampling,
        .key = request->key,
        .banned = request->banned ? request->banned : model->dead,
        .n_banned = request->banned ? request->n_banned : model->n_dead,
        .wants_logprobs = request->wants_logprobs,
        .n_top_logprobs = request->n_top_logprobs,
    };
    update_ends(t);
    t->job.prompt = request->prompt;
    t->job.n_prompt = request->n_prompt;
    t->job.rules = &t->rules;
    t->job.priority = request->priority;
    if (request->answer.is_chat)
        t->job.thinking = (struct job_thinking){.is_open = request->answer.starts_in_think,
                                                .begin = model->chat.id[CHAT_THINK],
                                                .end = model->chat.id[CHAT_THINK_END],
                                                .n_max = request->n_thinking_max};
    t->job.events = (struct job_events){
        .context = t, .started = see_started, .progress = see_progress, .token = see_token, .done = see_done};
    if (request->constraint) t->job.events.allowed = see_allowed;
    if (request->constraint) t->job.events.forced = see_forced;
    if (request->wants_prompt_logprobs) t->job.events.prompt_logits = see_prompt_logits;
    return true;
}

struct ticket *ticket_new(struct service *service, const struct service_request *request, struct err *err)
{
    struct service *s = service;
    struct ticket *t = alloc_get(s->alloc, sizeof *t, err);
    if (!t) return NULL;
    t->service = s;
    token_list_init(&t->ids, s->alloc, s->settings.engine.context_tokens);
    pthread_mutex_init(&t->lock, NULL);
    atomic_store(&t->holders, 1);
    if (fill_ticket(t, request, err)) {
        atomic_store(&t->holders, 2); /* the engine's and the caller's */
        return t;
    }
    t->request.release = NULL;
    ticket_put(t);
    return NULL;
}
