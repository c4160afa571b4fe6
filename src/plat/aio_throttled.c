/* A device that is no faster than it is told to be.
 *
 * Attempts go on to the real device at once, and what they gave is held back until a disk that serves one after the
 * other at the set pace would have given it. So reads run beside work as they do on a slow disk. */
#include "base/assert.h"
#include "plat/aio.h"

struct attempt {
    enum { PLACE_FREE, PLACE_FLYING, PLACE_LANDED } state;
    uint32_t op;
    int64_t due_ns, cost_ns;
    int64_t result; /* landed */
};

struct throttled {
    struct aio aio;
    struct alloc *alloc;
    struct aio *under;
    const struct aio_pace *pace;
    struct clock clock;
    int64_t free_ns;          /* when the slow disk has served all that was started */
    struct attempt *attempts; /* [depth] */
    struct aio_result *given; /* [depth] by the device under it, in one call */
};

static struct attempt *find(struct throttled *t, uint32_t op)
{
    for (unsigned i = 0; i < t->aio.depth; i++)
        if (t->attempts[i].state != PLACE_FREE && t->attempts[i].op == op) return &t->attempts[i];
    return NULL;
}

static void throttled_start(struct aio *aio, const struct aio_read *read)
{
    struct throttled *t = (struct throttled *)aio;
    struct attempt *a = t->attempts;
    int64_t now_ns = clock_now_ns(t->clock), cost_ns = 0;
    while (a < t->attempts + aio->depth && a->state != PLACE_FREE) a++;
    ASSERT(a < t->attempts + aio->depth);
    if (t->pace->bytes_per_s > 0) cost_ns = (int64_t)((double)read->bytes * 1e9 / (double)t->pace->bytes_per_s);
    if (t->free_ns < now_ns) t->free_ns = now_ns;
    t->free_ns += cost_ns;
    *a = (struct attempt){.state = PLACE_FLYING, .op = read->op, .due_ns = t->free_ns, .cost_ns = cost_ns};
    t->under->ops->start(t->under, read);
}

static void throttled_flush(struct aio *aio)
{
    struct throttled *t = (struct throttled *)aio;
    if (t->under->ops->flush) t->under->ops->flush(t->under);
}

/* Takes what the device under it gave. */
static void take_landed(struct throttled *t, int64_t wait_ns)
{
    size_t n = t->under->ops->reap(t->under, t->given, t->aio.depth, wait_ns);
    for (size_t i = 0; i < n; i++) {
        struct attempt *a = find(t, t->given[i].op);
        ASSERT(a);
        a->state = PLACE_LANDED;
        a->result = t->given[i].result;
    }
}

static size_t give_due(struct throttled *t, struct aio_result *out, size_t room)
{
    int64_t now_ns = clock_now_ns(t->clock);
    size_t n = 0;
    for (unsigned i = 0; i < t->aio.depth && n < room; i++) {
        struct attempt *a = &t->attempts[i];
        if (a->state != PLACE_LANDED || a->due_ns > now_ns) continue;
        out[n++] = (struct aio_result){.op = a->op, .result = a->result};
        a->state = PLACE_FREE;
    }
    return n;
}

/* When the first of what landed may be given; INT64_MAX: nothing landed. */
static int64_t first_due(const struct throttled *t, bool *is_flying)
{
    int64_t due_ns = INT64_MAX;
    *is_flying = false;
    for (unsigned i = 0; i < t->aio.depth; i++) {
        const struct attempt *a = &t->attempts[i];
        *is_flying = *is_flying || a->state == PLACE_FLYING;
        if (a->state == PLACE_LANDED && a->due_ns < due_ns) due_ns = a->due_ns;
    }
    return due_ns;
}

