/* The engine thread of a service whose engine is in another process: it sends jobs there, and tells their tickets what
 * comes back as if the engine were here. When that process ends, whatever ran in it fails with the reason, and another
 * is made, a few times.
 *
 * An engine that takes turns with others (run/engine_pool.h) has no process to begin with. Requests wait in the inbox
 * until it is its turn and the engine is open; then all that wait are sent, and whatever comes until another member
 * waits for the seat. From then on nothing is sent, and when nothing runs, the process is told to end.
 *
 * It waits for two descriptors: the stream, and a pipe that is written to when there is something to send. */
#include "run/service_int.h"

#include "run/engine_link.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { RESTARTS_MAX = 3 };
#define RESTARTS_WITHIN_NS INT64_C(60000000000)
#define RETRY_NS INT64_C(30000000000) /* between attempts to open an engine of a pool */

struct remote {
    struct service *s;
    int fd; /* the stream; -1: there is no child */
    struct buf payload;
    bool was_open, is_stopping;
    bool is_open, had_turn, leaves; /* this child: opened its engine; was sent what waited; makes way for another's */
    struct err why;                 /* the child did not open the engine */
    uint32_t n_words;
    int64_t restarts[RESTARTS_MAX]; /* when */
    uint32_t n_restarts;
};

/* --- to the engine --- */

/* What cannot be sent is lost with its child, whose end shows at the other end of the stream. */
static void reply(struct remote *r, const struct ticket *t, const struct link_part *parts, size_t n)
{
    if (!link_send(r->fd, LINK_REPLY, t->number, parts, n)) return;
}

static void send_job(struct remote *r, struct ticket *t)
{
    const struct sampling *sampling = t->rules.sampling;
    const struct job *job = &t->job;
    struct link_job told;
    memset(&told, 0, sizeof told);
    told.sampling = *sampling;
    told.key = t->rules.key;
    told.order = t->rules.order;
    told.priority = job->priority;
    told.thinking = job->thinking;
    told.wants_logprobs = t->rules.wants_logprobs;
    told.n_top_logprobs = t->rules.n_top_logprobs;
    if (job->events.prompt_logits) {
        told.wants_prompt = true;
        told.n_top_logprobs = t->request.n_top_logprobs;
    }
    told.has_form = job->events.allowed != NULL;
    told.n_prompt = job->n_prompt;
    told.n_eos = t->rules.n_eos;
    told.n_banned = t->rules.n_banned;
    told.n_bias = (uint32_t)sampling->n_bias;
    told.n_stop_ids = (uint32_t)sampling->n_stop_ids;
    const struct link_part parts[] = {{&told, sizeof told},
                                      {job->prompt, told.n_prompt * sizeof(uint32_t)},
                                      {t->rules.eos, told.n_eos * sizeof(uint32_t)},
                                      {t->rules.banned, told.n_banned * sizeof(uint32_t)},
                                      {sampling->stop_ids, told.n_stop_ids * sizeof(uint32_t)},
                                      {sampling->bias, told.n_bias * sizeof(struct logit_bias)}};
    t->is_sent = true; /* what is lost on the way ends with the child too */
    if (!link_send(r->fd, LINK_SUBMIT, t->number, parts, sizeof parts / sizeof *parts)) return;
}

static void send_flags(struct remote *r, struct ticket *t)
{
    uint32_t flags = (job_is_cancelled(&t->job) ? LINK_CANCELLED : 0) |
                     (atomic_load(&t->job.ends_thinking) ? LINK_ENDS_THINKING : 0) |
                     (job_is_paused(&t->job) ? LINK_PAUSED : 0);
    const struct link_part part = {&flags, sizeof flags};
    if (!t->is_sent || flags == t->told_flags) return;
    if (link_send(r->fd, LINK_FLAGS, t->number, &part, 1)) t->told_flags = flags;
}

/* Tickets stay open until this thread says that they are done, so none goes while the list is walked without the lock.
 */
static struct ticket *open_at(struct service *s, uint32_t i)
{
    pthread_mutex_lock(&s->lock);
    struct ticket *t = i < s->n_open ? s->open[i] : NULL;
    pthread_mutex_unlock(&s->lock);
    return t;
}

static struct ticket *find(struct service *s, uint32_t number)
{
    struct ticket *t;
    for (uint32_t i = 0; (t = open_at(s, i)); i++)
        if (t->number == number) return t;
    return NULL;
}

/* A job's form is made here: what is allowed is asked for over the stream. */
static void submit(struct remote *r, struct ticket *t)
{
    struct job_result result = {.reason = STOP_ERROR};
    if (engine_room_make_form(r->s, t, &result.err))
        send_job(r, t);
    else
        ticket_see_done(t, &result);
}

/* --- turns --- */

