#ifndef PLAT_READER_H
#define PLAT_READER_H
/* Asynchronous positioned reads with priorities: what keeps the disk busy.
 *
 * A request is queued by reader_submit and gives exactly one struct read_done, in any order. Everything a device may do
 * in between is settled here, once for all devices: at most `depth` attempts are in flight; EINTR and short reads go
 * on where they stopped; EIO is tried three more times with a growing pause; anything else fails that request only.
 * Demand goes first, then the rest of a running sweep, then hints, guesses and state. These start only while nothing
 * more urgent is queued or in flight, so that they take no bandwidth from it, and never fill more than half of the
 * depth (guesses and state: a quarter), so that demand which comes up has room at once.
 *
 * The buffer belongs to the reader from submit until the request is done, cancelled or not. Owned by one thread. */
#include "plat/aio.h"

enum read_priority { READ_DEMAND, READ_SWEEP, READ_HINT, READ_GUESS, READ_STATE, READ_PRIORITIES };

struct read_request {
    uint32_t file; /* from reader_add_file */
    enum read_priority priority;
    uint64_t offset, bytes; /* of a direct file: multiples of READER_ALIGNMENT, as the buffer's address */
    uint64_t bytes_needed; /* less than `bytes` when the rest may lie behind the end of the file; done when they came */
    void *buffer;
    uint64_t tag; /* the caller's own; several requests may share one */
};

enum { READER_ALIGNMENT = 4096 };

struct read_done {
    uint64_t tag;
    uint32_t file;
    uint64_t offset, bytes_needed, bytes; /* asked for, and landed */
    int error;                            /* 0, an errno, ECANCELED, or ENODATA: the file ended too early */
};

enum reader_direct { READER_BUFFERED, READER_DIRECT_IF_POSSIBLE };

struct reader_settings {
    unsigned depth;        /* attempts in flight */
    uint32_t requests_max; /* queued and in flight and not yet fetched */
    uint32_t files_max;
};

/* Always counted; read at any time by the owner. */
struct reader_stats {
    uint64_t n_requests[READ_PRIORITIES], bytes[READ_PRIORITIES]; /* done well, bytes as they came from the device */
    uint64_t n_failed, n_cancelled;
    uint64_t n_attempts, n_short, n_interrupted, n_eio;
    uint64_t bytes_landed; /* all attempts together */
    unsigned n_flying_max;
    int64_t busy_ns;   /* at least one attempt in flight, as seen by the calls to the reader */
    int64_t waited_ns; /* spent in reader_wait */
};

struct reader;

/* Takes over the device, also when it fails. */
bool reader_new(struct reader **reader, struct alloc *alloc, struct aio *aio, struct clock clock,
                const struct reader_settings *settings, struct err *err) MUST_CHECK;

/* The best device there is: io_uring, or else threads, with the reason in reader_why_not_uring. */
bool reader_new_real(struct reader **reader, struct alloc *alloc, const struct reader_settings *settings,
                     unsigned n_threads, struct err *err) MUST_CHECK;

/* Calls back what is in flight and waits for it, so that no buffer is written afterwards. NULL is fine. */
void reader_free(struct reader *reader);

const char *reader_device(const struct reader *reader);        /* "io_uring" */
const char *reader_why_not_uring(const struct reader *reader); /* "" when it is io_uring */

/* The file must outlive the reader. With READER_DIRECT_IF_POSSIBLE it is opened a second time for reads around the page
 * cache, tried, and read through the cache after all where the file system does not do that. */
bool reader_add_file(struct reader *reader, const struct file *file, enum reader_direct direct, uint32_t *id,
                     struct err *err) MUST_CHECK;
bool reader_is_direct(const struct reader *reader, uint32_t id);

/* Lets the device prepare memory that many reads will go to. False with a reason costs nothing but speed. Memory must
 * be withdrawn before any page of it is given back to the system. */
bool reader_lend_memory(struct reader *reader, void *base, uint64_t bytes, struct err *reason);
void reader_withdraw_memory(struct reader *reader);

/* ERR_BUSY when requests_max are outstanding. */
bool reader_submit(struct reader *reader, const struct read_request *request, struct err *err) MUST_CHECK;

/* For all requests with this tag that are not done: call them back (best effort; each still gives its one done), or
 * move those still queued to another priority. */
void reader_cancel(struct reader *reader, uint64_t tag);
void reader_reprioritise(struct reader *reader, uint64_t tag, enum read_priority priority);

/* Keeps the device busy and fetches one finished request: poll does not wait; wait returns false only when nothing is
 * outstanding. */
bool reader_poll(struct reader *reader, struct read_done *done);
bool reader_wait(struct reader *reader, struct read_done *done);

uint32_t reader_outstanding(const struct reader *reader);
uint32_t reader_room(const struct reader *reader);
bool reader_has_queued(const struct reader *reader, enum read_priority at_least);
const struct reader_stats *reader_stats(const struct reader *reader);

/* Always false: says what went wrong with path, offset and reason. The caller adds the tensor. */
bool reader_explain(const struct reader *reader, const struct read_done *done, struct err *err);

#endif
