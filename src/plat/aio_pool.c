/* One mutex guards both rings. A thread holds it only to take a read or to leave a result, never while it reads. */
#include "plat/aio.h"

#include "base/assert.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 64 };

/* A ring of `depth` places; both rings together never hold more than depth entries, so neither can overflow. */
struct span {
    unsigned first, n;
};

struct pool {
    struct aio aio;
    struct alloc *alloc;
    struct aio_read *reads;     /* [depth], guarded */
    struct aio_result *results; /* [depth], guarded */
    struct span waiting, ready; /* guarded */
    bool is_stopping;           /* guarded */
    bool has_lock;
    pthread_mutex_t lock;
    pthread_cond_t has_read, has_result;
    pthread_t threads[THREADS_MAX];
    unsigned n_threads;
};

static unsigned put_place(struct pool *pool, struct span *span)
{
    ASSERT(span->n < pool->aio.depth);
    return (span->first + span->n++) % pool->aio.depth;
}

static unsigned take_place(struct pool *pool, struct span *span)
{
    unsigned place = span->first;
    span->first = (place + 1) % pool->aio.depth;
    span->n--;
    return place;
}

static int64_t perform(const struct aio_read *read)
{
    const struct file *file = read->file;
    ssize_t got =
        file->fs.ops->pread(file->fs.context, read->descriptor, read->buffer, read->bytes, (off_t)read->offset);
    return got < 0 ? -errno : got;
}

static void *thread_main(void *context)
{
    struct pool *pool = context;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->waiting.n == 0 && !pool->is_stopping) pthread_cond_wait(&pool->has_read, &pool->lock);
        if (pool->waiting.n == 0) break;
        struct aio_read read = pool->reads[take_place(pool, &pool->waiting)];
        pthread_mutex_unlock(&pool->lock);
        int64_t result = perform(&read);
        pthread_mutex_lock(&pool->lock);
        pool->results[put_place(pool, &pool->ready)] = (struct aio_result){.op = read.op, .result = result};
        pthread_cond_signal(&pool->has_result);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void pool_start(struct aio *aio, const struct aio_read *read)
{
    struct pool *pool = (struct pool *)aio;
    pthread_mutex_lock(&pool->lock);
    pool->reads[put_place(pool, &pool->waiting)] = *read;
    pthread_cond_signal(&pool->has_read);
    pthread_mutex_unlock(&pool->lock);
}

static struct timespec deadline_after(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += t.tv_nsec;
    t.tv_sec += ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    return t;
}

static size_t pool_reap(struct aio *aio, struct aio_result *out, size_t room, int64_t wait_ns)
{
    struct pool *pool = (struct pool *)aio;
    struct timespec deadline = wait_ns > 0 ? deadline_after(wait_ns) : (struct timespec){0};
    size_t n = 0;
    pthread_mutex_lock(&pool->lock);
    while (pool->ready.n == 0 && wait_ns != 0) {
        int failure = wait_ns < 0 ? pthread_cond_wait(&pool->has_result, &pool->lock)
                                  : pthread_cond_timedwait(&pool->has_result, &pool->lock, &deadline);
        if (failure == ETIMEDOUT) break;
    }
    while (n < room && pool->ready.n > 0) out[n++] = pool->results[take_place(pool, &pool->ready)];
    pthread_mutex_unlock(&pool->lock);
    return n;
}

/* Only a read that no thread has taken can be called back; it gives its result at once. */
static void pool_cancel(struct aio *aio, uint32_t op)
{
    struct pool *pool = (struct pool *)aio;
    pthread_mutex_lock(&pool->lock);
    unsigned n = pool->waiting.n;
    for (unsigned i = 0; i < n; i++) { /* once around the ring keeps the order of the others */
        struct aio_read read = pool->reads[take_place(pool, &pool->waiting)];
        if (read.op == op)
            pool->results[put_place(pool, &pool->ready)] = (struct aio_result){.op = op, .result = -ECANCELED};
        else
            pool->reads[put_place(pool, &pool->waiting)] = read;
    }
    pthread_mutex_unlock(&pool->lock);
}

static void pool_free(struct aio *aio)
{
    struct pool *pool = (struct pool *)aio;
    if (pool->has_lock) {
        pthread_mutex_lock(&pool->lock);
        pool->is_stopping = true;
        pthread_cond_broadcast(&pool->has_read);
        pthread_mutex_unlock(&pool->lock);
        for (unsigned i = 0; i < pool->n_threads; i++) pthread_join(pool->threads[i], NULL);
        pthread_cond_destroy(&pool->has_result);
        pthread_cond_destroy(&pool->has_read);
        pthread_mutex_destroy(&pool->lock);
    }
    alloc_put(pool->alloc, pool->results);
    alloc_put(pool->alloc, pool->reads);
    alloc_put(pool->alloc, pool);
}

/* Signals are the business of the threads that handle them: readers start with all of them blocked. */
static int start_threads(struct pool *pool, unsigned n)
{
    sigset_t all, before;
    int failure = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->n_threads < n && !failure) {
        failure = pthread_create(&pool->threads[pool->n_threads], NULL, thread_main, pool);
        if (!failure) pool->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

bool aio_pool_new(struct aio **aio, struct alloc *alloc, unsigned depth, unsigned n_threads, struct err *err)
{
    static const struct aio_ops ops = {
        .name = "threads", .start = pool_start, .reap = pool_reap, .cancel = pool_cancel, .free = pool_free};
    ASSERT(depth > 0);
    ASSERT(n_threads > 0);
    struct pool *pool = alloc_get(alloc, sizeof *pool, err);
    if (!pool) return false;
    *pool = (struct pool){.aio = {&ops, depth}, .alloc = alloc};
    pool->reads = alloc_get_array(alloc, depth, sizeof *pool->reads, err);
    if (!pool->reads) goto fail;
    pool->results = alloc_get_array(alloc, depth, sizeof *pool->results, err);
    if (!pool->results) goto fail;

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->has_read, NULL);
    pthread_cond_init(&pool->has_result, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pool->has_lock = true;

    int failure = start_threads(pool, n_threads < THREADS_MAX ? n_threads : THREADS_MAX);
    if (pool->n_threads == 0) { /* one is enough to go on, only slower */
        err_set(err, ERR_FAILED, "cannot start a thread for reading: %s", strerror(failure));
        goto fail;
    }
    *aio = &pool->aio;
    return true;
fail:
    pool_free(&pool->aio);
    return false;
}
