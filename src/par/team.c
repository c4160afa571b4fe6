#include "par/team.h"

#include "base/assert.h"
#include "base/checked.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* How a loop runs.
 *
 * The caller writes the loop into the team, opens it, and takes chunks until none is left; workers that notice in time
 * take chunks too. Then the caller closes the loop and waits for the workers that are inside. It never waits for a
 * worker that slept through: a tiny loop costs no more than its own work.
 *
 *   1. A worker reads the loop only between inside += 1 and inside -= 1, and only if it saw is_open in between.
 *   2. The caller writes the loop only while is_open is false and inside was seen to be 0 after that.
 *      Both sides write their own flag first and read the other's after, in one total order, so one of them gives way.
 *   3. A waiter spins for SPIN_NS, then registers (sleeping, caller_sleeps) and looks once more under the lock before
 * it sleeps; whoever changes what it waits for looks at the register after the change. So no wake-up is lost.
 */
enum { SPIN_NS = 20000, SPINS_PER_LOOK = 32, CHUNKS_PER_THREAD = 4, THREADS_MAX = 1024, STACK_BYTES = 1 << 20 };

struct worker {
    pthread_t thread;
    struct team *team;
    unsigned number;
};

struct team {
    struct alloc *alloc;
    unsigned n_threads;
    unsigned n_started;     /* workers that exist; owner: the caller */
    struct worker *workers; /* [n_threads - 1] */

    /* The loop: written by the caller under rule 2, read by workers under rule 1. */
    team_fn *fn;
    void *context;
    size_t n_items, chunk, n_chunks;

    atomic_size_t next_chunk;
    atomic_uint inside;     /* workers in the loop */
    atomic_uint generation; /* of the loop; workers wait for it to change */
    atomic_uint sleeping;   /* workers that need a signal to notice that */
    atomic_bool is_open, caller_sleeps, stop;

    pthread_mutex_t lock; /* guards nothing but the two sleeps */
    pthread_cond_t wake, done;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_chunks(struct team *team, unsigned thread)
{
    while (true) {
        size_t chunk = atomic_fetch_add(&team->next_chunk, 1);
        if (chunk >= team->n_chunks) return;
        size_t begin = chunk * team->chunk;
        size_t left = team->n_items - begin;
        team->fn(team->context, begin, begin + (left < team->chunk ? left : team->chunk), thread);
    }
}

static void join_loop(struct team *team, unsigned thread)
{
    atomic_fetch_add(&team->inside, 1);
    if (atomic_load(&team->is_open)) take_chunks(team, thread);
    if (atomic_fetch_sub(&team->inside, 1) == 1 && atomic_load(&team->caller_sleeps)) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_signal(&team->done);
        pthread_mutex_unlock(&team->lock);
    }
}

static bool has_changed(struct team *team, unsigned seen)
{
    return atomic_load(&team->generation) != seen || atomic_load(&team->stop);
}

static void wait_for_loop(struct team *team, unsigned seen)
{
    uint64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (has_changed(team, seen)) return;
            relax();
        }
    } while (now_ns() < until);
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->sleeping, 1);
    while (!has_changed(team, seen)) pthread_cond_wait(&team->wake, &team->lock);
    atomic_fetch_sub(&team->sleeping, 1);
    pthread_mutex_unlock(&team->lock);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct team *team = worker->team;
    unsigned seen = 0;
    while (true) {
        wait_for_loop(team, seen);
        if (atomic_load(&team->stop)) return NULL;
        seen = atomic_load(&team->generation);
        join_loop(team, worker->number);
    }
}

