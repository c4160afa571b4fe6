#ifndef PLAT_AIO_H
#define PLAT_AIO_H
/* The device under a reader: starts single attempts at a positioned read and reports what each one gave, like pread.
 *
 * Three implementations: io_uring, a pool of threads, and a simulated device for tests; and one that slows another.
 * None of them retries, splits or orders anything: that is the reader's work and the same code over all three. Owned by
 * one reader and called from its thread only. At most `depth` attempts are started and not yet reaped. */
#include "base/alloc.h"
#include "plat/clock.h"
#include "plat/file.h"

struct aio_read {
    const struct file *file; /* for the seam */
    int descriptor;          /* the file's own, or one of the same file opened for direct reads */
    int registered_file;     /* index given by register_file, or -1 */
    void *buffer;
    uint32_t bytes;
    uint64_t offset;
    uint32_t op; /* comes back with the result */
};

struct aio_result {
    uint32_t op;
    int64_t result; /* bytes, 0 at the end of the file, or -errno */
};

struct aio;

struct aio_ops {
    const char *name; /* "io_uring" */
    void (*start)(struct aio *aio, const struct aio_read *read);
    /* Hands the started attempts to the device, where that is a step of its own; else NULL. */
    void (*flush)(struct aio *aio);
    /* Up to `room` results. Waits for the first one, but no longer than wait_ns (negative: as long as it takes). */
    size_t (*reap)(struct aio *aio, struct aio_result *out, size_t room, int64_t wait_ns);
    /* Advice; the attempt still gives its one result, maybe -ECANCELED. NULL: not possible. */
    void (*cancel)(struct aio *aio, uint32_t op);
    /* Both optional (NULL): fewer steps per read. -1 or false with a reason when the kernel refuses. */
    int (*register_file)(struct aio *aio, int descriptor);
    bool (*register_memory)(struct aio *aio, void *base, uint64_t bytes, struct err *reason);
    void (*unregister_memory)(struct aio *aio);
    /* Nothing may be in flight. */
    void (*free)(struct aio *aio);
};

/* First member of every implementation. */
struct aio {
    const struct aio_ops *ops;
    unsigned depth;
};

/* Fails, with the reason, where the kernel or a sandbox has no io_uring, and in builds without it. */
bool aio_uring_new(struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err) MUST_CHECK;

/* n_threads positioned reads at a time; `depth` may be larger, the rest waits in the pool's queue. */
bool aio_pool_new(struct aio **aio, struct alloc *alloc, unsigned depth, unsigned n_threads,
                  struct err *err) MUST_CHECK;

/* A device that gives no more bytes a second than its pace says, whatever the one under it could: results are held back
 * until a disk of that pace, which serves in the order of starting, would have given them. For measurements of what
 * slow disks lead to. The pace is borrowed and may be changed at any time by the thread that owns the reader; attempts
 * that are started already keep theirs. Owns `under` from here on, also when it fails. */
struct aio_pace {
    uint64_t bytes_per_s; /* 0: as fast as it goes */
};
bool aio_throttled_new(struct aio **aio, struct alloc *alloc, struct aio *under, const struct aio_pace *pace,
                       struct clock clock, struct err *err) MUST_CHECK;

/* A device that obeys a seed. Chances are per thousand attempts. Data comes through the file's own seam when the
 * attempt completes; from its start until then the buffer holds rubbish. */
struct aio_sim {
    uint64_t seed;
    int64_t delay_ns_min, delay_ns_max;
    unsigned short_chance, interrupt_chance, eio_chance;
    /* Optional: an errno for this attempt, or 0. */
    int (*fault)(void *context, const struct aio_read *read);
    void *fault_context;
    /* What really happened, for comparison. */
    uint64_t n_attempts, n_bytes, n_eio, n_cancelled;
    unsigned n_flying, n_flying_max;
};
bool aio_sim_new(struct aio **aio, struct alloc *alloc, unsigned depth, struct aio_sim *sim, struct sim_clock *clock,
                 struct err *err) MUST_CHECK;

#endif
