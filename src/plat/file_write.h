#ifndef PLAT_FILE_WRITE_H
#define PLAT_FILE_WRITE_H
/* Files that appear whole or not at all, and the seam under them.
 *
 * A struct file_writer fills PATH.tmp; file_commit makes it durable and only then gives it its name: fsync of the file,
 * rename, fsync of the folder. So a file that carries its final name is complete, whenever the power went. The seam
 * (struct write_system) is at the level of the system calls, like the one for reads: loops, order and messages above it
 * are the same code under injected faults. Nothing here writes through a symbolic link.
 *
 * A writer and a lock are owned by one thread. */
#include "base/alloc.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Each member behaves as the system call of its name: -1 and errno on failure. */
struct write_ops {
    int (*open)(void *context, const char *path, int flags, mode_t mode);
    ssize_t (*pwrite)(void *context, int descriptor, const void *buffer, size_t bytes, off_t offset);
    int (*fsync)(void *context, int descriptor);
    int (*close)(void *context, int descriptor);
    int (*rename)(void *context, const char *from, const char *to);
    int (*unlink)(void *context, const char *path);
    int (*mkdir)(void *context, const char *path, mode_t mode);
    int (*lock)(void *context, int descriptor);                          /* flock, exclusive, does not wait */
    int (*free_bytes)(void *context, const char *path, uint64_t *bytes); /* statvfs: for an ordinary user */
    int (*symlink)(void *context, const char *target, const char *path);
};

struct write_system {
    const struct write_ops *ops;
    void *context;
};

struct write_system write_system_real(void);

struct file_writer {
    struct write_system ws;
    struct alloc *alloc;
    char *path, *path_tmp;
    int descriptor;
};

/* Starts PATH.tmp, empty; one that an earlier run left behind is removed. Refused where PATH is a folder, a device or
 * anything else but a file, or a link to one. */
bool file_create(struct file_writer *writer, struct alloc *alloc, struct write_system ws, const char *path,
                 struct err *err) MUST_CHECK;

/* All `bytes` bytes, or an error that names path and offset. Any order of offsets. */
bool file_write(struct file_writer *writer, const void *data, uint64_t bytes, uint64_t offset,
                struct err *err) MUST_CHECK;

/* Makes it durable and gives it its name, replacing what had it. The writer is closed, whatever the result. */
bool file_commit(struct file_writer *writer, struct err *err) MUST_CHECK;

/* Forgets PATH.tmp, if it was not committed. Safe twice and on a zeroed writer. */
void file_abandon(struct file_writer *writer);

/* For a file that takes more than one run: goes on with `path_tmp`, whatever is in it, or starts it. Then file_write
 * and file_commit as above; file_suspend keeps what is there instead of forgetting it. One owner at a time: the caller
 * holds a lock. */
bool file_continue(struct file_writer *writer, struct alloc *alloc, struct write_system ws, const char *path,
                   const char *path_tmp, struct err *err) MUST_CHECK;
bool file_sync(struct file_writer *writer, struct err *err) MUST_CHECK; /* what was written is durable */
void file_suspend(struct file_writer *writer);                          /* safe twice and on a zeroed writer */

/* The three steps in one, for small files. */
bool file_write_all(struct alloc *alloc, struct write_system ws, const char *path, const void *data, uint64_t bytes,
                    struct err *err) MUST_CHECK;

/* A file that is not there is fine. The folder is made durable. */
bool file_remove(struct alloc *alloc, struct write_system ws, const char *path, struct err *err) MUST_CHECK;

/* A symbolic link that appears whole, replacing what had its name. `target` is as readlink will give it. */
bool file_link(struct alloc *alloc, struct write_system ws, const char *target, const char *path,
               struct err *err) MUST_CHECK;

/* Makes the folder and whatever of its parents is missing; one that is there is fine. */
bool folder_make(struct alloc *alloc, struct write_system ws, const char *path, struct err *err) MUST_CHECK;

/* A folder that only one process at a time may write into. The lock is on the folder itself, so it leaves no file
 * behind and ends with the process. */
struct folder_lock {
    struct write_system ws;
    int descriptor;
};

/* Makes the folder if only its last part is missing. ERR_BUSY: somebody else holds it. */
bool folder_lock(struct folder_lock *lock, struct write_system ws, const char *path, struct err *err) MUST_CHECK;
void folder_unlock(struct folder_lock *lock); /* safe twice and on a zeroed lock */

/* The same by way of a lock file, which is made and stays: where other programs look for one. folder_unlock ends it. */
bool file_lock(struct folder_lock *lock, struct write_system ws, const char *path, struct err *err) MUST_CHECK;

bool folder_free_bytes(struct write_system ws, const char *path, uint64_t *bytes, struct err *err) MUST_CHECK;

#endif
