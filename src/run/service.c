/* Who owns what: the inbox, the state and the published numbers are under service->lock; a ticket's events are under
 * its own lock; engine, scheduler, and the answer inside a ticket belong to the engine thread. No lock is held while a
 * request is told something, and none while a pass runs. */
#include "run/service.h"

#include "base/assert.h"
#include "run/answer_form.h"
#include "run/state_identity.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define IDLE_NS_MIN INT64_C(100000000)

enum { PREFIX_BLOCKS_UNPLANNED = 256, RETRY_S_MAX = 60, FIRST_ANSWER_S = 10 };

struct event_node {
    struct event_node *next;
    size_t bytes;
    struct service_event event;
    _Alignas(struct sampled) char payload[]; /* what the event points to */
};

struct ticket {
    struct service *service;
    struct ticket *next; /* in the inbox */
    struct service_request request;
    struct job job;
    struct sampler_rules rules;
    struct answer *answer;
    struct answer_form *form; /* NULL: no constraint */
    uint32_t n_calls;
    struct err failure; /* of ours, which ends the job; kind ERR_NONE: none */
    int64_t submitted_ns, started_ns, answered_ns;
    atomic_uint holders;

    pthread_mutex_t lock; /* for everything below */
    struct event_node *first, *last, *current;
    size_t bytes;
    struct event_node *done; /* made in advance, so that the end can always be told; its payload is the result */
    struct job_progress progress;
    bool has_started;
};

struct service {
    struct alloc *alloc;
    struct service_settings settings;
    pthread_t thread;
    bool has_thread;
    struct engine *engine; /* engine thread, as is the next */
    struct scheduler *scheduler;
    struct ssd_cache *ssd; /* NULL: none */
    struct form_tables forms;

    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t work, idle;
    enum service_state state;
    struct err failure;
    struct ticket *inbox, **inbox_end;
    bool closes, stops;
    bool is_kicked; /* there may be something to do although nothing came in */
    uint32_t n_open;
    struct ticket **open; /* [n_open], room for all that may be taken */
    uint64_t n_refused_full;
    double answer_s; /* how long answers take, lately */
    struct service_stats stats;
    struct plan plan;
    bool has_plan;
};

static uint32_t open_max(const struct service *s)
{
    return s->settings.engine.n_sequences + s->settings.n_waiting_max;
}

/* --- tickets --- */

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

