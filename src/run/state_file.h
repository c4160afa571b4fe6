#ifndef RUN_STATE_FILE_H
#define RUN_STATE_FILE_H
/* The state of one sequence in a file, so that it need not be computed again: docs/formats/state.md.
 *
 * A file belongs to one model (digest of config and shard headers), one numeric tier and one storage of rows; another
 * one's is refused and left as it is. Everything is checksummed. A file that lost its end, or whose end is damaged,
 * still gives the blocks in front of the damage. Written as a whole or not at all (plat/file_write.h).
 *
 * Pure functions over files and sequences; kv_fork makes a stable copy to write from while the sequence goes on. */
#include "fmt/token_list.h"
#include "model/kv.h"
#include "plat/file_write.h"

struct state_identity {
    uint8_t model[32];
    uint32_t numerics; /* the tier that computed the rows */
};

bool state_file_write(const char *path, struct alloc *alloc, struct write_system ws,
                      const struct state_identity *identity, const struct kv *kv, const uint32_t *ids, uint32_t n,
                      struct err *err) MUST_CHECK;

/* The same in steps of one record, for somebody who rests between them. The sequence and the ids are borrowed until the
 * end and must not change: a fork is a stable copy. After a failure, and before the last step, there is no new file. */
struct state_writer {
    struct file_writer file;
    const struct kv *kv;
    const uint32_t *ids; /* [n] */
    uint32_t n, next;    /* block */
    bool has_ids;
    uint64_t bytes; /* written so far */
};
bool state_writer_start(struct state_writer *writer, const char *path, struct alloc *alloc, struct write_system ws,
                        const struct state_identity *identity, const struct kv *kv, const uint32_t *ids, uint32_t n,
                        struct err *err) MUST_CHECK;
bool state_writer_step(struct state_writer *writer, bool *is_done, struct err *err) MUST_CHECK;
void state_writer_abandon(struct state_writer *writer); /* unless it is done; safe twice and on a zeroed one */

/* Bytes of the file of so many tokens. */
uint64_t state_file_bytes(const struct kv_layout *layout, uint32_t n);

/* The ids that a file holds rows for, without reading rows. */
bool state_file_peek(const char *path, struct alloc *alloc, struct file_system fs,
                     const struct state_identity *identity, const struct kv_layout *layout, struct token_list *ids,
                     struct err *err) MUST_CHECK;

/* Fills an empty `kv` with the rows of the first n of `ids`, which those of the file must be: whatever became of the
 * file since it was looked at, no row of another text is taken for one of this. kv->n_rows tells how many came: fewer
 * than were asked for when the file has no more, or the rest is damaged, and then *is_torn. On failure the kv is empty.
 */
bool state_file_read(const char *path, struct alloc *alloc, struct file_system fs,
                     const struct state_identity *identity, struct kv *kv, const uint32_t *ids, uint32_t n,
                     bool *is_torn, struct err *err) MUST_CHECK;

#endif
