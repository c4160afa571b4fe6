#ifndef PLAT_FILE_H
#define PLAT_FILE_H
/* Positioned reads of regular files, and the seam under them.
 *
 * The seam (struct file_system) is at the level of the system calls, so that the loops over EINTR and short reads and
 * the messages above it are the same code in a test with injected faults as in the real program. Model files are never
 * mapped: a file that shrinks must be an error that names it, not a signal.
 *
 * A struct file is opened once, may be read from any thread, and is closed by its owner. */
#include "base/alloc.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Each member behaves as the system call of its name: -1 and errno on failure. */
struct file_ops {
    int (*open)(void *context, const char *path, int flags);
    int (*stat)(void *context, int descriptor, struct stat *out);
    ssize_t (*pread)(void *context, int descriptor, void *buffer, size_t bytes, off_t offset);
    int (*close)(void *context, int descriptor);
};

struct file_system {
    const struct file_ops *ops;
    void *context;
};

struct file_system file_system_real(void);

/* What makes two looks at a file the same file. */
struct file_identity {
    uint64_t device, inode, bytes;
    int64_t modified_ns;
    uint64_t n_links; /* names that lead to it; none once it was deleted or another file took its place */
};

struct file {
    struct file_system fs;
    struct alloc *alloc;
    char *path; /* as it was given, for messages */
    int descriptor;
    struct file_identity identity;
};

/* Follows symbolic links (model caches are made of them) and refuses whatever is not a regular file in the end. */
bool file_open(struct file *file, struct alloc *alloc, struct file_system fs, const char *path,
               struct err *err) MUST_CHECK;

/* Whether there is anything of that name: for files that may be left out. A dangling link is something. */
bool file_present(struct file_system fs, const char *path);

/* Safe twice, on a zeroed struct file (which owns nothing), and after a failed open. */
void file_close(struct file *file);

/* All `bytes` bytes or an error that names path and offset. A file that ends early is ERR_DATA. */
bool file_read(const struct file *file, void *buffer, uint64_t bytes, uint64_t offset, struct err *err) MUST_CHECK;

/* Fails with ERR_DATA when the open file is no longer what it was when it was opened, or has lost its last name: it was
 * deleted, or replaced by another. */
bool file_recheck(const struct file *file, struct err *err) MUST_CHECK;

/* A whole small file and a NUL behind it; the caller gives it back with alloc_put. */
char *file_read_all(struct alloc *alloc, struct file_system fs, const char *path, uint64_t bytes_max, size_t *bytes,
                    struct err *err) MUST_CHECK;

#endif
