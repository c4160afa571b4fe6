#ifndef FETCH_HUB_CACHE_H
#define FETCH_HUB_CACHE_H
/* The folders of the cache that hub clients share, so that what one of them fetched is there for all.
 *
 *   ROOT/models--ORG--NAME/blobs/DIGEST             contents
 *                         /snapshots/COMMIT/PATH    relative links to them
 *                         /refs/REVISION            a commit
 *   ROOT/.locks/models--ORG--NAME/DIGEST.lock       held while a blob is written
 *
 * Here a reference is written last, so it names a snapshot that has all that was asked for. A blob that is under way is
 * DIGEST.weir.incomplete, with DIGEST.weir.segments beside it. */
#include "fetch/hub.h"
#include "plat/file.h"
#include "plat/file_write.h"

enum { HUB_PATH_MAX = 4096 };

struct hub_path {
    char text[HUB_PATH_MAX];
};

struct hub_cache {
    const char *root;
    char folder[HUB_ID_MAX + 32]; /* models--ORG--NAME */
    struct alloc *alloc;
    struct file_system fs;
    struct write_system ws;
};

/* `root` is kept. */
void hub_cache_init(struct hub_cache *cache, const char *root, const char *id, struct alloc *alloc,
                    struct file_system fs, struct write_system ws);

/* `suffix`: "", HUB_PARTIAL, HUB_SEGMENTS or HUB_FOREIGN_PARTIAL (that of other clients, filled from its beginning). */
#define HUB_PARTIAL ".weir.incomplete"
#define HUB_SEGMENTS ".weir.segments"
#define HUB_FOREIGN_PARTIAL ".incomplete"
bool hub_cache_blob(struct hub_path *path, const struct hub_cache *cache, const char *blob, const char *suffix,
                    struct err *err) MUST_CHECK;
bool hub_cache_snapshot(struct hub_path *path, const struct hub_cache *cache, const char *commit,
                        struct err *err) MUST_CHECK;

/* Makes the folders for blobs and locks. */
bool hub_cache_prepare(const struct hub_cache *cache, struct err *err) MUST_CHECK;

/* ERR_BUSY: another process is writing this blob. */
bool hub_cache_lock(struct folder_lock *lock, const struct hub_cache *cache, const char *blob,
                    struct err *err) MUST_CHECK;

/* Links the blob into the snapshot under `path`; a link or a file that is right already stays. */
bool hub_cache_link(const struct hub_cache *cache, const char *commit, const struct hub_file *file,
                    struct err *err) MUST_CHECK;

/* *found false: nobody has written it. Else `commit` is what it says. */
bool hub_cache_read_ref(const struct hub_cache *cache, const char *revision, char commit[HUB_COMMIT_TEXT], bool *found,
                        struct err *err) MUST_CHECK;
bool hub_cache_write_ref(const struct hub_cache *cache, const char *revision, const char *commit,
                         struct err *err) MUST_CHECK;

/* Room on the disk of the root, or of the folder in which it will be made. */
bool hub_cache_free_bytes(const struct hub_cache *cache, uint64_t *bytes, struct err *err) MUST_CHECK;

/* Size of a regular file behind whatever links, or false. */
bool hub_file_bytes(const struct hub_cache *cache, const char *path, uint64_t *bytes);

#endif