static void put_ticket(struct ticket *t)
{
    if (atomic_fetch_sub(&t->holders, 1) != 1) return;
    void (*release)(void *context) = t->request.release;
    void *context = t->request.context;
    free_events(t);
    answer_free(t->answer);
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

/* Puts an event where its reader finds it. False: it is too far behind, or there is no memory. */
static bool tell(struct ticket *t, const struct service_event *event, struct err *err)
{
    const void *payload = event->sampled ? (const void *)event->sampled : event->part.text;
    size_t n_payload = event->sampled ? sizeof *event->sampled : event->part.bytes;
    size_t bytes = sizeof(struct event_node) + n_payload;
    pthread_mutex_lock(&t->lock);
    bool fits = bytes <= t->request.events_bytes_max - t->bytes;
    pthread_mutex_unlock(&t->lock);
    if (!fits)
        return err_set(err, ERR_FAILED, "the client reads too slowly: %zu bytes wait for it",
                       t->request.events_bytes_max);
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
    pthread_mutex_unlock(&t->lock);
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

void ticket_cancel(struct ticket *ticket)
{
    job_cancel(&ticket->job);
}

void ticket_end_thinking(struct ticket *ticket)
{
    job_end_thinking(&ticket->job);
}

void ticket_release(struct ticket *ticket)
{
    job_cancel(&ticket->job);
    put_ticket(ticket);
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
    if (t->request.wants_logprobs && !tell(t, &event, &t->failure)) return STOP_ERROR;
    if (!answer_add(t->answer, sampled->id, &t->failure)) return STOP_ERROR;
    update_ends(t);
    enum stop_reason reason = answer_reason(t->answer);
    if (reason != STOP_NONE || !t->form) return reason;
    return answer_form_advance(t->form, sampled->id, &t->failure);
}

static bool see_prompt_logits(void *context, uint32_t position, const float *logits, struct err *err)
{
    struct ticket *t = context;
    struct sampled sampled;
    const struct service_event event = {.kind = SERVICE_PROMPT_TOKEN, .sampled = &sampled};
    uint32_t next = position + 1;
    if (next >= t->request.n_prompt) return true;
    sampled.id = t->request.prompt[next];
    return logprob_row(&sampled.logprobs, logits, t->service->settings.model->n_tokens, sampled.id,
                       t->request.n_top_logprobs, err) &&
           tell(t, &event, err);
}

static void forget_open(struct service *s, const struct ticket *t)
{
    for (uint32_t i = 0; i < s->n_open; i++)
        if (s->open[i] == t) {
            s->open[i] = s->open[--s->n_open];
            return;
        }
    ASSERT(!"a ticket that was not open is done");
}

static void count_done(struct service *s, const struct ticket *t, const struct service_result *result)
{
    pthread_mutex_lock(&s->lock);
    forget_open(s, t);
    if (result->usage.n_generated > 0 && result->decode_ns > 0) {
        double total_s = (double)(result->prompt_ns + result->decode_ns) / 1e9;
        s->answer_s = s->answer_s > 0 ? 0.7 * s->answer_s + 0.3 * total_s : total_s;
        s->stats.decode_ns += result->decode_ns;
        s->stats.n_decoded += result->usage.n_generated - 1; /* the first came with the prompt's last pass */
        s->stats.last_tokens_per_second = (double)(result->usage.n_generated - 1) / ((double)result->decode_ns / 1e9);
    }
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

static void see_done(void *context, const struct job_result *job)
{
    struct ticket *t = context;
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
    answer_form_free(t->form); /* here, because it uses the masks of this thread */
    t->form = NULL;
    count_done(s, t, r);
    append(t, t->done);
    t->done = NULL; /* the reader's now */
    wake(t, SERVICE_DONE);
    put_ticket(t);
}

/* --- the engine thread --- */

static void kick(void *context)
{
    struct service *s = context;
    pthread_mutex_lock(&s->lock);
    s->is_kicked = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static bool open_ssd(struct service *s, struct err *err)
{
    const struct service_settings *with = &s->settings;
    if (!with->ssd_dir) return true;
    const struct ssd_settings settings = {
        .dir = with->ssd_dir,
        .bytes_max = with->ssd_bytes_max,
        .identity = state_identity_of(s->engine),
        .pool = forward_kv_pool(engine_forward(s->engine)),
        .fs = with->fs,
        .saver = {.ws = with->ws, .clock = with->clock, .has_thread = true, .wake = kick, .context = s},
    };
    return ssd_cache_open(&s->ssd, s->alloc, &settings, err) || err_context(err, "--ssd-cache");
}

static bool open_engine(struct service *s, struct err *err)
{
    const struct service_settings *with = &s->settings;
    if (!engine_open(&s->engine, s->alloc, with->fs, &with->engine, err)) return false;
    if (!open_ssd(s, err)) return false;
    const struct plan *plan = engine_plan(s->engine);
    struct scheduler_settings settings = scheduler_settings_for(s->engine);
    settings.n_tokens = with->model->n_tokens;
    settings.n_running_max = with->engine.n_sequences;
    settings.n_waiting_max = open_max(s);
    /* All blocks that nobody runs in may hold prefixes, which make way for those who do. */
    settings.prefix_blocks_max = plan ? plan->kv_blocks + plan->prompt_cache_blocks : PREFIX_BLOCKS_UNPLANNED;
    settings.decode_stall_ns_max = with->decode_stall_ns_max;
    settings.ssd = s->ssd;
    settings.demote_idle_ns = with->demote_idle_ns;
    settings.clock = with->clock;
    if (!scheduler_new(&s->scheduler, s->engine, &settings, err)) return false;
    pthread_mutex_lock(&s->lock);
    s->has_plan = plan != NULL;
    if (plan) s->plan = *plan;
    pthread_mutex_unlock(&s->lock);
    return true;
}

static bool make_form(struct service *s, struct ticket *t, struct err *err)
{
    if (!t->request.constraint) return true;
    t->job.events.allowed = see_allowed;
    t->job.events.forced = see_forced;
    return answer_form_new(&t->form, &s->forms, t->request.constraint, t->request.answer.starts_in_think, err);
}

static void submit_job(struct service *s, struct ticket *t)
{
    struct job_result result = {.reason = STOP_ERROR};
    if (!make_form(s, t, &result.err) || !scheduler_submit(s->scheduler, &t->job, &result.err)) see_done(t, &result);
}

/* Waits until something comes in, or for so long. Under the lock. */
static void wait_for_work(struct service *s, int64_t ns)
{
    struct timespec until;
    if (ns == INT64_MAX) {
        pthread_cond_wait(&s->work, &s->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t end = until.tv_nsec + ns % INT64_C(1000000000);
    until.tv_sec += (time_t)(ns / INT64_C(1000000000) + end / INT64_C(1000000000));
    until.tv_nsec = (long)(end % INT64_C(1000000000));
    if (pthread_cond_timedwait(&s->work, &s->lock, &until) == ETIMEDOUT) s->is_kicked = true;
}

/* How long an idle scheduler may be left alone. */
static int64_t idle_ns(struct service *s)
{
    int64_t due = scheduler_due_ns(s->scheduler);
    if (due == INT64_MAX) return due;
    int64_t left = due - clock_now_ns(s->settings.clock);
    return left > IDLE_NS_MIN ? left : IDLE_NS_MIN;
}

/* Takes what came in. False: nothing did, and the thread is to end. */
static bool take_inbox(struct service *s, bool waits)
{
    int64_t ns = waits ? idle_ns(s) : 0;
    pthread_mutex_lock(&s->lock);
    while (waits && !s->inbox && !s->stops && !s->is_kicked) wait_for_work(s, ns);
    s->is_kicked = false;
    struct ticket *t = s->inbox;
    s->inbox = NULL;
    s->inbox_end = &s->inbox;
    bool ends = !t && s->stops && s->n_open == 0;
    pthread_mutex_unlock(&s->lock);
    while (t) {
        struct ticket *next = t->next;
        submit_job(s, t);
        t = next;
    }
    return !ends;
}

static void pass_on_warning(struct service *s)
{
    struct err warning;
    if (!s->ssd || !ssd_cache_take_warning(s->ssd, &warning)) return;
    if (s->settings.warned) s->settings.warned(s->settings.context, &warning);
}

static void publish(struct service *s)
{
    struct streamed *streamed = engine_streamed(s->engine);
    const struct kv_pool *pool = forward_kv_pool(engine_forward(s->engine));
    pthread_mutex_lock(&s->lock);
    s->stats.scheduler = scheduler_stats(s->scheduler);
    s->stats.prefixes = scheduler_prefix_stats(s->scheduler);
    s->stats.has_ssd = s->ssd != NULL;
    if (s->ssd) s->stats.ssd = ssd_cache_stats(s->ssd);
    s->stats.kv_blocks = pool->n_blocks;
    s->stats.kv_blocks_max = pool->n_blocks_max;
    s->stats.kv_block_bytes = pool->layout.block_bytes;
    s->stats.is_streamed = streamed != NULL;
    if (streamed) {
        s->stats.slots = *slots_stats(streamed_slots(streamed));
        s->stats.streamer = *streamed_stats(streamed);
    }
    pthread_mutex_unlock(&s->lock);
}

static void change_state(struct service *s, enum service_state state, const struct err *err)
{
    pthread_mutex_lock(&s->lock);
    s->state = s->closes && state == SERVICE_READY ? SERVICE_STOPPING : state;
    if (err) s->failure = *err;
    pthread_mutex_unlock(&s->lock);
    if (s->settings.changed) s->settings.changed(s->settings.context, state, err);
}

static void *run(void *context)
{
    struct service *s = context;
    struct err err = {0};
    if (!open_engine(s, &err)) {
        change_state(s, SERVICE_FAILED, &err);
        return NULL;
    }
    publish(s);
    change_state(s, SERVICE_READY, NULL);
    bool is_idle = false;
    while (take_inbox(s, is_idle)) {
        is_idle = !scheduler_step(s->scheduler);
        publish(s);
        pass_on_warning(s);
    }
    return NULL;
}

/* --- from outside --- */

bool service_new(struct service **service, struct alloc *alloc, const struct service_settings *settings,
                 struct err *err)
{
    struct service *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    s->alloc = alloc;
    s->settings = *settings;
    s->inbox_end = &s->inbox;
    form_tables_init(&s->forms, alloc, settings->model);
    s->stats.context_tokens = settings->engine.context_tokens;
    s->stats.n_sequences = settings->engine.n_sequences;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &monotonic);
    pthread_cond_init(&s->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->open = alloc_get_array(alloc, open_max(s), sizeof *s->open, err);
    if (!s->open) goto fail;
    int failed = pthread_create(&s->thread, NULL, run, s);
    if (failed) {
        err_set(err, ERR_FAILED, "cannot start the engine thread: %s", strerror(failed));
        goto fail;
    }
    s->has_thread = true;
    *service = s;
    return true;
fail:
    service_free(s);
    return false;
}

void service_close(struct service *service)
{
    pthread_mutex_lock(&service->lock);
    service->closes = true;
    if (service->state == SERVICE_READY) service->state = SERVICE_STOPPING;
    pthread_mutex_unlock(&service->lock);
}

/* Waits until nothing is open, or for so long. Under the lock. */
static void wait_idle(struct service *s, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t end = until.tv_nsec + ns % INT64_C(1000000000);
    until.tv_sec += (time_t)(ns / INT64_C(1000000000) + end / INT64_C(1000000000));
    until.tv_nsec = (long)(end % INT64_C(1000000000));
    while (s->n_open > 0 && pthread_cond_timedwait(&s->idle, &s->lock, &until) == 0) continue;
}

uint32_t service_stop(struct service *service, int64_t ns)
{
    struct service *s = service;
    service_close(s);
    pthread_mutex_lock(&s->lock);
    wait_idle(s, ns);
    uint32_t n_cancelled = s->n_open;
    for (uint32_t i = 0; i < s->n_open; i++) job_cancel(&s->open[i]->job);
    s->stops = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    s->has_thread = false;
    scheduler_free(s->scheduler);
    if (s->ssd) s->stats.ssd = ssd_cache_stats(s->ssd);
    pass_on_warning(s);
    ssd_cache_close(s->ssd);
    engine_close(s->engine);
    form_tables_fini(&s->forms);
    s->scheduler = NULL;
    s->ssd = NULL;
    s->engine = NULL;
    return n_cancelled;
}

void service_free(struct service *service)
{
    if (!service) return;
    ASSERT(!service->has_thread);
    alloc_put(service->alloc, service->open);
    pthread_cond_destroy(&service->idle);
    pthread_cond_destroy(&service->work);
    pthread_mutex_destroy(&service->lock);
    alloc_put(service->alloc, service);
}

enum service_state service_state(struct service *service, struct err *err)
{
    pthread_mutex_lock(&service->lock);
    enum service_state state = service->state;
    if (err) *err = service->failure;
    pthread_mutex_unlock(&service->lock);
    return state;
}

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
    if (request->wants_prompt_logprobs) t->job.events.prompt_logits = see_prompt_logits;
    return true;
}

static struct ticket *new_ticket(struct service *s, const struct service_request *request, struct err *err)
{
    struct ticket *t = alloc_get(s->alloc, sizeof *t, err);
    if (!t) return NULL;
    t->service = s;
    pthread_mutex_init(&t->lock, NULL);
    atomic_store(&t->holders, 1);
    if (fill_ticket(t, request, err)) {
        atomic_store(&t->holders, 2); /* the engine's and the caller's */
        return t;
    }
    t->request.release = NULL;
    put_ticket(t);
    return NULL;
}

static enum service_refusal why_not(struct service *s, struct err *err)
{
    if (s->closes) err_set(err, ERR_BUSY, "the server is shutting down");
    if (s->closes) return SERVICE_CLOSING;
    switch (s->state) {
    case SERVICE_LOADING: err_set(err, ERR_BUSY, "the model is still being loaded"); return SERVICE_NOT_YET;
    case SERVICE_FAILED: err_set(err, ERR_FAILED, "the model could not be opened"); return SERVICE_BROKEN;
    case SERVICE_STOPPING: err_set(err, ERR_BUSY, "the server is shutting down"); return SERVICE_CLOSING;
    case SERVICE_READY: break;
    }
    if (s->n_open < open_max(s)) return SERVICE_TAKEN;
    s->n_refused_full++;
    err_set(err, ERR_BUSY, "the queue is full: %" PRIu32 " requests are running or waiting; try again later",
            s->n_open);
    return SERVICE_FULL;
}

enum service_refusal service_submit(struct service *service, const struct service_request *request,
                                    struct ticket **ticket, struct err *err)
{
    struct service *s = service;
    *ticket = NULL;
    uint32_t context = s->settings.engine.context_tokens;
    if (request->n_prompt >= context) {
        err_set(err, ERR_USER,
                "this model's maximum context length is %" PRIu32 " tokens, one of them for an answer, and the prompt "
                "has %" PRIu32 " tokens",
                context, request->n_prompt);
        return SERVICE_TOO_LONG;
    }
    struct ticket *t = new_ticket(s, request, err);
    if (!t) return SERVICE_NO_MEMORY;
    t->submitted_ns = clock_now_ns(s->settings.clock);
    pthread_mutex_lock(&s->lock);
    enum service_refusal refusal = why_not(s, err);
    if (refusal == SERVICE_TAKEN) {
        *s->inbox_end = t;
        s->inbox_end = &t->next;
        s->open[s->n_open++] = t;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    if (refusal == SERVICE_TAKEN) {
        *ticket = t;
    } else {
        t->request.release = NULL;
        atomic_store(&t->holders, 1);
        put_ticket(t);
    }
    return refusal;
}

unsigned service_retry_after_s(struct service *service)
{
    pthread_mutex_lock(&service->lock);
    double each = service->answer_s > 0 ? service->answer_s : FIRST_ANSWER_S;
    double s = each * (1 + service->settings.n_waiting_max / 2) / service->settings.engine.n_sequences;
    pthread_mutex_unlock(&service->lock);
    return s < 1 ? 1 : s > RETRY_S_MAX ? RETRY_S_MAX : (unsigned)s;
}

void service_stats(struct service *service, struct service_stats *stats)
{
    pthread_mutex_lock(&service->lock);
    *stats = service->stats;
    stats->n_open = service->n_open;
    stats->n_refused_full = service->n_refused_full;
    pthread_mutex_unlock(&service->lock);
}

bool service_plan(struct service *service, struct plan *plan)
{
    pthread_mutex_lock(&service->lock);
    bool has_plan = service->has_plan;
    if (has_plan) *plan = service->plan;
    pthread_mutex_unlock(&service->lock);
    return has_plan;
}