static bool is_pooled(const struct remote *r)
{
    return r->s->settings.pool != NULL;
}

static bool has_work(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    bool has = s->n_open > 0;
    pthread_mutex_unlock(&s->lock);
    return has;
}

static enum pool_word ask_pool(struct service *s)
{
    return engine_pool_ask(s->settings.pool, s->settings.pool_member, has_work(s));
}

/* Out of the inbox. NULL: none of them was cancelled. */
static struct ticket *take_cancelled(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    struct ticket **at = &s->inbox;
    while (*at && !job_is_cancelled(&(*at)->job)) at = &(*at)->next;
    struct ticket *t = *at;
    if (t) *at = t->next;
    if (t && !*at) s->inbox_end = at;
    pthread_mutex_unlock(&s->lock);
    return t;
}

/* Whoever leaves while waiting is not kept for a turn that may come late. */
static void end_cancelled(struct service *s)
{
    const struct job_result result = {.reason = STOP_CANCELLED};
    struct ticket *t;
    while ((t = take_cancelled(s))) ticket_see_done(t, &result);
}

static bool is_any_sent(struct service *s)
{
    struct ticket *t;
    for (uint32_t i = 0; (t = open_at(s, i)); i++)
        if (t->is_sent) return true;
    return false;
}

/* Whether the inbox may be sent now; and makes way if it is time to. */
static bool takes_inbox(struct remote *r)
{
    if (!is_pooled(r)) return true;
    end_cancelled(r->s);
    bool leaves = ask_pool(r->s) == POOL_LEAVE;
    if (!r->is_open || r->is_stopping) return false;
    if (!leaves || !r->had_turn) {
        r->had_turn = true;
        return true;
    }
    if (is_any_sent(r->s) || !engine_pool_end(r->s->settings.pool, r->s->settings.pool_member)) return false;
    r->is_stopping = r->leaves = link_send(r->fd, LINK_STOP, 0, NULL, 0);
    return false;
}

static void send_news(struct remote *r)
{
    struct service *s = r->s;
    bool takes = takes_inbox(r);
    pthread_mutex_lock(&s->lock);
    struct ticket *t = takes ? s->inbox : NULL;
    if (takes) {
        s->inbox = NULL;
        s->inbox_end = &s->inbox;
    }
    uint64_t budget_bytes = s->budget_bytes;
    bool stops = s->stops && s->n_open == 0 && !t;
    s->budget_bytes = 0;
    if (budget_bytes > 0) s->stats.budget_bytes = budget_bytes;
    pthread_mutex_unlock(&s->lock);
    while (t) {
        struct ticket *next = t->next;
        submit(r, t);
        t = next;
    }
    for (uint32_t i = 0; (t = open_at(s, i)); i++) send_flags(r, t);
    const struct link_part budget = {&budget_bytes, sizeof budget_bytes};
    bool ok = budget_bytes == 0 || link_send(r->fd, LINK_BUDGET, 0, &budget, 1);
    if (ok && stops && !r->is_stopping) r->is_stopping = link_send(r->fd, LINK_STOP, 0, NULL, 0);
}

/* --- from the engine --- */

static void change_state(struct service *s, enum service_state state, const struct err *err)
{
    pthread_mutex_lock(&s->lock);
    s->state = s->closes && state == SERVICE_READY ? SERVICE_STOPPING : state;
    if (s->settings.pool && state == SERVICE_RESTARTING) s->state = SERVICE_PARKED; /* when somebody asks for it */
    if (err) s->failure = *err;
    pthread_mutex_unlock(&s->lock);
    if (s->settings.changed) s->settings.changed(s->settings.context, state, err);
}

