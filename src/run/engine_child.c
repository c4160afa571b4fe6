/* Two threads: the reader takes frames, sets flags and hands over jobs and replies; the engine thread does all the
 * rest, and is the only one that sends. `lock` covers what they share. */
#include "run/engine_child.h"

#include "base/assert.h"
#include "run/engine_link.h"
#include "run/logprob.h"
#include "run/service_int.h"
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { ENDS_MAX = CONFIG_EOS_MAX + 2 };

struct engine_child;

struct child_job {
    struct engine_child *child;
    struct child_job *next, *next_new; /* in child->jobs; in child->inbox */
    uint32_t number;
    struct link_job told;
    struct job job;
    struct sampler_rules rules;
    uint32_t ends[ENDS_MAX];
    uint32_t *lists; /* [prompt, ends, banned, bias, stop ids], as they came */
    uint64_t *mask;
};

struct engine_child {
    int fd;
    struct alloc *alloc;
    struct service *room; /* engine, scheduler and numbers; nobody submits to it */
    uint32_t n_words;
    struct buf answer; /* the reply that the engine thread looks at */

    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t replied;
    struct child_job *jobs, *inbox, **inbox_end;
    uint32_t *refused, n_refused; /* [n_refused] jobs that could not be taken; room for all that may be open */
    struct buf reply;
    bool has_reply, is_gone, stops;
};

static void free_job(struct child_job *j)
{
    alloc_put(j->child->alloc, j->mask);
    alloc_put(j->child->alloc, j->lists);
    alloc_put(j->child->alloc, j);
}

/* --- the reader --- */

static void set_flags(struct child_job *j, uint32_t flags)
{
    if (flags & LINK_CANCELLED) job_cancel(&j->job);
    if (flags & LINK_ENDS_THINKING) job_end_thinking(&j->job);
    if (flags & LINK_PAUSED)
        job_pause(&j->job);
    else
        job_resume(&j->job);
}

static void see_flags(struct engine_child *c, uint32_t number, const struct buf *payload)
{
    uint32_t flags;
    if (!link_take(payload, &flags, sizeof flags)) return;
    pthread_mutex_lock(&c->lock);
    for (struct child_job *j = c->jobs; j; j = j->next)
        if (j->number == number) set_flags(j, flags);
    pthread_mutex_unlock(&c->lock);
    service_nudge(c->room);
}

static bool fill_job(struct child_job *j, const struct buf *payload)
{
    struct link_job *told = &j->told;
    if (payload->bytes < sizeof *told) return false;
    memcpy(told, payload->data, sizeof *told);
    size_t n_words = (size_t)told->n_prompt + told->n_eos + told->n_banned + told->n_stop_ids;
    size_t bias_at = n_words * sizeof(uint32_t), bytes = bias_at + told->n_bias * sizeof(struct logit_bias);
    if (payload->bytes != sizeof *told + bytes || told->n_eos > ENDS_MAX) return false;
    j->lists = alloc_get(j->child->alloc, bytes, NULL);
    if (!j->lists) return false;
    memcpy(j->lists, payload->data + sizeof *told, bytes);
    if (told->has_form) j->mask = alloc_get_array(j->child->alloc, j->child->n_words, sizeof *j->mask, NULL);
    return !told->has_form || j->mask;
}

/* NULL: it cannot be taken. */
static struct child_job *make_child_job(struct engine_child *c, uint32_t number, const struct buf *payload)
{
    struct child_job *j = alloc_get(c->alloc, sizeof *j, NULL);
    if (!j) return NULL;
    j->child = c;
    j->number = number;
    if (fill_job(j, payload)) return j;
    free_job(j);
    return NULL;
}

/* That it ends is told by the engine thread, which takes no memory for it. */
static void refuse(struct engine_child *c, uint32_t number)
{
    pthread_mutex_lock(&c->lock);
    ASSERT(c->n_refused < service_open_max(c->room));
    c->refused[c->n_refused++] = number;
    pthread_mutex_unlock(&c->lock);
}

