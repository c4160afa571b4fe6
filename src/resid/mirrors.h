#ifndef RESID_MIRRORS_H
#define RESID_MIRRORS_H
/* Copies of shards on other drives, and which copy a read goes to.
 *
 * A copy is used only when its size and its header are those of the shard, byte for byte. Reads are split by what each
 * drive was measured to give, with a hash of what is read, so that the same bytes always come from the same place. A
 * copy that fails is given up, with one line in the log, and its reads go to the original. Owned by the engine thread.
 */
#include "fmt/catalogue.h"
#include "plat/reader.h"

enum { MIRRORS_MAX = 16 };

struct mirrors;

/* Folders that hold copies of some or all shards under the same names. `files` [n_shards]: the reader's ids of the
 * originals; outlives the mirrors. The reader must be idle, and must have room for n_folders * n_shards more files. A
 * folder without a single copy, and a file of a shard's name that is none, are ERR_DATA. */
bool mirrors_new(struct mirrors **mirrors, struct alloc *alloc, struct reader *reader,
                 const struct catalogue *catalogue, const uint32_t *files, const char *const *folders,
                 uint32_t n_folders, enum reader_direct direct, struct clock clock, struct err *err) MUST_CHECK;
void mirrors_free(struct mirrors *mirrors); /* before the reader's files are used no more; NULL is fine */

/* The reader's id of the file that this part of a shard is to be read from. */
uint32_t mirrors_choose(const struct mirrors *mirrors, uint32_t shard, uint64_t offset);

/* After a failed read: whether `file` is a copy, which is then given up; *original is where to read instead. */
bool mirrors_give_up(struct mirrors *mirrors, uint32_t file, uint32_t *original);

/* Looks at the next n copies. One that was deleted or replaced is given up; one that changed while it was read from is
 * ERR_DATA: nobody knows what came from it. */
bool mirrors_recheck(struct mirrors *mirrors, uint64_t n, struct err *err) MUST_CHECK;

/* Once for each copy's folder that was given up: its name, or NULL when there is nothing new. */
const char *mirrors_news(struct mirrors *mirrors);

#endif
