/* The life of a request, and the function that moves it on:
 *
 *   FREE -- reader_submit --> QUEUED -- take_off --> FLYING -- settle --> DONE -- fetch --> FREE
 *                               ^                      |
 *                               |<-- put_back ---------|  short or interrupted: at once, in front
 *                               |<-- wake -- PAUSED <--|  EIO: after a pause, at most RETRIES_MAX times
 *
 * A cancelled request goes from QUEUED or PAUSED to DONE at once, from FLYING when its attempt has come back.
 *
 * 1. Every request is in exactly one state, and in a list exactly when it is FREE, QUEUED or DONE.
 * 2. n_flying <= depth, and a request has at most one attempt in flight.
 * 3. Bytes [0, landed) of a request's buffer are the file's; landed only grows.
 * 4. Every submit gives exactly one read_done. */
#include "plat/reader.h"

#include "base/assert.h"
#include "base/checked.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NONE UINT32_MAX
#define ATTEMPT_BYTES_MAX (1u << 30)
#define PAUSE_NS INT64_C(10000000) /* before the first retry; four times as long before each further one */
enum {
    RETRIES_MAX = 3,
    STALLS_MAX = 1000, /* attempts in a row that bring nothing: interrupted, or short by less than a block */
    REAP_ROOM = 32,
};

enum request_state { REQUEST_FREE, REQUEST_QUEUED, REQUEST_FLYING, REQUEST_PAUSED, REQUEST_DONE };

struct request {
    struct read_request ask;
    enum request_state state;
    uint32_t next; /* in the list of its state */
    uint64_t landed;
    uint64_t attempt_at; /* offset into the request where the attempt in flight began */
    uint32_t attempt_bytes;
    int64_t wake_ns;
    uint16_t n_faults, n_stalls;
    bool is_cancelled;
    int error;
};

struct list {
    uint32_t first, last;
};

struct reader_file {
    const struct file *file;
    int descriptor;
    bool is_direct; /* then the descriptor is the reader's own */
    int registered;
};

struct reader {
    struct alloc *alloc;
    struct aio *aio;
    struct clock clock;
    struct reader_settings settings;
    struct request *requests; /* [requests_max] */
    struct list queued[READ_PRIORITIES], done, free;
    struct reader_file *files; /* [files_max] */
    uint32_t n_files;
    uint32_t n_outstanding, n_paused;
    unsigned n_flying, n_flying_background;
    int64_t busy_since_ns; /* while n_flying > 0 */
    struct reader_stats stats;
    char why_not_uring[160];
};

static void push_back(struct reader *r, struct list *list, uint32_t i)
{
    r->requests[i].next = NONE;
    if (list->first == NONE)
        list->first = i;
    else
        r->requests[list->last].next = i;
    list->last = i;
}

static void push_front(struct reader *r, struct list *list, uint32_t i)
{
    r->requests[i].next = list->first;
    if (list->first == NONE) list->last = i;
    list->first = i;
}

static uint32_t pop_front(struct reader *r, struct list *list)
{
    uint32_t i = list->first;
    if (i == NONE) return NONE;
    list->first = r->requests[i].next;
    if (list->first == NONE) list->last = NONE;
    return i;
}

/* All entries with this tag leave the list; they come in the order they had. */
static struct list take_tagged(struct reader *r, struct list *list, uint64_t tag)
{
    struct list taken = {NONE, NONE}, kept = {NONE, NONE};
    uint32_t i;
    while ((i = pop_front(r, list)) != NONE) push_back(r, r->requests[i].ask.tag == tag ? &taken : &kept, i);
    *list = kept;
    return taken;
}

static bool is_background(const struct request *q)
{
    return q->ask.priority >= READ_HINT;
}

bool reader_new(struct reader **out, struct alloc *alloc, struct aio *aio, struct clock clock,
                const struct reader_settings *settings, struct err *err)
{
    ASSERT(settings->depth > 0);
    ASSERT(settings->depth <= aio->depth);
    ASSERT(settings->requests_max > 0);
    struct reader *r = alloc_get(alloc, sizeof *r, err);
    if (!r) {
        aio->ops->free(aio);
        return false;
    }
    *r = (struct reader){.alloc = alloc, .aio = aio, .clock = clock, .settings = *settings};
    r->done = r->free = (struct list){NONE, NONE};
    for (int p = 0; p < READ_PRIORITIES; p++) r->queued[p] = (struct list){NONE, NONE};
    r->requests = alloc_get_array(alloc, settings->requests_max, sizeof *r->requests, err);
    if (!r->requests) goto fail;
    r->files = alloc_get_array(alloc, settings->files_max, sizeof *r->files, err);
    if (!r->files) goto fail;
    for (uint32_t i = 0; i < settings->requests_max; i++) push_back(r, &r->free, i);
    *out = r;
    return true;
fail:
    reader_free(r);
    return false;
}