static size_t throttled_reap(struct aio *aio, struct aio_result *out, size_t room, int64_t wait_ns)
{
    struct throttled *t = (struct throttled *)aio;
    int64_t end_ns = wait_ns < 0 ? INT64_MAX : clock_now_ns(t->clock) + wait_ns;
    for (;;) {
        bool is_flying;
        take_landed(t, 0);
        size_t n = give_due(t, out, room);
        int64_t now_ns = clock_now_ns(t->clock), until_ns = first_due(t, &is_flying);
        if (n > 0 || now_ns >= end_ns || (!is_flying && until_ns == INT64_MAX)) return n;
        if (until_ns > end_ns) until_ns = end_ns;
        if (is_flying)
            take_landed(t, until_ns == INT64_MAX ? -1 : until_ns > now_ns ? until_ns - now_ns : 0);
        else if (until_ns > now_ns)
            clock_sleep_ns(t->clock, until_ns - now_ns);
    }
}

/* What the slow disk has not yet read of it, it need not read: those behind it come sooner. */
static void throttled_cancel(struct aio *aio, uint32_t op)
{
    struct throttled *t = (struct throttled *)aio;
    struct attempt *a = find(t, op);
    int64_t now_ns = clock_now_ns(t->clock);
    ASSERT(a);
    int64_t left_ns = a->due_ns - now_ns < a->cost_ns ? a->due_ns - now_ns : a->cost_ns;
    if (left_ns > 0) {
        for (unsigned i = 0; i < aio->depth; i++)
            if (t->attempts[i].due_ns > a->due_ns) t->attempts[i].due_ns -= left_ns;
        t->free_ns -= left_ns;
        a->due_ns = now_ns;
    }
    if (a->state == PLACE_FLYING && t->under->ops->cancel) t->under->ops->cancel(t->under, op);
}

static int throttled_register_file(struct aio *aio, int descriptor)
{
    struct throttled *t = (struct throttled *)aio;
    return t->under->ops->register_file ? t->under->ops->register_file(t->under, descriptor) : -1;
}

static bool throttled_register_memory(struct aio *aio, void *base, uint64_t bytes, struct err *reason)
{
    struct throttled *t = (struct throttled *)aio;
    if (!t->under->ops->register_memory) return err_set(reason, ERR_FAILED, "the device has no use for it");
    return t->under->ops->register_memory(t->under, base, bytes, reason);
}

static void throttled_unregister_memory(struct aio *aio)
{
    struct throttled *t = (struct throttled *)aio;
    if (t->under->ops->unregister_memory) t->under->ops->unregister_memory(t->under);
}

static void throttled_free(struct aio *aio)
{
    struct throttled *t = (struct throttled *)aio;
    for (unsigned i = 0; i < aio->depth; i++) ASSERT(t->attempts[i].state == PLACE_FREE);
    t->under->ops->free(t->under);
    alloc_put(t->alloc, t->given);
    alloc_put(t->alloc, t->attempts);
    alloc_put(t->alloc, t);
}

bool aio_throttled_new(struct aio **aio, struct alloc *alloc, struct aio *under, const struct aio_pace *pace,
                       struct clock clock, struct err *err)
{
    static const struct aio_ops ops = {
        .name = "throttled",
        .start = throttled_start,
        .flush = throttled_flush,
        .reap = throttled_reap,
        .cancel = throttled_cancel,
        .register_file = throttled_register_file,
        .register_memory = throttled_register_memory,
        .unregister_memory = throttled_unregister_memory,
        .free = throttled_free,
    };
    struct throttled *t = alloc_get(alloc, sizeof *t, err);
    if (!t) goto fail;
    *t = (struct throttled){.aio = {&ops, under->depth}, .alloc = alloc, .under = under, .pace = pace, .clock = clock};
    t->attempts = alloc_get_array(alloc, under->depth, sizeof *t->attempts, err);
    t->given = alloc_get_array(alloc, under->depth, sizeof *t->given, err);
    if (!t->attempts || !t->given) goto fail;
    *aio = &t->aio;
    return true;
fail:
    if (t) {
        alloc_put(alloc, t->given);
        alloc_put(alloc, t->attempts);
    }
    alloc_put(alloc, t);
    under->ops->free(under);
    return false;
}