static void see_opened(struct remote *r)
{
    struct link_opened opened;
    struct service *s = r->s;
    if (!link_take(&r->payload, &opened, sizeof opened)) return;
    if (!opened.ok) {
        r->why = opened.err; /* and the child ends */
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->has_plan = opened.has_plan;
    s->plan = opened.plan;
    s->engine_pid = opened.pid;
    s->n_opened++;
    s->retry_ns = 0;
    pthread_mutex_unlock(&s->lock);
    r->was_open = r->is_open = true;
    change_state(s, SERVICE_READY, NULL);
}

/* The engine's numbers; those of requests are kept here. */
static void see_stats(struct remote *r)
{
    struct service_stats stats;
    struct service *s = r->s;
    if (!link_take(&r->payload, &stats, sizeof stats)) return;
    pthread_mutex_lock(&s->lock);
    const struct service_stats ours = s->stats;
    s->stats = stats;
    s->stats.decode_ns = ours.decode_ns;
    s->stats.n_decoded = ours.n_decoded;
    s->stats.last_tokens_per_second = ours.last_tokens_per_second;
    s->stats.masks = form_tables_stats(&s->forms);
    pthread_mutex_unlock(&s->lock);
}

static void answer_token(struct remote *r, struct ticket *t)
{
    struct sampled sampled;
    struct link_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    bool ok = link_take(&r->payload, &sampled, sizeof sampled);
    verdict.reason = ok ? t->job.events.token(t, &sampled) : STOP_ERROR;
    verdict.n_eos = t->rules.n_eos;
    const struct link_part parts[] = {{&verdict, sizeof verdict}, {t->rules.eos, verdict.n_eos * sizeof(uint32_t)}};
    reply(r, t, parts, 2);
}

static void answer_allowed(struct remote *r, struct ticket *t)
{
    const struct link_part part = {t->job.events.allowed(t), r->n_words * sizeof(uint64_t)};
    reply(r, t, &part, 1);
}

enum { FORCED_MAX = 64 };

static void answer_forced(struct remote *r, struct ticket *t)
{
    uint32_t n_max, ids[FORCED_MAX], n = 0;
    if (link_take(&r->payload, &n_max, sizeof n_max))
        n = t->job.events.forced(t, ids, n_max < FORCED_MAX ? n_max : FORCED_MAX);
    const struct link_part part = {ids, n * sizeof *ids};
    reply(r, t, &part, 1);
}

static void see_job_frame(struct remote *r, enum link_kind kind, struct ticket *t)
{
    struct job_progress progress;
    struct sampled sampled;
    struct job_result result;
    switch (kind) {
    case LINK_STARTED:
        if (link_take(&r->payload, &progress, sizeof progress)) t->job.events.started(t, &progress);
        break;
    case LINK_PROGRESS:
        if (link_take(&r->payload, &progress, sizeof progress)) t->job.events.progress(t, &progress);
        break;
    case LINK_PROMPT_TOKEN:
        if (link_take(&r->payload, &sampled, sizeof sampled)) ticket_see_prompt_token(t, &sampled);
        break;
    case LINK_TOKEN: answer_token(r, t); break;
    case LINK_ALLOWED: answer_allowed(r, t); break;
    case LINK_FORCED: answer_forced(r, t); break;
    case LINK_DONE:
        if (link_take(&r->payload, &result, sizeof result)) ticket_see_done(t, &result);
        break;
    default: break;
    }
}

/* False: the stream is at its end. */
static bool see_frame(struct remote *r)
{
    struct link_head head;
    struct err warning;
    if (!link_read(r->fd, &head, &r->payload)) return false;
    struct ticket *t = head.job ? find(r->s, head.job) : NULL;
    if (t)
        see_job_frame(r, head.kind, t);
    else if (head.kind == LINK_OPENED)
        see_opened(r);
    else if (head.kind == LINK_STATS)
        see_stats(r);
    else if (head.kind == LINK_WARNING && link_take(&r->payload, &warning, sizeof warning) && r->s->settings.warned)
        r->s->settings.warned(r->s->settings.context, &warning);
    return true;
}

/* --- its life --- */

static void drain_wakes(struct service *s)
{
    char drop[64];
    while (read(s->wake_fds[0], drop, sizeof drop) > 0) continue;
}

/* Until the engine may be opened. False: it is not wanted any more, and nothing is open. */
static bool wait_turn(struct remote *r)
{
    struct service *s = r->s;
    while (is_pooled(r)) {
        end_cancelled(s);
        pthread_mutex_lock(&s->lock);
        bool is_over = s->stops && s->n_open == 0;
        pthread_mutex_unlock(&s->lock);
        if (is_over) return false;
        /* A seat that others wait for already is a turn all the same, for those who wait here. */
        bool has_seat = ask_pool(s) != POOL_REST;
        if (has_seat && has_work(s)) break;
        if (has_seat) engine_pool_left(s->settings.pool, s->settings.pool_member);
        struct pollfd event = {.fd = s->wake_fds[0], .events = POLLIN};
        if (poll(&event, 1, -1) > 0) drain_wakes(s);
    }
    return true;
}

/* Until the stream ends. */
static void serve(struct remote *r)
{
    for (;;) {
        struct pollfd events[] = {{.fd = r->fd, .events = POLLIN}, {.fd = r->s->wake_fds[0], .events = POLLIN}};
        if (poll(events, 2, -1) < 0 && errno != EINTR) return;
        if (events[1].revents & POLLIN) drain_wakes(r->s);
        if (events[0].revents && !see_frame(r)) return;
        send_news(r);
    }
}

/* The process is gone, with everything it told. */
static void forget_child(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    s->engine_pid = 0;
    if (s->settings.pool) {
        s->has_plan = false;
        s->stats.scheduler.n_running = s->stats.scheduler.n_waiting = 0;
        s->stats.slots = (struct slots_stats){0};
    }
    pthread_mutex_unlock(&s->lock);
}

static void fail_all(struct service *s, const struct err *err)
{
    struct ticket *t;
    const struct job_result result = {.reason = STOP_ERROR, .err = *err};
    pthread_mutex_lock(&s->lock);
    s->inbox = NULL; /* they are open too */
    s->inbox_end = &s->inbox;
    pthread_mutex_unlock(&s->lock);
    while ((t = open_at(s, 0))) ticket_see_done(t, &result);
}

/* Those that wait for the next child are none the worse. */
static void fail_sent(struct service *s, const struct err *err)
{
    const struct job_result result = {.reason = STOP_ERROR, .err = *err};
    struct ticket *t;
    for (uint32_t i = 0; (t = open_at(s, i));)
        if (t->is_sent)
            ticket_see_done(t, &result); /* and another is at its place */
        else
            i++;
}

/* Its clients are told what kind of trouble it is; the log has the whole of it, which names files. */
static bool see_unopened(struct remote *r)
{
    struct service *s = r->s;
    struct err told;
    const char *why = "see the server's log";
    if (!is_pooled(r)) {
        change_state(s, SERVICE_FAILED, &r->why);
        return false;
    }
    if (r->why.kind == ERR_FIT) why = "it does not fit the memory budget";
    if (r->why.kind == ERR_DATA) why = "its files are damaged or not complete";
    err_set(&told, ERR_FAILED, "engine_unavailable: the model could not be opened: %s", why);
    pthread_mutex_lock(&s->lock);
    s->state = SERVICE_PARKED;
    s->failure = told;
    s->retry_ns = clock_now_ns(s->settings.clock) + RETRY_NS;
    pthread_mutex_unlock(&s->lock);
    if (s->settings.changed) s->settings.changed(s->settings.context, SERVICE_FAILED, &r->why);
    fail_all(s, &told);
    return true;
}

/* At most so many times in a while. */
static bool may_restart(struct remote *r, int64_t now)
{
    int64_t *oldest = &r->restarts[r->n_restarts % RESTARTS_MAX];
    if (r->n_restarts >= RESTARTS_MAX && now - *oldest < RESTARTS_WITHIN_NS) return false;
    *oldest = now;
    r->n_restarts++;
    return true;
}

static bool stops(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    bool does = s->stops;
    pthread_mutex_unlock(&s->lock);
    return does;
}

/* What to say, and whether to begin again. */
static bool see_end(struct remote *r)
{
    struct err err;
    struct service *s = r->s;
    char words[KEEPER_WORDS];
    keeper_wait(s->settings.keeper, words);
    forget_child(s);
    if (is_pooled(r)) engine_pool_left(s->settings.pool, s->settings.pool_member); /* its memory is back */
    if (r->leaves) {
        change_state(s, SERVICE_PARKED, NULL);
        return true;
    }
    if (stops(s) && r->is_stopping) return false;
    if (!r->was_open && r->why.kind != ERR_NONE) return see_unopened(r);
    bool again = !stops(s) && may_restart(r, clock_now_ns(s->settings.clock));
    err_set(&err, ERR_FAILED, "engine_unavailable: the engine's process %s%s%.150s; it %s", words,
            r->why.kind ? ": " : "", r->why.kind ? r->why.text : "",
            !again         ? "is not started again"
            : is_pooled(r) ? "is started again when something is asked of it"
                           : "is being started again");
    pthread_mutex_lock(&s->lock);
    s->n_restarts += again;
    pthread_mutex_unlock(&s->lock);
    change_state(s, again ? SERVICE_RESTARTING : SERVICE_DOWN, &err);
    if (again && is_pooled(r))
        fail_sent(s, &err);
    else
        fail_all(s, &err);
    return again;
}

static bool spawn(struct remote *r)
{
    struct service *s = r->s;
    struct err err = {0};
    r->why = (struct err){0};
    r->is_open = r->had_turn = r->leaves = r->is_stopping = false;
    if (is_pooled(r)) {
        r->was_open = false;
        change_state(s, SERVICE_LOADING, NULL);
    }
    if (keeper_spawn(s->settings.keeper, &r->fd, &err)) return true;
    if (is_pooled(r)) engine_pool_left(s->settings.pool, s->settings.pool_member);
    change_state(s, r->was_open || is_pooled(r) ? SERVICE_DOWN : SERVICE_FAILED, &err);
    fail_all(s, &err);
    return false;
}

void *service_remote_run(void *service)
{
    struct remote r = {.s = service, .n_words = (((struct service *)service)->settings.model->n_tokens + 63) / 64};
    buf_init(&r.payload, r.s->alloc, LINK_BYTES_MAX);
    while (wait_turn(&r)) {
        if (!spawn(&r)) break;
        serve(&r);
        close(r.fd);
        if (!see_end(&r)) break;
    }
    buf_fini(&r.payload);
    return NULL;
}
