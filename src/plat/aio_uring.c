#include "plat/aio.h"

#include "base/assert.h"
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/uio.h>

enum {
    REGISTERED_FILES_MAX = 1024,
    REGISTERED_PIECES_MAX = 64, /* pieces of at most 1 GiB, the kernel's limit for one */
};
#define PIECE_BYTES (UINT64_C(1) << 30)
#define CANCEL_MARK UINT64_MAX /* user_data of a cancellation, whose own result means nothing */

struct ring {
    struct aio aio;
    struct alloc *alloc;
    struct io_uring uring;
    bool has_file_table;
    int n_files;
    char *memory; /* registered, or NULL */
    uint64_t memory_bytes;
};

/* A fixed read must lie inside one registered piece. */
static int piece_of(const struct ring *ring, const struct aio_read *read)
{
    const char *begin = read->buffer;
    if (!ring->memory || begin < ring->memory || begin + read->bytes > ring->memory + ring->memory_bytes) return -1;
    uint64_t first = (uint64_t)(begin - ring->memory) / PIECE_BYTES;
    uint64_t last = (uint64_t)(begin + read->bytes - 1 - ring->memory) / PIECE_BYTES;
    return first == last ? (int)first : -1;
}

static void uring_start(struct aio *aio, const struct aio_read *read)
{
    struct ring *ring = (struct ring *)aio;
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
    ASSERT(entry); /* the queue has room for every attempt, and cancellations leave that room */
    int descriptor = read->registered_file >= 0 ? read->registered_file : read->descriptor;
    int piece = piece_of(ring, read);
    if (piece >= 0)
        io_uring_prep_read_fixed(entry, descriptor, read->buffer, read->bytes, read->offset, piece);
    else
        io_uring_prep_read(entry, descriptor, read->buffer, read->bytes, read->offset);
    if (read->registered_file >= 0) io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(entry, read->op);
}

/* What the kernel does not take now (EAGAIN, EBUSY, EINTR) stays queued and goes with the next call. */
static void uring_flush(struct aio *aio)
{
    int taken = io_uring_submit(&((struct ring *)aio)->uring);
    ASSERT(taken >= 0 || taken == -EAGAIN || taken == -EBUSY || taken == -EINTR);
}

static size_t take_results(struct ring *ring, struct aio_result *out, size_t room)
{
    size_t n = 0;
    struct io_uring_cqe *result;
    while (n < room && io_uring_peek_cqe(&ring->uring, &result) == 0) {
        if (result->user_data != CANCEL_MARK)
            out[n++] = (struct aio_result){.op = (uint32_t)result->user_data, .result = result->res};
        io_uring_cqe_seen(&ring->uring, result);
    }
    return n;
}

static size_t uring_reap(struct aio *aio, struct aio_result *out, size_t room, int64_t wait_ns)
{
    struct ring *ring = (struct ring *)aio;
    struct __kernel_timespec span = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    size_t n = take_results(ring, out, room);
    while (n == 0 && wait_ns != 0) {
        uring_flush(aio);
        struct io_uring_cqe *result;
        int failure = io_uring_wait_cqe_timeout(&ring->uring, &result, wait_ns < 0 ? NULL : &span);
        n = take_results(ring, out, room);
        if (failure == -ETIME) break;
        ASSERT(failure == 0 || failure == -EINTR || failure == -EAGAIN || failure == -EBUSY);
    }
    return n;
}

static void uring_cancel(struct aio *aio, uint32_t op)
{
    struct ring *ring = (struct ring *)aio;
    if (io_uring_sq_space_left(&ring->uring) <= aio->depth) return; /* advice only */
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
    io_uring_prep_cancel64(entry, op, 0);
    io_uring_sqe_set_data64(entry, CANCEL_MARK);
    uring_flush(aio);
}

static int uring_register_file(struct aio *aio, int descriptor)
{
    struct ring *ring = (struct ring *)aio;
    if (!ring->has_file_table || ring->n_files == REGISTERED_FILES_MAX) return -1;
    if (io_uring_register_files_update(&ring->uring, (unsigned)ring->n_files, &descriptor, 1) != 1) return -1;
    return ring->n_files++;
}

static void uring_unregister_memory(struct aio *aio)
{
    struct ring *ring = (struct ring *)aio;
    if (ring->memory) io_uring_unregister_buffers(&ring->uring);
    ring->memory = NULL;
}

static bool uring_register_memory(struct aio *aio, void *base, uint64_t bytes, struct err *reason)
{
    struct ring *ring = (struct ring *)aio;
    struct iovec pieces[REGISTERED_PIECES_MAX];
    unsigned n = 0;
    uring_unregister_memory(aio);
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        if (n == REGISTERED_PIECES_MAX) return err_set(reason, ERR_FAILED, "too large to register with io_uring");
        uint64_t left = bytes - at;
        pieces[n++] = (struct iovec){(char *)base + at, left < PIECE_BYTES ? left : PIECE_BYTES};
    }
    int failure = io_uring_register_buffers(&ring->uring, pieces, n);
    if (failure)
        return err_set(reason, ERR_FAILED, "io_uring does not register the buffers: %s%s", strerror(-failure),
                       failure == -ENOMEM ? " (the limit is ulimit -l)" : "");
    ring->memory = base;
    ring->memory_bytes = bytes;
    return true;
}

static void uring_free(struct aio *aio)
{
    struct ring *ring = (struct ring *)aio;
    io_uring_queue_exit(&ring->uring);
    alloc_put(ring->alloc, ring);
}

static const char *why_refused(int failure)
{
    switch (failure) {
    case -ENOSYS: return "this kernel or sandbox has none";
    case -EPERM:
    case -EACCES: return "forbidden here (a container's seccomp profile or kernel.io_uring_disabled)";
    default: return strerror(-failure);
    }
}

bool aio_uring_new(struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    static const struct aio_ops ops = {
        .name = "io_uring",
        .start = uring_start,
        .flush = uring_flush,
        .reap = uring_reap,
        .cancel = uring_cancel,
        .register_file = uring_register_file,
        .register_memory = uring_register_memory,
        .unregister_memory = uring_unregister_memory,
        .free = uring_free,
    };
    ASSERT(depth > 0);
    struct ring *ring = alloc_get(alloc, sizeof *ring, err);
    if (!ring) return false;
    *ring = (struct ring){.aio = {&ops, depth}, .alloc = alloc};
    struct io_uring_params params = {.flags = IORING_SETUP_CLAMP};
    int failure = io_uring_queue_init_params(2 * depth, &ring->uring, &params);
    if (failure) {
        err_set(err, ERR_FAILED, "no io_uring: %s", why_refused(failure));
        goto fail;
    }
    ring->has_file_table = io_uring_register_files_sparse(&ring->uring, REGISTERED_FILES_MAX) == 0;
    *aio = &ring->aio;
    return true;
fail:
    alloc_put(alloc, ring);
    return false;
}