bool reader_new_real(struct reader **out, struct alloc *alloc, const struct reader_settings *settings,
                     unsigned n_threads, struct err *err)
{
    struct aio *aio;
    struct err why = {0};
    if (!aio_uring_new(&aio, alloc, settings->depth, &why)) {
        if (why.kind == ERR_NOMEM) {
            *err = why;
            return false;
        }
        if (!aio_pool_new(&aio, alloc, settings->depth, n_threads, err)) return false;
    }
    if (!reader_new(out, alloc, aio, clock_real(), settings, err)) return false;
    size_t n = strlen(why.text);
    if (n >= sizeof(*out)->why_not_uring) n = sizeof(*out)->why_not_uring - 1;
    memcpy((*out)->why_not_uring, why.text, n);
    return true;
}

void reader_free(struct reader *r)
{
    if (!r) return;
    for (uint32_t i = 0; r->n_flying > 0 && i < r->settings.requests_max; i++)
        if (r->requests[i].state == REQUEST_FLYING && r->aio->ops->cancel) r->aio->ops->cancel(r->aio, i);
    while (r->n_flying > 0) {
        struct aio_result results[REAP_ROOM];
        r->n_flying -= (unsigned)r->aio->ops->reap(r->aio, results, REAP_ROOM, -1);
    }
    for (uint32_t i = 0; i < r->n_files; i++) {
        struct reader_file *f = &r->files[i];
        if (f->is_direct) f->file->fs.ops->close(f->file->fs.context, f->descriptor);
    }
    r->aio->ops->free(r->aio);
    alloc_put(r->alloc, r->files);
    alloc_put(r->alloc, r->requests);
    alloc_put(r->alloc, r);
}

const char *reader_device(const struct reader *r)
{
    return r->aio->ops->name;
}
const char *reader_why_not_uring(const struct reader *r)
{
    return r->why_not_uring;
}

/* Whether a read through this descriptor works the direct way; some file systems take the flag and refuse the read. */
static bool direct_read_works(const struct file *file, int descriptor)
{
    _Alignas(READER_ALIGNMENT) char page[READER_ALIGNMENT];
    ssize_t got;
    do {
        got = file->fs.ops->pread(file->fs.context, descriptor, page, READER_ALIGNMENT, 0);
    } while (got < 0 && errno == EINTR);
    return got > 0;
}

