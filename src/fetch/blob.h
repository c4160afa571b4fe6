#ifndef FETCH_BLOB_H
#define FETCH_BLOB_H
/* One blob on its way into the cache.
 *
 *   absent -> partial -> complete      on disk
 *   blob_credit                        looks how far it is, touches nothing
 *   blob_open ... blob_close           holds the lock; bytes come by blob_put, in any order of segments
 *   blob_hash                          follows the bytes that are here without a hole, some at a time
 *   blob_save                          the partial file durable, then its segments: so they never tell of too much
 *   blob_finish                        compares the digest, and gives the blob its name
 *
 * Killed at any point, the next run goes on from the last save. One thread. */
#include "fetch/hub_cache.h"
#include "fetch/segments.h"

struct blob {
    const struct hub_cache *cache;
    const char *name;       /* its digest */
    const char *path;       /* of one of its files, for messages */
    uint64_t bytes, credit; /* credit: of them, here already when last looked */
    bool is_complete;

    bool is_open;
    struct folder_lock lock;
    struct file_writer writer;
    struct file reader;
    struct segments segments;
    struct digest digest;
    uint64_t bytes_hashed, bytes_saved;
    void *block; /* through which it is read for the digest */
};

void blob_init(struct blob *blob, const struct hub_cache *cache, const struct hub_file *file);

/* Sets is_complete and credit. */
bool blob_credit(struct blob *blob, struct err *err) MUST_CHECK;

/* ERR_BUSY: another process has it. After success it may turn out complete, and is then not open. */
bool blob_open(struct blob *blob, uint64_t segment_bytes, struct err *err) MUST_CHECK;
void blob_close(struct blob *blob); /* keeps what is there; safe twice and on one that is not open */

bool blob_put(struct blob *blob, uint32_t segment, const void *data, uint64_t bytes, struct err *err) MUST_CHECK;
bool blob_hash(struct blob *blob, uint64_t bytes_max, struct err *err) MUST_CHECK;
bool blob_save(struct blob *blob, struct err *err) MUST_CHECK;
bool blob_restart(struct blob *blob, struct err *err) MUST_CHECK; /* nothing is here, one segment */

/* Of a complete blob: takes away what a run that was killed at its very end left beside it. */
bool blob_tidy(const struct blob *blob, struct err *err) MUST_CHECK;

/* All bytes are here and hashed. *matches false: they are not what the digest says; nothing is changed then. */
bool blob_finish(struct blob *blob, bool *matches, struct err *err) MUST_CHECK;

#endif
