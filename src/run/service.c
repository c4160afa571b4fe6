/* The doors of the service, for other threads. */
#include "run/service_int.h"

#include "base/assert.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_S_MAX = 60, FIRST_ANSWER_S = 10 };

/* A pipe that never makes anybody wait. */
static bool open_pipe(int fds[2], struct err *err)
{
    if (pipe(fds) != 0) {
        fds[0] = fds[1] = -1;
        return err_set(err, ERR_IO, "cannot make a pipe: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++)
        if (fcntl(fds[i], F_SETFL, O_NONBLOCK) != 0 || fcntl(fds[i], F_SETFD, FD_CLOEXEC) != 0)
            return err_set(err, ERR_IO, "cannot set up a pipe: %s", strerror(errno));
    return true;
}

bool service_make(struct service **service, struct alloc *alloc, const struct service_settings *settings,
                  struct err *err)
{
    struct service *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    s->alloc = alloc;
    s->wake_fds[0] = s->wake_fds[1] = -1;
    s->settings = *settings;
    s->state = settings->pool ? SERVICE_PARKED : SERVICE_LOADING;
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
    s->open = alloc_get_array(alloc, service_open_max(s), sizeof *s->open, err);
    if (!s->open) goto fail;
    if (settings->keeper && !open_pipe(s->wake_fds, err)) goto fail;
    *service = s;
    return true;
fail:
    service_free(s);
    return false;
}

static void nudge(void *service)
{
    service_nudge(service);
}

bool service_new(struct service **service, struct alloc *alloc, const struct service_settings *settings,
                 struct err *err)
{
    struct service *s;
    if (!service_make(&s, alloc, settings, err)) return false;
    if (settings->pool) engine_pool_join(settings->pool, settings->pool_member, nudge, s);
    int failed = pthread_create(&s->thread, NULL, settings->keeper ? service_remote_run : engine_room_run, s);
    if (failed) {
        service_free(s);
        return err_set(err, ERR_FAILED, "cannot start the engine thread: %s", strerror(failed));
    }
    s->has_thread = true;
    *service = s;
    return true;
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

uint32_t service_cancel_all(struct service *service)
{
    struct service *s = service;
    pthread_mutex_lock(&s->lock);
    uint32_t n = s->n_open;
    for (uint32_t i = 0; i < n; i++) job_cancel(&s->open[i]->job);
    pthread_mutex_unlock(&s->lock);
    service_nudge(s);
    return n;
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
    service_wake(s);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    s->has_thread = false;
    engine_room_close(s);
    return n_cancelled;
}

void service_free(struct service *service)
{
    if (!service) return;
    ASSERT(!service->has_thread);
    for (int i = 0; i < 2; i++)
        if (service->wake_fds[i] >= 0) close(service->wake_fds[i]);
    alloc_put(service->alloc, service->open);
    pthread_cond_destroy(&service->idle);
    pthread_cond_destroy(&service->work);
    pthread_mutex_destroy(&service->lock);
    alloc_put(service->alloc, service);
}

/* An engine that takes turns is waited for, unless it was tried just now and did not open. */
static bool is_waited_for(struct service *s)
{
    bool comes = s->state == SERVICE_PARKED || (s->settings.pool && s->state == SERVICE_LOADING);
    return comes && (s->retry_ns == 0 || clock_now_ns(s->settings.clock) >= s->retry_ns);
}

enum service_state service_state(struct service *service, struct err *err)
{
    pthread_mutex_lock(&service->lock);
    enum service_state state = service->state;
    if (state == SERVICE_PARKED && !is_waited_for(service)) state = SERVICE_FAILED;
    if (err) *err = service->failure;
    pthread_mutex_unlock(&service->lock);
    return state;
}

static enum service_refusal why_not(struct service *s, struct err *err)
{
    if (s->closes) err_set(err, ERR_BUSY, "the server is shutting down");
    if (s->closes) return SERVICE_CLOSING;
    switch (is_waited_for(s) ? SERVICE_READY : s->state) {
    case SERVICE_LOADING: err_set(err, ERR_BUSY, "the model is still being loaded"); return SERVICE_NOT_YET;
    case SERVICE_FAILED: err_set(err, ERR_FAILED, "the model could not be opened"); return SERVICE_BROKEN;
    case SERVICE_STOPPING: err_set(err, ERR_BUSY, "the server is shutting down"); return SERVICE_CLOSING;
    case SERVICE_RESTARTING:
    case SERVICE_PARKED:
    case SERVICE_DOWN: *err = s->failure; return SERVICE_BROKEN;
    case SERVICE_READY: break;
    }
    if (s->n_open < service_open_max(s)) return SERVICE_TAKEN;
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
    struct ticket *t = ticket_new(s, request, err);
    if (!t) return SERVICE_NO_MEMORY;
    t->submitted_ns = clock_now_ns(s->settings.clock);
    pthread_mutex_lock(&s->lock);
    enum service_refusal refusal = why_not(s, err);
    if (refusal == SERVICE_TAKEN) {
        *s->inbox_end = t;
        s->inbox_end = &t->next;
        s->open[s->n_open++] = t;
        if (++s->n_numbers == 0) s->n_numbers++;
        t->number = s->n_numbers;
        service_wake(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (refusal == SERVICE_TAKEN) {
        *ticket = t;
    } else {
        t->request.release = NULL;
        atomic_store(&t->holders, 1);
        ticket_put(t);
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
    stats->n_pauses = service->n_pauses;
    stats->engine_pid = service->engine_pid;
    stats->n_restarts = service->n_restarts;
    stats->n_opened = service->n_opened;
    if (service->budget_bytes > 0) stats->budget_bytes = service->budget_bytes; /* from the next pass on */
    stats->n_paused = 0;
    for (uint32_t i = 0; i < service->n_open; i++) stats->n_paused += job_is_paused(&service->open[i]->job);
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

bool service_set_budget(struct service *service, uint64_t bytes, struct err *err)
{
    struct plan plan;
    if (!service_plan(service, &plan))
        return err_set(err, ERR_USER, "there is no memory plan: this model is held in memory as a whole");
    uint64_t least = plan_least_bytes(&plan);
    if (bytes < least || bytes > plan.budget_bytes)
        return err_set(err, ERR_USER,
                       "budget: %" PRIu64 " bytes is not legal; must be %" PRIu64 " to %" PRIu64
                       ", what the model was opened with",
                       bytes, least, plan.budget_bytes);
    pthread_mutex_lock(&service->lock);
    service->budget_bytes = bytes;
    pthread_mutex_unlock(&service->lock);
    service_nudge(service);
    return true;
}