/* *descriptor stays -1 where direct reads are not to be had. */
static bool open_direct(const struct file *file, int *descriptor, struct err *err)
{
    const struct file_system *fs = &file->fs;
    struct stat st;
    int fd;
    *descriptor = -1;
    do {
        fd = fs->ops->open(fs->context, file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0 && errno == EINVAL) return true;
    if (fd < 0)
        return err_set(err, ERR_IO, "%s: cannot open for direct reads: %s%s", file->path, strerror(errno),
                       errno == EMFILE ? " (raise ulimit -n, or use --direct-io off)" : "");
    if (fs->ops->stat(fs->context, fd, &st) != 0) {
        err_set(err, ERR_IO, "%s: cannot look at it: %s", file->path, strerror(errno));
        goto fail;
    }
    if (st.st_dev != file->identity.device || st.st_ino != file->identity.inode ||
        (uint64_t)st.st_size != file->identity.bytes) {
        err_set(err, ERR_DATA, "%s: was replaced by another file while it was being opened", file->path);
        goto fail;
    }
    if (direct_read_works(file, fd))
        *descriptor = fd;
    else
        fs->ops->close(fs->context, fd);
    return true;
fail:
    fs->ops->close(fs->context, fd);
    return false;
}

bool reader_add_file(struct reader *r, const struct file *file, enum reader_direct direct, uint32_t *id,
                     struct err *err)
{
    if (r->n_files == r->settings.files_max)
        return err_set(err, ERR_BUSY, "%s: more than %" PRIu32 " files to read from", file->path,
                       r->settings.files_max);
    struct reader_file *f = &r->files[r->n_files];
    *f = (struct reader_file){.file = file, .descriptor = file->descriptor, .registered = -1};
    if (direct == READER_DIRECT_IF_POSSIBLE) {
        int descriptor;
        if (!open_direct(file, &descriptor, err)) return false;
        f->is_direct = descriptor >= 0;
        if (f->is_direct) f->descriptor = descriptor;
    }
    if (r->aio->ops->register_file) f->registered = r->aio->ops->register_file(r->aio, f->descriptor);
    *id = r->n_files++;
    return true;
}

bool reader_is_direct(const struct reader *r, uint32_t id)
{
    ASSERT(id < r->n_files);
    return r->files[id].is_direct;
}

bool reader_lend_memory(struct reader *r, void *base, uint64_t bytes, struct err *reason)
{
    if (!r->aio->ops->register_memory) return err_set(reason, ERR_FAILED, "%s has no use for it", r->aio->ops->name);
    return r->aio->ops->register_memory(r->aio, base, bytes, reason);
}

void reader_withdraw_memory(struct reader *r)
{
    if (r->aio->ops->unregister_memory) r->aio->ops->unregister_memory(r->aio);
}

static void finish(struct reader *r, uint32_t i, int error)
{
    struct request *q = &r->requests[i];
    q->state = REQUEST_DONE;
    q->error = error;
    push_back(r, &r->done, i);
    if (error == ECANCELED) {
        r->stats.n_cancelled++;
    } else if (error) {
        r->stats.n_failed++;
    } else {
        r->stats.n_requests[q->ask.priority]++;
        r->stats.bytes[q->ask.priority] += q->landed;
    }
}

static void put_back(struct reader *r, uint32_t i)
{
    r->requests[i].state = REQUEST_QUEUED;
    push_front(r, &r->queued[r->requests[i].ask.priority], i);
}

/* After an attempt that brought nothing: go on at once, but not forever. */
static void stall(struct reader *r, uint32_t i, int error)
{
    if (++r->requests[i].n_stalls > STALLS_MAX)
        finish(r, i, error);
    else
        put_back(r, i);
}

static void pause_or_fail(struct reader *r, uint32_t i)
{
    struct request *q = &r->requests[i];
    if (q->n_faults == RETRIES_MAX) {
        finish(r, i, EIO);
        return;
    }
    q->wake_ns = clock_now_ns(r->clock) + (PAUSE_NS << (2 * q->n_faults++));
    q->state = REQUEST_PAUSED;
    r->n_paused++;
}

/* Whether the file has nothing behind what landed. A direct read never says so: it gives the last, partial block again.
 */
static bool ends_at(const struct reader *r, const struct request *q)
{
    const struct reader_file *f = &r->files[q->ask.file];
    struct stat st;
    return f->file->fs.ops->stat(f->file->fs.context, f->descriptor, &st) == 0 &&
           (uint64_t)st.st_size <= q->ask.offset + q->landed;
}

static void settle(struct reader *r, const struct aio_result *result)
{
    ASSERT(result->op < r->settings.requests_max);
    struct request *q = &r->requests[result->op];
    ASSERT(q->state == REQUEST_FLYING);
    ASSERT(result->result <= (int64_t)q->attempt_bytes);
    r->n_flying--;
    if (is_background(q)) r->n_flying_background--;
    r->stats.n_eio += result->result == -EIO;
    r->stats.n_interrupted += result->result == -EINTR || result->result == -EAGAIN;

    if (result->result > 0) {
        uint64_t landed = q->attempt_at + (uint64_t)result->result;
        r->stats.bytes_landed += (uint64_t)result->result;
        if (landed > q->landed) {
            q->landed = landed;
            q->n_stalls = 0;
        } else {
            q->n_stalls++; /* a direct read that stopped inside a block and starts over from its beginning */
        }
        if (q->landed >= q->ask.bytes_needed) {
            finish(r, result->op, 0);
            return;
        }
        r->stats.n_short += result->result < (int64_t)q->attempt_bytes;
    }
    if (q->is_cancelled) {
        finish(r, result->op, ECANCELED);
    } else if (result->result > 0) {
        if (q->n_stalls > 0 && ends_at(r, q))
            finish(r, result->op, ENODATA);
        else if (q->n_stalls > STALLS_MAX)
            finish(r, result->op, EIO);
        else
            put_back(r, result->op);
    } else if (result->result == 0) {
        finish(r, result->op, ENODATA);
    } else if (result->result == -EINTR || result->result == -EAGAIN) {
        stall(r, result->op, (int)-result->result);
    } else if (result->result == -EIO) {
        pause_or_fail(r, result->op);
    } else {
        finish(r, result->op, (int)-result->result);
    }
}

static void take_off(struct reader *r, uint32_t i)
{
    struct request *q = &r->requests[i];
    const struct reader_file *f = &r->files[q->ask.file];
    q->attempt_at = f->is_direct ? round_down(q->landed, READER_ALIGNMENT) : q->landed;
    uint64_t left = q->ask.bytes - q->attempt_at;
    q->attempt_bytes = left < ATTEMPT_BYTES_MAX ? (uint32_t)left : ATTEMPT_BYTES_MAX;
    q->state = REQUEST_FLYING;
    if (r->n_flying++ == 0) r->busy_since_ns = clock_now_ns(r->clock);
    if (is_background(q)) r->n_flying_background++;
    if (r->n_flying > r->stats.n_flying_max) r->stats.n_flying_max = r->n_flying;
    r->stats.n_attempts++;
    r->aio->ops->start(r->aio, &(struct aio_read){
                                   .file = f->file,
                                   .descriptor = f->descriptor,
                                   .registered_file = f->registered,
                                   .buffer = (char *)q->ask.buffer + q->attempt_at,
                                   .bytes = q->attempt_bytes,
                                   .offset = q->ask.offset + q->attempt_at,
                                   .op = i,
                               });
}

static unsigned background_max(const struct reader *r, int priority)
{
    unsigned share = priority == READ_HINT ? 2 : 4;
    return r->settings.depth > share ? r->settings.depth / share : 1;
}

/* The most urgent request that may take off now, or NONE. */
static uint32_t next_in_line(struct reader *r)
{
    for (int p = 0; p < READ_PRIORITIES; p++) {
        if (r->queued[p].first == NONE) continue;
        if (p >= READ_HINT && r->n_flying > r->n_flying_background) return NONE;
        if (p >= READ_HINT && r->n_flying_background >= background_max(r, p)) return NONE;
        return pop_front(r, &r->queued[p]);
    }
    return NONE;
}

static void wake(struct reader *r)
{
    if (r->n_paused == 0) return;
    int64_t now_ns = clock_now_ns(r->clock);
    for (uint32_t i = 0; i < r->settings.requests_max; i++) {
        struct request *q = &r->requests[i];
        if (q->state != REQUEST_PAUSED || q->wake_ns > now_ns) continue;
        r->n_paused--;
        put_back(r, i);
    }
}

/* How long a wait may last before a paused request has to go on. */
static int64_t wait_ns_max(const struct reader *r)
{
    int64_t least = -1, now_ns = clock_now_ns(r->clock);
    if (r->n_paused == 0) return -1;
    for (uint32_t i = 0; i < r->settings.requests_max; i++) {
        const struct request *q = &r->requests[i];
        if (q->state != REQUEST_PAUSED) continue;
        int64_t left = q->wake_ns > now_ns ? q->wake_ns - now_ns : 0;
        if (least < 0 || left < least) least = left;
    }
    return least;
}

static void launch(struct reader *r)
{
    bool launched = false;
    wake(r);
    while (r->n_flying < r->settings.depth) {
        uint32_t i = next_in_line(r);
        if (i == NONE) break;
        take_off(r, i);
        launched = true;
    }
    if (launched && r->aio->ops->flush) r->aio->ops->flush(r->aio);
}

static void land(struct reader *r, int64_t wait_ns)
{
    struct aio_result results[REAP_ROOM];
    if (r->n_flying == 0) {
        if (wait_ns > 0) clock_sleep_ns(r->clock, wait_ns);
        return;
    }
    size_t n = r->aio->ops->reap(r->aio, results, REAP_ROOM, wait_ns);
    for (size_t i = 0; i < n; i++) settle(r, &results[i]);
    int64_t now_ns = clock_now_ns(r->clock);
    r->stats.busy_ns += now_ns - r->busy_since_ns;
    r->busy_since_ns = now_ns;
}

static bool fetch(struct reader *r, struct read_done *done)
{
    uint32_t i = pop_front(r, &r->done);
    if (i == NONE) return false;
    struct request *q = &r->requests[i];
    *done = (struct read_done){.tag = q->ask.tag,
                               .file = q->ask.file,
                               .offset = q->ask.offset,
                               .bytes_needed = q->ask.bytes_needed,
                               .bytes = q->landed,
                               .error = q->error};
    q->state = REQUEST_FREE;
    push_back(r, &r->free, i);
    ASSERT(r->n_outstanding > 0);
    r->n_outstanding--;
    return true;
}

bool reader_submit(struct reader *r, const struct read_request *ask, struct err *err)
{
    ASSERT(ask->file < r->n_files);
    ASSERT(ask->bytes > 0);
    ASSERT(ask->bytes_needed <= ask->bytes);
    ASSERT((unsigned)ask->priority < READ_PRIORITIES);
    if (r->files[ask->file].is_direct) {
        ASSERT(ask->offset % READER_ALIGNMENT == 0);
        ASSERT(ask->bytes % READER_ALIGNMENT == 0);
        ASSERT((uintptr_t)ask->buffer % READER_ALIGNMENT == 0);
    }
    uint32_t i = pop_front(r, &r->free);
    if (i == NONE)
        return err_set(err, ERR_BUSY, "%" PRIu32 " reads are outstanding, which is the limit",
                       r->settings.requests_max);
    r->requests[i] = (struct request){.ask = *ask, .state = REQUEST_QUEUED};
    r->n_outstanding++;
    push_back(r, &r->queued[ask->priority], i);
    return true;
}

void reader_cancel(struct reader *r, uint64_t tag)
{
    uint32_t i;
    for (int p = 0; p < READ_PRIORITIES; p++) {
        struct list taken = take_tagged(r, &r->queued[p], tag);
        while ((i = pop_front(r, &taken)) != NONE) finish(r, i, ECANCELED);
    }
    for (i = 0; i < r->settings.requests_max; i++) {
        struct request *q = &r->requests[i];
        if (q->ask.tag != tag) continue;
        if (q->state == REQUEST_PAUSED) {
            r->n_paused--;
            finish(r, i, ECANCELED);
        } else if (q->state == REQUEST_FLYING) {
            q->is_cancelled = true;
            if (r->aio->ops->cancel) r->aio->ops->cancel(r->aio, i);
        }
    }
}

void reader_reprioritise(struct reader *r, uint64_t tag, enum read_priority priority)
{
    for (int p = 0; p < READ_PRIORITIES; p++) {
        if (p == (int)priority) continue;
        struct list taken = take_tagged(r, &r->queued[p], tag);
        uint32_t i;
        while ((i = pop_front(r, &taken)) != NONE) {
            r->requests[i].ask.priority = priority;
            push_back(r, &r->queued[priority], i);
        }
    }
    for (uint32_t i = 0; i < r->settings.requests_max; i++) {
        struct request *q = &r->requests[i];
        if (q->ask.tag != tag || (q->state != REQUEST_PAUSED && q->state != REQUEST_FLYING)) continue;
        bool was_background = q->state == REQUEST_FLYING && is_background(q);
        q->ask.priority = priority;
        if (q->state == REQUEST_FLYING) r->n_flying_background += (unsigned)is_background(q) - was_background;
    }
}

/* What has landed is fetched before more may land: a device that is done as soon as it is asked would otherwise be
 * given all that is queued for each request that is fetched. */
bool reader_poll(struct reader *r, struct read_done *done)
{
    launch(r);
    if (r->done.first == NONE) {
        land(r, 0);
        launch(r);
    }
    return fetch(r, done);
}

bool reader_wait(struct reader *r, struct read_done *done)
{
    if (reader_poll(r, done)) return true;
    int64_t since_ns = clock_now_ns(r->clock);
    bool got = false;
    while (!got && r->n_outstanding > 0) {
        land(r, wait_ns_max(r));
        launch(r);
        got = fetch(r, done);
    }
    r->stats.waited_ns += clock_now_ns(r->clock) - since_ns;
    return got;
}

uint32_t reader_outstanding(const struct reader *r)
{
    return r->n_outstanding;
}
uint32_t reader_room(const struct reader *r)
{
    return r->settings.requests_max - r->n_outstanding;
}
const struct reader_stats *reader_stats(const struct reader *r)
{
    return &r->stats;
}

bool reader_has_queued(const struct reader *r, enum read_priority at_least)
{
    for (int p = 0; p <= (int)at_least; p++)
        if (r->queued[p].first != NONE) return true;
    return false;
}

bool reader_explain(const struct reader *r, const struct read_done *done, struct err *err)
{
    const char *path = r->files[done->file].file->path;
    switch (done->error) {
    case 0:
        return err_set(err, ERR_FAILED, "%s: nothing is wrong with the read at offset %" PRIu64, path, done->offset);
    case ECANCELED:
        return err_set(err, ERR_CANCELLED, "%s: the read at offset %" PRIu64 " was called back", path, done->offset);
    case ENODATA:
        return err_set(err, ERR_DATA,
                       "%s: ends inside the %" PRIu64 " bytes at offset %" PRIu64 ", of which %" PRIu64
                       " came; was it cut while in use?",
                       path, done->bytes_needed, done->offset, done->bytes);
    default:
        return err_set(err, ERR_IO, "%s: reading %" PRIu64 " bytes at offset %" PRIu64 ": %s after %" PRIu64 " bytes%s",
                       path, done->bytes_needed, done->offset, strerror(done->error), done->bytes,
                       done->error == EIO ? ", also when tried again" : "");
    }
}
