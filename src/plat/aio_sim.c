#include "plat/aio.h"

#include "base/assert.h"
#include <errno.h>
#include <string.h>

struct attempt {
    struct aio_read read;
    int64_t due_ns;
    bool is_flying, is_cancelled;
};

struct sim_device {
    struct aio aio;
    struct alloc *alloc;
    struct aio_sim *sim;
    struct sim_clock *clock;
    uint64_t random;
    struct attempt *attempts; /* [depth] */
};

static uint64_t next_random(struct sim_device *d)
{
    uint64_t z = d->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool happens(struct sim_device *d, unsigned chance)
{
    return next_random(d) % 1000 < chance;
}

static void sim_start(struct aio *aio, const struct aio_read *read)
{
    struct sim_device *d = (struct sim_device *)aio;
    struct attempt *a = d->attempts;
    while (a->is_flying) a++;
    ASSERT(a < d->attempts + aio->depth);
    uint64_t span = (uint64_t)(d->sim->delay_ns_max - d->sim->delay_ns_min) + 1;
    int64_t delay_ns = d->sim->delay_ns_min + (int64_t)(next_random(d) % span);
    *a = (struct attempt){.read = *read, .due_ns = d->clock->now_ns + delay_ns, .is_flying = true};
    memset(read->buffer, 0xa5, read->bytes);
    d->sim->n_attempts++;
    if (++d->sim->n_flying > d->sim->n_flying_max) d->sim->n_flying_max = d->sim->n_flying;
}

static int64_t perform(struct sim_device *d, const struct attempt *a)
{
    struct aio_sim *sim = d->sim;
    const struct aio_read *read = &a->read;
    if (a->is_cancelled) {
        sim->n_cancelled++;
        return -ECANCELED;
    }
    int fault = sim->fault ? sim->fault(sim->fault_context, read) : 0;
    if (!fault && happens(d, sim->eio_chance)) fault = EIO;
    if (!fault && happens(d, sim->interrupt_chance)) fault = EINTR;
    if (fault) {
        if (fault == EIO) sim->n_eio++;
        return -fault;
    }
    size_t bytes = read->bytes;
    if (bytes > 1 && happens(d, sim->short_chance)) bytes = 1 + next_random(d) % (bytes - 1);
    const struct file *file = read->file;
    ssize_t got = file->fs.ops->pread(file->fs.context, read->descriptor, read->buffer, bytes, (off_t)read->offset);
    if (got < 0) return -errno;
    sim->n_bytes += (uint64_t)got;
    return got;
}

static size_t sim_reap(struct aio *aio, struct aio_result *out, size_t room, int64_t wait_ns)
{
    struct sim_device *d = (struct sim_device *)aio;
    size_t n = 0;
    int64_t deadline_ns = wait_ns < 0 ? INT64_MAX : d->clock->now_ns + wait_ns;
    while (n < room) {
        struct attempt *first = NULL;
        for (struct attempt *a = d->attempts; a < d->attempts + aio->depth; a++)
            if (a->is_flying && (!first || a->due_ns < first->due_ns)) first = a;
        if (!first || first->due_ns > deadline_ns || (n > 0 && first->due_ns > d->clock->now_ns)) break;
        if (first->due_ns > d->clock->now_ns) d->clock->now_ns = first->due_ns;
        out[n++] = (struct aio_result){.op = first->read.op, .result = perform(d, first)};
        first->is_flying = false;
        d->sim->n_flying--;
    }
    if (n == 0 && wait_ns > 0) d->clock->now_ns = deadline_ns;
    return n;
}

static void sim_cancel(struct aio *aio, uint32_t op)
{
    struct sim_device *d = (struct sim_device *)aio;
    for (struct attempt *a = d->attempts; a < d->attempts + aio->depth; a++)
        if (a->is_flying && a->read.op == op) a->is_cancelled = happens(d, 500);
}

static void sim_free(struct aio *aio)
{
    struct sim_device *d = (struct sim_device *)aio;
    ASSERT(d->sim->n_flying == 0);
    alloc_put(d->alloc, d->attempts);
    alloc_put(d->alloc, d);
}

bool aio_sim_new(struct aio **aio, struct alloc *alloc, unsigned depth, struct aio_sim *sim, struct sim_clock *clock,
                 struct err *err)
{
    static const struct aio_ops ops = {
        .name = "simulated", .start = sim_start, .reap = sim_reap, .cancel = sim_cancel, .free = sim_free};
    ASSERT(depth > 0);
    ASSERT(sim->delay_ns_min <= sim->delay_ns_max);
    struct sim_device *d = alloc_get(alloc, sizeof *d, err);
    if (!d) return false;
    *d = (struct sim_device){.aio = {&ops, depth}, .alloc = alloc, .sim = sim, .clock = clock, .random = sim->seed};
    d->attempts = alloc_get_array(alloc, depth, sizeof *d->attempts, err);
    if (!d->attempts) goto fail;
    *aio = &d->aio;
    return true;
fail:
    alloc_put(alloc, d);
    return false;
}
