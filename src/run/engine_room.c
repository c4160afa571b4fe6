/* The engine thread: opens the engine, owns it and its scheduler, and runs passes for as long as there is work. */
#include "run/service_int.h"

#include "run/state_identity.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define IDLE_NS_MIN INT64_C(100000000)

enum { PREFIX_BLOCKS_UNPLANNED = 256 };

static void kick(void *context)
{
    service_nudge(context);
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

bool engine_room_open(struct service *service, struct err *err)
{
    struct service *s = service;
    const struct service_settings *with = &s->settings;
    if (!engine_open(&s->engine, s->alloc, with->fs, &with->engine, err)) return false;
    if (!open_ssd(s, err)) return false;
    const struct plan *plan = engine_plan(s->engine);
    struct scheduler_settings settings = scheduler_settings_for(s->engine);
    settings.n_tokens = with->model->n_tokens;
    settings.n_running_max = with->engine.n_sequences;
    settings.n_waiting_max = service_open_max(s);
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

bool engine_room_make_form(struct service *service, struct ticket *ticket, struct err *err)
{
    const struct service_request *request = &ticket->request;
    if (!request->constraint) return true;
    return answer_form_new(&ticket->form, &service->forms, request->constraint, request->answer.starts_in_think, err);
}

static void submit_job(struct service *s, struct ticket *t)
{
    struct job_result result = {.reason = STOP_ERROR};
    if (!engine_room_make_form(s, t, &result.err) || !scheduler_submit(s->scheduler, &t->job, &result.err))
        ticket_see_done(t, &result);
}

void engine_room_publish(struct service *service)
{
    struct service *s = service;
    struct streamed *streamed = engine_streamed(s->engine);
    const struct kv_pool *pool = forward_kv_pool(engine_forward(s->engine));
    pthread_mutex_lock(&s->lock);
    s->stats.scheduler = scheduler_stats(s->scheduler);
    s->stats.prefixes = scheduler_prefix_stats(s->scheduler);
    s->stats.drafts = engine_settings_of(s->engine)->drafts;
    snprintf(s->stats.no_drafts, sizeof s->stats.no_drafts, "%s", engine_no_drafts(s->engine));
    s->stats.control = *scheduler_draft_control(s->scheduler);
    s->stats.expert_bytes = scheduler_expert_bytes(s->scheduler);
    s->stats.has_ssd = s->ssd != NULL;
    if (s->ssd) s->stats.ssd = ssd_cache_stats(s->ssd);
    s->stats.kv_blocks = pool->n_blocks;
    s->stats.kv_blocks_max = pool->n_blocks_max;
    s->stats.kv_block_bytes = pool->layout.block_bytes;
    s->stats.stages = *forward_times(engine_forward(s->engine));
    s->stats.is_streamed = streamed != NULL;
    if (streamed) {
        s->stats.slots = *slots_stats(streamed_slots(streamed));
        s->stats.streamer = *streamed_stats(streamed);
        s->stats.budget_bytes = streamed_guard(streamed)->budget_bytes;
        s->stats.n_shrinks = streamed_guard(streamed)->n_shrinks;
        s->stats.held_bytes = streamed_guard(streamed)->held_bytes;
        s->stats.reader = *reader_stats(streamed_reader(streamed));
    }
    s->stats.masks = form_tables_stats(&s->forms);
    pthread_mutex_unlock(&s->lock);
}

/* A budget takes effect between passes. */
static void set_budget(struct service *s, uint64_t bytes)
{
    struct streamed *streamed = engine_streamed(s->engine);
    if (bytes == 0 || !streamed) return;
    streamed_set_budget(streamed, bytes);
    streamed_after_pass(streamed, NULL); /* no lease is out: it is kept from now on */
    engine_room_publish(s);
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
    if (pthread_cond_timedwait(&s->work, &s->lock, &until) == ETIMEDOUT) s->is_nudged = true;
}

/* How long an idle scheduler may be left alone. */
static int64_t idle_ns(struct service *s)
{
    int64_t due = scheduler_due_ns(s->scheduler);
    if (due == INT64_MAX) return due;
    int64_t left = due - clock_now_ns(s->settings.clock);
    return left > IDLE_NS_MIN ? left : IDLE_NS_MIN;
}

void engine_room_wait(struct service *service, bool waits)
{
    struct service *s = service;
    int64_t ns = waits ? idle_ns(s) : 0;
    pthread_mutex_lock(&s->lock);
    while (waits && !s->inbox && !s->stops && !s->is_nudged) wait_for_work(s, ns);
    s->is_nudged = false;
    uint64_t budget_bytes = s->budget_bytes;
    s->budget_bytes = 0;
    if (budget_bytes > 0) s->stats.budget_bytes = budget_bytes; /* nobody may see the old one in between */
    pthread_mutex_unlock(&s->lock);
    set_budget(s, budget_bytes);
}

/* Takes what came in. False: nothing did, and the thread is to end. */
static bool take_inbox(struct service *s, bool waits)
{
    engine_room_wait(s, waits);
    pthread_mutex_lock(&s->lock);
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

static void change_state(struct service *s, enum service_state state, const struct err *err)
{
    pthread_mutex_lock(&s->lock);
    s->state = s->closes && state == SERVICE_READY ? SERVICE_STOPPING : state;
    if (err) s->failure = *err;
    pthread_mutex_unlock(&s->lock);
    if (s->settings.changed) s->settings.changed(s->settings.context, state, err);
}

void engine_room_warn(struct service *service)
{
    struct err warning;
    struct service *s = service;
    struct streamed *streamed = s->engine ? engine_streamed(s->engine) : NULL;
    char text[STREAMED_NOTE_MAX];
    if (!s->settings.warned) return;
    if (s->ssd && ssd_cache_take_warning(s->ssd, &warning)) s->settings.warned(s->settings.context, &warning);
    while (streamed && streamed_take_note(streamed, text)) {
        err_set(&warning, ERR_FAILED, "%s", text);
        s->settings.warned(s->settings.context, &warning);
    }
}

void *engine_room_run(void *service)
{
    struct service *s = service;
    struct err err = {0};
    if (!engine_room_open(s, &err)) {
        change_state(s, SERVICE_FAILED, &err);
        return NULL;
    }
    engine_room_publish(s);
    engine_room_warn(s);
    change_state(s, SERVICE_READY, NULL);
    bool is_idle = false;
    while (take_inbox(s, is_idle)) {
        is_idle = !scheduler_step(s->scheduler);
        engine_room_publish(s);
        engine_room_warn(s);
    }
    return NULL;
}

void engine_room_close(struct service *service)
{
    struct service *s = service;
    scheduler_free(s->scheduler);
    if (s->ssd) s->stats.ssd = ssd_cache_stats(s->ssd);
    engine_room_warn(s);
    ssd_cache_close(s->ssd);
    engine_close(s->engine);
    form_tables_fini(&s->forms);
    s->scheduler = NULL;
    s->ssd = NULL;
    s->engine = NULL;
}