static void enqueue(struct engine_child *c, struct child_job *j)
{
    pthread_mutex_lock(&c->lock);
    j->next = c->jobs;
    c->jobs = j;
    *c->inbox_end = j;
    c->inbox_end = &j->next_new;
    pthread_mutex_unlock(&c->lock);
}

static void see_submit(struct engine_child *c, uint32_t number, const struct buf *payload)
{
    struct child_job *j = make_child_job(c, number, payload);
    if (j)
        enqueue(c, j);
    else
        refuse(c, number);
    service_nudge(c->room);
}

static void see_reply(struct engine_child *c, struct buf *payload)
{
    pthread_mutex_lock(&c->lock);
    struct buf before = c->reply;
    c->reply = *payload;
    *payload = before;
    c->has_reply = true;
    pthread_cond_signal(&c->replied);
    pthread_mutex_unlock(&c->lock);
}

/* Everything that goes on is for nobody. */
static void see_end(struct engine_child *c, bool is_gone)
{
    pthread_mutex_lock(&c->lock);
    c->stops = true;
    c->is_gone = is_gone;
    for (struct child_job *j = c->jobs; j; j = j->next) job_cancel(&j->job);
    pthread_cond_signal(&c->replied);
    pthread_mutex_unlock(&c->lock);
    service_nudge(c->room);
}

static void see_budget(struct engine_child *c, const struct buf *payload)
{
    uint64_t bytes;
    if (!link_take(payload, &bytes, sizeof bytes)) return;
    pthread_mutex_lock(&c->room->lock);
    c->room->budget_bytes = bytes;
    pthread_mutex_unlock(&c->room->lock);
    service_nudge(c->room);
}

static void *read_frames(void *context)
{
    struct engine_child *c = context;
    struct link_head head;
    struct buf payload;
    buf_init(&payload, c->alloc, LINK_BYTES_MAX);
    bool goes_on = true;
    while (goes_on && link_read(c->fd, &head, &payload)) {
        switch (head.kind) {
        case LINK_SUBMIT: see_submit(c, head.job, &payload); break;
        case LINK_FLAGS: see_flags(c, head.job, &payload); break;
        case LINK_REPLY: see_reply(c, &payload); break;
        case LINK_BUDGET: see_budget(c, &payload); break;
        case LINK_STOP: goes_on = false; break;
        default: goes_on = false; break;
        }
    }
    see_end(c, goes_on);
    buf_fini(&payload);
    return NULL;
}

/* --- what the scheduler tells, on the engine thread --- */

static void tell(struct child_job *j, enum link_kind kind, const void *data, size_t bytes)
{
    const struct link_part part = {data, bytes};
    if (!link_send(j->child->fd, kind, j->number, &part, 1)) job_cancel(&j->job);
}