static bool start_worker(struct team *team, unsigned number, const pthread_attr_t *attributes, struct err *err)
{
    struct worker *worker = &team->workers[number - 1];
    *worker = (struct worker){.team = team, .number = number};
    int failure = pthread_create(&worker->thread, attributes, work, worker);
    if (failure)
        return err_set(err, ERR_FAILED, "could not start thread %u of %u: %s; use fewer threads", number + 1,
                       team->n_threads, strerror(failure));
    team->n_started++;
    char name[32];
    snprintf(name, sizeof name, "weir-team-%u", number);
    pthread_setname_np(worker->thread, name); /* a name is a courtesy: failure changes nothing */
    return true;
}

/* Signals are for the thread that asked for them, so workers start with all of them blocked. */
static bool start_workers(struct team *team, struct err *err)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    bool ok = true;
    if (pthread_attr_init(&attributes) != 0) return err_set(err, ERR_NOMEM, "out of memory: no thread attributes");
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned number = 1; ok && number < team->n_threads; number++)
        ok = start_worker(team, number, &attributes, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return ok;
}

bool team_new(struct team **out, struct alloc *alloc, unsigned n_threads, struct err *err)
{
    *out = NULL;
    if (n_threads == 0 || n_threads > THREADS_MAX)
        return err_set(err, ERR_USER, "%u threads: the count goes from 1 to %d", n_threads, THREADS_MAX);
    struct team *team = alloc_get(alloc, sizeof *team, err);
    if (!team) return false;
    team->alloc = alloc;
    team->n_threads = n_threads;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    pthread_cond_init(&team->done, NULL);
    team->workers = alloc_get_array(alloc, n_threads - 1, sizeof *team->workers, err);
    if (!team->workers) goto fail;
    if (!start_workers(team, err)) goto fail;
    *out = team;
    return true;
fail:
    team_free(team);
    return false;
}

void team_free(struct team *team)
{
    if (!team) return;
    ASSERT(!atomic_load(&team->is_open)); /* freed from inside of its own loop */
    atomic_store(&team->stop, true);
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
    for (unsigned i = 0; i < team->n_started; i++) pthread_join(team->workers[i].thread, NULL);
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    alloc_put(team->alloc, team->workers);
    alloc_put(team->alloc, team);
}

unsigned team_threads(const struct team *team)
{
    return team->n_threads;
}

/* Wakes as many sleepers as there are chunks for. */
static void wake_workers(struct team *team)
{
    if (atomic_load(&team->sleeping) == 0) return;
    pthread_mutex_lock(&team->lock);
    size_t sleeping = atomic_load(&team->sleeping);
    size_t useful = team->n_chunks - 1;
    for (size_t i = 0; i < sleeping && i < useful; i++) pthread_cond_signal(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

static void wait_for_workers(struct team *team)
{
    uint64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load(&team->inside) == 0) return;
            relax();
        }
    } while (now_ns() < until);
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->caller_sleeps, true);
    while (atomic_load(&team->inside) != 0) pthread_cond_wait(&team->done, &team->lock);
    atomic_store(&team->caller_sleeps, false);
    pthread_mutex_unlock(&team->lock);
}

void team_run(struct team *team, size_t n_items, size_t grain, team_fn *fn, void *context)
{
    ASSERT(!atomic_load(&team->is_open)); /* a loop inside a loop */
    if (n_items == 0) return;
    /* More chunks than threads, so that a slow core or a late worker does not hold up the rest. */
    size_t chunk = (size_t)div_up(n_items, (uint64_t)team->n_threads * CHUNKS_PER_THREAD);
    if (chunk < grain) chunk = grain;
    if (team->n_threads == 1 || chunk >= n_items) {
        fn(context, 0, n_items, 0);
        return;
    }
    team->fn = fn;
    team->context = context;
    team->n_items = n_items;
    team->chunk = chunk;
    team->n_chunks = (size_t)div_up(n_items, chunk);
    atomic_store(&team->next_chunk, 0);
    atomic_store(&team->is_open, true);
    atomic_fetch_add(&team->generation, 1);
    wake_workers(team);
    take_chunks(team, 0);
    atomic_store(&team->is_open, false);
    wait_for_workers(team);
}
