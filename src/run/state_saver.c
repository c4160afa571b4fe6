/* States of an order: NONE -> (saver_begin) WORKING -> (the last step) DONE -> (saver_take) NONE.
 *
 *   1. `order` and `work` belong to whoever does the steps while the state is WORKING, and to the engine thread else.
 *   2. `state`, `rests` and `ends` are under the lock; a change of any of them wakes the thread. */
#include "run/state_saver.h"

#include "base/assert.h"
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum saver_state { SAVER_NONE, SAVER_WORKING, SAVER_DONE };

/* How far an order is. */
struct work {
    struct state_writer writer;
    bool has_writer, is_written;
    uint32_t n_removed; /* or tried */
    int64_t next_ns;    /* of the next step, when there are rests */
    struct saver_result result;
};

struct saver {
    struct alloc *alloc;
    struct saver_settings settings;
    struct saver_order order;
    struct work work;
    pthread_t thread;
    bool is_started;

    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t changed, done;
    enum saver_state state;
    bool rests, ends;
};

/* --- steps: by whoever owns the order --- */

bool saver_path(char path[SAVER_PATH_MAX], const char *dir, uint64_t name)
{
    return snprintf(path, SAVER_PATH_MAX, "%s/%016" PRIx64 SAVER_SUFFIX, dir, name) < SAVER_PATH_MAX;
}

static void remove_one(struct saver *s, uint64_t name)
{
    struct saver_result *r = &s->work.result;
    char path[SAVER_PATH_MAX];
    if (saver_path(path, s->order.dir, name) && file_remove(s->alloc, s->settings.ws, path, &r->not_removed)) return;
    r->n_not_removed++;
}

static bool write_step(struct saver *s)
{
    struct work *w = &s->work;
    const struct saver_order *o = &s->order;
    struct err *err = &w->result.err;
    if (!w->has_writer) {
        char path[SAVER_PATH_MAX];
        w->has_writer = true;
        if (!saver_path(path, o->dir, o->name)) return err_set(err, ERR_USER, "%s: the path is too long", o->dir);
        return state_writer_start(&w->writer, path, s->alloc, s->settings.ws, &o->identity, o->kv, o->ids, o->n, err);
    }
    if (!state_writer_step(&w->writer, &w->is_written, err)) return false;
    w->result.bytes = w->writer.bytes;
    /* Durable now, so that the system does not write all of it at once at a time of its own choosing. */
    return w->is_written || file_sync(&w->writer.file, err);
}

/* False: the order is done. */
static bool step(struct saver *s)
{
    struct work *w = &s->work;
    const struct saver_order *o = &s->order;
    if (w->n_removed < o->n_removes) {
        remove_one(s, o->removes[w->n_removed++]);
        return true;
    }
    if (o->kv && !w->is_written && write_step(s)) return true;
    w->result.ok = !o->kv || w->is_written;
    state_writer_abandon(&w->writer);
    return false;
}

/* A step, and when the next one is due if there are rests. */
static bool timed_step(struct saver *s)
{
    int64_t begin = clock_now_ns(s->settings.clock);
    bool goes_on = step(s);
    int64_t end = clock_now_ns(s->settings.clock), took = end - begin;
    struct saver_result *r = &s->work.result;
    r->ns += took;
    if (took > r->ns_longest) r->ns_longest = took;
    s->work.next_ns = end + took * (SAVER_SHARE - 1);
    return goes_on;
}

static void become_done(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    s->state = SAVER_DONE;
    pthread_cond_broadcast(&s->done);
    pthread_mutex_unlock(&s->lock);
    if (s->settings.wake) s->settings.wake(s->settings.context);
}

/* --- the thread --- */

/* Waits for a time, or until something changes. Under the lock. */
static void rest(struct saver *s, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t end = until.tv_nsec + ns % INT64_C(1000000000);
    until.tv_sec += (time_t)(ns / INT64_C(1000000000) + end / INT64_C(1000000000));
    until.tv_nsec = (long)(end % INT64_C(1000000000));
    pthread_cond_timedwait(&s->changed, &s->lock, &until);
}

/* Waits until a step is due. False: the thread is to end. */
static bool wait_for_work(struct saver *s)
{
    pthread_mutex_lock(&s->lock);
    for (;;) {
        if (s->state != SAVER_WORKING) {
            if (s->ends) break;
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        int64_t left = s->work.next_ns - clock_now_ns(s->settings.clock);
        if (!s->rests || s->ends || left <= 0) break;
        rest(s, left);
    }
    bool works = s->state == SAVER_WORKING;
    pthread_mutex_unlock(&s->lock);
    return works;
}

static void *run(void *context)
{
    struct saver *s = context;
    while (wait_for_work(s))
        if (!timed_step(s)) become_done(s);
    return NULL;
}

/* --- the engine thread's side --- */

/* Signals are for other threads. Returns 0 or an errno. */
static int start(struct saver *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    s->is_started = failed == 0;
    return failed;
}

bool saver_new(struct saver **saver, struct alloc *alloc, const struct saver_settings *settings, struct err *err)
{
    struct saver *s = alloc_get(alloc, sizeof *s, err);
    if (!s) return false;
    s->alloc = alloc;
    s->settings = *settings;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_cond_init(&s->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failed = settings->has_thread ? start(s) : 0;
    if (failed) {
        saver_free(s);
        return err_set(err, ERR_FAILED, "cannot start the thread that saves states: %s", strerror(failed));
    }
    *saver = s;
    return true;
}

void saver_free(struct saver *saver)
{
    struct saver *s = saver;
    if (!s) return;
    saver_finish(s);
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->is_started) pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    alloc_put(s->alloc, s);
}

static enum saver_state state_of(const struct saver *saver)
{
    struct saver *s = (struct saver *)saver; /* for its lock */
    pthread_mutex_lock(&s->lock);
    enum saver_state state = s->state;
    pthread_mutex_unlock(&s->lock);
    return state;
}

void saver_begin(struct saver *saver, const struct saver_order *order)
{
    ASSERT(state_of(saver) == SAVER_NONE);
    saver->order = *order;
    saver->work = (struct work){.next_ns = 0};
    pthread_mutex_lock(&saver->lock);
    saver->state = SAVER_WORKING;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

bool saver_is_busy(const struct saver *saver)
{
    return state_of(saver) != SAVER_NONE;
}

void saver_set_restful(struct saver *saver, bool rests)
{
    pthread_mutex_lock(&saver->lock);
    bool is_new = saver->rests != rests;
    saver->rests = rests;
    if (is_new) pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->lock);
}

void saver_poll(struct saver *saver)
{
    if (saver->is_started || saver->state != SAVER_WORKING) return;
    if (saver->rests && clock_now_ns(saver->settings.clock) < saver->work.next_ns) return;
    if (!timed_step(saver)) become_done(saver);
}

bool saver_take(struct saver *saver, struct saver_result *result)
{
    if (state_of(saver) != SAVER_DONE) return false;
    *result = saver->work.result;
    pthread_mutex_lock(&saver->lock);
    saver->state = SAVER_NONE;
    pthread_mutex_unlock(&saver->lock);
    return true;
}

void saver_finish(struct saver *saver)
{
    bool rested = saver->rests;
    saver_set_restful(saver, false);
    while (!saver->is_started && saver->state == SAVER_WORKING) saver_poll(saver);
    pthread_mutex_lock(&saver->lock);
    while (saver->state == SAVER_WORKING) pthread_cond_wait(&saver->done, &saver->lock);
    pthread_mutex_unlock(&saver->lock);
    saver_set_restful(saver, rested);
}