/* The answer to what was asked is in child->answer; false: there is nobody to answer. */
static bool ask(struct child_job *j, enum link_kind kind, const void *data, size_t bytes)
{
    struct engine_child *c = j->child;
    pthread_mutex_lock(&c->lock);
    c->has_reply = false;
    pthread_mutex_unlock(&c->lock);
    tell(j, kind, data, bytes);
    pthread_mutex_lock(&c->lock);
    while (!c->has_reply && !c->is_gone) pthread_cond_wait(&c->replied, &c->lock);
    bool ok = c->has_reply;
    struct buf before = c->answer;
    if (ok) c->answer = c->reply, c->reply = before;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static void see_started(void *context, const struct job_progress *progress)
{
    tell(context, LINK_STARTED, progress, sizeof *progress);
}

static void see_progress(void *context, const struct job_progress *progress)
{
    tell(context, LINK_PROGRESS, progress, sizeof *progress);
}

static enum stop_reason see_token(void *context, const struct sampled *sampled)
{
    struct child_job *j = context;
    struct link_verdict verdict;
    if (!ask(j, LINK_TOKEN, sampled, sizeof *sampled)) return STOP_CANCELLED;
    const struct buf *answer = &j->child->answer;
    if (answer->bytes < sizeof verdict) return STOP_ERROR;
    memcpy(&verdict, answer->data, sizeof verdict);
    if (verdict.n_eos > ENDS_MAX || answer->bytes != sizeof verdict + verdict.n_eos * sizeof *j->ends)
        return STOP_ERROR;
    memcpy(j->ends, answer->data + sizeof verdict, verdict.n_eos * sizeof *j->ends);
    j->rules.n_eos = verdict.n_eos;
    return verdict.reason;
}

static const uint64_t *see_allowed(void *context)
{
    struct child_job *j = context;
    if (!ask(j, LINK_ALLOWED, NULL, 0) || !link_take(&j->child->answer, j->mask, j->child->n_words * sizeof *j->mask))
        memset(j->mask, 0, j->child->n_words * sizeof *j->mask);
    return j->mask;
}

static uint32_t see_forced(void *context, uint32_t *ids, uint32_t n_max)
{
    struct child_job *j = context;
    if (!ask(j, LINK_FORCED, &n_max, sizeof n_max)) return 0;
    size_t n = j->child->answer.bytes / sizeof *ids;
    return n <= n_max && link_take(&j->child->answer, ids, n * sizeof *ids) ? (uint32_t)n : 0;
}

static bool see_prompt_logits(void *context, uint32_t position, const float *logits, struct err *err)
{
    struct child_job *j = context;
    struct sampled sampled;
    uint32_t next = position + 1;
    if (next >= j->job.n_prompt) return true;
    memset(&sampled, 0, sizeof sampled); /* its padding travels too */
    sampled.id = j->job.prompt[next];
    uint32_t n_tokens = j->child->room->settings.model->n_tokens;
    if (!logprob_row(&sampled.logprobs, logits, n_tokens, sampled.id, j->told.n_top_logprobs, err)) return false;
    tell(j, LINK_PROMPT_TOKEN, &sampled, sizeof sampled);
    return true;
}

static void forget(struct child_job *j)
{
    struct engine_child *c = j->child;
    pthread_mutex_lock(&c->lock);
    struct child_job **at = &c->jobs;
    while (*at != j) at = &(*at)->next;
    *at = j->next;
    pthread_mutex_unlock(&c->lock);
    free_job(j);
}

static void see_done(void *context, const struct job_result *result)
{
    struct child_job *j = context;
    tell(j, LINK_DONE, result, sizeof *result);
    forget(j);
}

/* --- the engine thread --- */

static void make_job(struct child_job *j)
{
    struct link_job *told = &j->told;
    const uint32_t *prompt = j->lists, *ends = prompt + told->n_prompt, *banned = ends + told->n_eos;
    const uint32_t *stop_ids = banned + told->n_banned;
    if (told->n_eos) memcpy(j->ends, ends, told->n_eos * sizeof *ends);
    told->sampling.stop_ids = stop_ids;
    told->sampling.bias = (const struct logit_bias *)(const void *)(stop_ids + told->n_stop_ids);
    told->sampling.stop = NULL; /* strings are looked for where the text is */
    told->sampling.n_stop = 0;
    j->rules = (struct sampler_rules){.sampling = &told->sampling,
                                      .key = told->key,
                                      .order = told->order,
                                      .eos = j->ends,
                                      .n_eos = told->n_eos,
                                      .banned = banned,
                                      .n_banned = told->n_banned,
                                      .wants_logprobs = told->wants_logprobs,
                                      .n_top_logprobs = told->n_top_logprobs};
    j->job.prompt = prompt;
    j->job.n_prompt = told->n_prompt;
    j->job.rules = &j->rules;
    j->job.priority = told->priority;
    j->job.thinking = told->thinking;
    j->job.events = (struct job_events){
        .context = j, .started = see_started, .progress = see_progress, .token = see_token, .done = see_done};
    if (told->has_form) j->job.events.allowed = see_allowed;
    if (told->has_form) j->job.events.forced = see_forced;
    if (told->wants_prompt) j->job.events.prompt_logits = see_prompt_logits;
}

static bool next_refused(struct engine_child *c, uint32_t *number)
{
    pthread_mutex_lock(&c->lock);
    bool is_there = c->n_refused > 0;
    if (is_there) *number = c->refused[--c->n_refused];
    pthread_mutex_unlock(&c->lock);
    return is_there;
}

static void end_refused(struct engine_child *c)
{
    uint32_t number;
    struct job_result result = {.reason = STOP_ERROR};
    const struct link_part part = {&result, sizeof result};
    err_set(&result.err, ERR_NOMEM, "the engine's process has no memory for this request");
    while (next_refused(c, &number))
        if (!link_send(c->fd, LINK_DONE, number, &part, 1)) return; /* the reader hears of it too */
}

/* False: it is told to stop, and nothing is left. */
static bool take_jobs(struct engine_child *c)
{
    pthread_mutex_lock(&c->lock);
    struct child_job *j = c->inbox;
    c->inbox = NULL;
    c->inbox_end = &c->inbox;
    bool ends = c->stops && !c->jobs;
    pthread_mutex_unlock(&c->lock);
    end_refused(c);
    while (j) {
        struct child_job *next = j->next_new;
        struct job_result result = {.reason = STOP_ERROR};
        make_job(j);
        if (!scheduler_submit(c->room->scheduler, &j->job, &result.err)) see_done(j, &result);
        j = next;
    }
    return !ends;
}

static void send_numbers(struct engine_child *c)
{
    struct service_stats stats;
    service_stats(c->room, &stats);
    const struct link_part part = {&stats, sizeof stats};
    if (!link_send(c->fd, LINK_STATS, 0, &part, 1)) return; /* the reader hears of it too */
}

static void see_warning(void *context, const struct err *warning)
{
    struct engine_child *c = context;
    const struct link_part part = {warning, sizeof *warning};
    if (!link_send(c->fd, LINK_WARNING, 0, &part, 1)) return;
}

static bool tell_opened(struct engine_child *c, bool ok, const struct err *err)
{
    struct link_opened opened = {.ok = ok, .pid = (uint32_t)getpid()};
    if (!ok) opened.err = *err;
    opened.has_plan = ok && c->room->has_plan;
    if (opened.has_plan) opened.plan = c->room->plan;
    const struct link_part part = {&opened, sizeof opened};
    return link_send(c->fd, LINK_OPENED, 0, &part, 1);
}

static void work(struct engine_child *c)
{
    bool is_idle = false;
    do {
        engine_room_wait(c->room, is_idle);
        if (!take_jobs(c)) break;
        is_idle = !scheduler_step(c->room->scheduler);
        engine_room_publish(c->room);
        send_numbers(c);
        engine_room_warn(c->room);
    } while (true);
}

bool engine_child_run(int fd, struct alloc *alloc, const struct service_settings *settings, struct err *err)
{
    struct engine_child c = {.fd = fd, .alloc = alloc, .n_words = (settings->model->n_tokens + 63) / 64};
    struct service_settings with = *settings;
    pthread_t reader;
    c.inbox_end = &c.inbox;
    with.context = &c;
    with.changed = NULL;
    with.warned = see_warning;
    with.keeper = NULL;
    with.pool = NULL;
    if (!service_make(&c.room, alloc, &with, err)) return false;
    c.refused = alloc_get_array(alloc, service_open_max(c.room), sizeof *c.refused, err);
    if (!c.refused) {
        service_free(c.room);
        return false;
    }
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.replied, NULL);
    buf_init(&c.answer, alloc, LINK_BYTES_MAX);
    buf_init(&c.reply, alloc, LINK_BYTES_MAX);
    bool ok = engine_room_open(c.room, err), is_heard = tell_opened(&c, ok, err);
    if (ok && is_heard) {
        engine_room_publish(c.room);
        int failed = pthread_create(&reader, NULL, read_frames, &c);
        ok = !failed || err_set(err, ERR_FAILED, "cannot start a thread: %s", strerror(failed));
        if (ok) {
            send_numbers(&c);
            work(&c);
            pthread_join(reader, NULL);
        }
    }
    engine_room_close(c.room);
    ASSERT(!c.jobs);
    buf_fini(&c.answer);
    buf_fini(&c.reply);
    pthread_cond_destroy(&c.replied);
    pthread_mutex_destroy(&c.lock);
    alloc_put(alloc, c.refused);
    service_free(c.room);
    return ok;
}
