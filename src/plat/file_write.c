#include "plat/file_write.h"

#include "base/assert.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define WRITE_BYTES_MAX (1u << 30) /* one call of Linux stops near 2^31 */

enum { LINK_TRIES = 1000 }; /* each lost to another process that makes a link of this name */

static int real_open(void *context, const char *path, int flags, mode_t mode)
{
    (void)context;
    return open(path, flags, mode);
}

static ssize_t real_pwrite(void *context, int descriptor, const void *buffer, size_t bytes, off_t offset)
{
    (void)context;
    return pwrite(descriptor, buffer, bytes, offset);
}

static int real_fsync(void *context, int descriptor)
{
    (void)context;
    return fsync(descriptor);
}

static int real_close(void *context, int descriptor)
{
    (void)context;
    return close(descriptor);
}

static int real_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to);
}

static int real_unlink(void *context, const char *path)
{
    (void)context;
    return unlink(path);
}

static int real_mkdir(void *context, const char *path, mode_t mode)
{
    (void)context;
    return mkdir(path, mode);
}

static int real_lock(void *context, int descriptor)
{
    (void)context;
    return flock(descriptor, LOCK_EX | LOCK_NB);
}

static int real_free_bytes(void *context, const char *path, uint64_t *bytes)
{
    (void)context;
    struct statvfs st;
    if (statvfs(path, &st) != 0) return -1;
    *bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

static int real_symlink(void *context, const char *target, const char *path)
{
    (void)context;
    return symlink(target, path);
}

struct write_system write_system_real(void)
{
    static const struct write_ops ops = {real_open,   real_pwrite, real_fsync, real_close,      real_rename,
                                         real_unlink, real_mkdir,  real_lock,  real_free_bytes, real_symlink};
    return (struct write_system){.ops = &ops};
}

static const char *advice(int error)
{
    switch (error) {
    case ENOSPC: return "; make room on this disk and run the same command again";
    case EDQUOT: return "; make room in your quota and run the same command again";
    case EROFS:
    case EACCES:
    case EPERM: return "; choose a folder that you may write to";
    case EFBIG: return "; this file system cannot hold files of this size";
    default: return "";
    }
}

static bool failed(struct err *err, const char *path, const char *doing, int error)
{
    return err_set(err, ERR_IO, "%s: %s: %s%s", path, doing, strerror(error), advice(error));
}

static int open_retrying(struct write_system ws, const char *path, int flags, mode_t mode)
{
    int descriptor;
    do {
        descriptor = ws.ops->open(ws.context, path, flags, mode);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

static int fsync_retrying(struct write_system ws, int descriptor)
{
    int result;
    do {
        result = ws.ops->fsync(ws.context, descriptor);
    } while (result != 0 && errno == EINTR);
    return result;
}

/* A rename or a removal is durable only once the folder that holds the name is. */
static bool sync_folder_of(struct alloc *alloc, struct write_system ws, const char *path, struct err *err)
{
    char *folder = alloc_text(alloc, path, err);
    if (!folder) return false;
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0; /* of "/name" the slash itself stays */
    const char *name = slash ? folder : ".";
    int descriptor = open_retrying(ws, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    bool ok = descriptor >= 0 || failed(err, name, "cannot open the folder", errno);
    /* EINVAL: a file system whose folders know no fsync has nothing to wait for. */
    if (ok && fsync_retrying(ws, descriptor) != 0 && errno != EINVAL)
        ok = failed(err, name, "cannot make the folder durable", errno);
    if (descriptor >= 0) ws.ops->close(ws.context, descriptor);
    alloc_put(alloc, folder);
    return ok;
}

static char *with_suffix(struct alloc *alloc, const char *path, const char *suffix, struct err *err)
{
    size_t room = strlen(path) + strlen(suffix) + 1;
    char *text = alloc_get(alloc, room, err);
    if (text) snprintf(text, room, "%s%s", path, suffix);
    return text;
}

/* What is renamed over a name takes the place of whatever has it: a device such as /dev/null would be gone for all. */
static bool may_replace(const char *path, struct err *err)
{
    char start[] = "/proc/";
    size_t n = strlen(start);
    struct stat st;
    bool is_output = readlink(path, start, n) == (ssize_t)n && strcmp(start, "/proc/") == 0; /* as /dev/stdout */
    if (stat(path, &st) != 0 || (S_ISREG(st.st_mode) && !is_output)) return true;
    return err_set(err, ERR_IO, "%s: something else than a file has this name; choose another one", path);
}

bool file_create(struct file_writer *writer, struct alloc *alloc, struct write_system ws, const char *path,
                 struct err *err)
{
    *writer = (struct file_writer){.ws = ws, .alloc = alloc, .descriptor = -1};
    if (!may_replace(path, err)) goto fail;
    writer->path = alloc_text(alloc, path, err);
    if (!writer->path) goto fail;
    char *path_tmp = with_suffix(alloc, path, ".tmp", err);
    if (!path_tmp) goto fail;
    if (ws.ops->unlink(ws.context, path_tmp) != 0 && errno != ENOENT) {
        failed(err, path_tmp, "cannot remove what an earlier run left", errno);
        alloc_put(alloc, path_tmp);
        goto fail;
    }
    writer->path_tmp = path_tmp;
    writer->descriptor = open_retrying(ws, path_tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (writer->descriptor < 0) {
        failed(err, path_tmp, "cannot create", errno);
        goto fail;
    }
    return true;
fail:
    file_abandon(writer);
    return false;
}

bool file_write(struct file_writer *writer, const void *data, uint64_t bytes, uint64_t offset, struct err *err)
{
    ASSERT(writer->descriptor >= 0);
    if (bytes > INT64_MAX || offset > INT64_MAX - bytes)
        return err_set(err, ERR_IO, "%s: no file reaches offset %" PRIu64, writer->path_tmp, offset);
    for (uint64_t done = 0; done < bytes;) {
        size_t want = bytes - done < WRITE_BYTES_MAX ? (size_t)(bytes - done) : WRITE_BYTES_MAX;
        ssize_t put = writer->ws.ops->pwrite(writer->ws.context, writer->descriptor, (const char *)data + done, want,
                                             (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            int error = put < 0 ? errno : ENOSPC; /* no progress and no reason: the disk takes no more */
            return err_set(err, ERR_IO, "%s: writing %" PRIu64 " bytes at offset %" PRIu64 ": %s%s", writer->path_tmp,
                           bytes, offset, strerror(error), advice(error));
        }
        done += (uint64_t)put;
    }
    return true;
}

bool file_commit(struct file_writer *writer, struct err *err)
{
    ASSERT(writer->descriptor >= 0);
    struct write_system ws = writer->ws;
    bool ok = fsync_retrying(ws, writer->descriptor) == 0;
    if (!ok) failed(err, writer->path_tmp, "cannot make it durable", errno);
    /* A network file system may report a lost write only now. After EINTR the descriptor is gone all the same. */
    if (ws.ops->close(ws.context, writer->descriptor) != 0 && errno != EINTR && ok)
        ok = failed(err, writer->path_tmp, "closing", errno);
    writer->descriptor = -1;
    if (ok && ws.ops->rename(ws.context, writer->path_tmp, writer->path) != 0)
        ok = failed(err, writer->path, "cannot give it this name", errno);
    if (ok) {
        alloc_put(writer->alloc, writer->path_tmp);
        writer->path_tmp = NULL; /* nothing left to remove */
        ok = sync_folder_of(writer->alloc, ws, writer->path, err);
    }
    file_abandon(writer);
    return ok;
}

void file_abandon(struct file_writer *writer)
{
    if (!writer->ws.ops) return;
    if (writer->descriptor >= 0) writer->ws.ops->close(writer->ws.context, writer->descriptor);
    if (writer->path_tmp) writer->ws.ops->unlink(writer->ws.context, writer->path_tmp);
    alloc_put(writer->alloc, writer->path_tmp);
    alloc_put(writer->alloc, writer->path);
    *writer = (struct file_writer){.descriptor = -1};
}

bool file_continue(struct file_writer *writer, struct alloc *alloc, struct write_system ws, const char *path,
                   const char *path_tmp, struct err *err)
{
    *writer = (struct file_writer){.ws = ws, .alloc = alloc, .descriptor = -1};
    writer->path = alloc_text(alloc, path, err);
    writer->path_tmp = writer->path ? alloc_text(alloc, path_tmp, err) : NULL;
    if (!writer->path_tmp) goto fail;
    writer->descriptor = open_retrying(ws, path_tmp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (writer->descriptor < 0) {
        failed(err, path_tmp, "cannot open for writing", errno);
        goto fail;
    }
    return true;
fail:
    file_suspend(writer);
    return false;
}

bool file_sync(struct file_writer *writer, struct err *err)
{
    ASSERT(writer->descriptor >= 0);
    if (fsync_retrying(writer->ws, writer->descriptor) == 0) return true;
    return failed(err, writer->path_tmp, "cannot make it durable", errno);
}

void file_suspend(struct file_writer *writer)
{
    if (!writer->ws.ops) return;
    if (writer->path_tmp) alloc_put(writer->alloc, writer->path_tmp);
    writer->path_tmp = NULL; /* so that nothing is removed */
    file_abandon(writer);
}

bool file_write_all(struct alloc *alloc, struct write_system ws, const char *path, const void *data, uint64_t bytes,
                    struct err *err)
{
    struct file_writer writer;
    if (!file_create(&writer, alloc, ws, path, err)) return false;
    if (!file_write(&writer, data, bytes, 0, err)) {
        file_abandon(&writer);
        return false;
    }
    return file_commit(&writer, err);
}

bool file_remove(struct alloc *alloc, struct write_system ws, const char *path, struct err *err)
{
    if (ws.ops->unlink(ws.context, path) == 0) return sync_folder_of(alloc, ws, path, err);
    if (errno == ENOENT) return true;
    return failed(err, path, "cannot remove", errno);
}

static bool leads_to(const char *path, const char *target)
{
    char now[PATH_MAX];
    ssize_t n = readlink(path, now, sizeof now);
    return n >= 0 && (size_t)n == strlen(target) && memcmp(now, target, (size_t)n) == 0;
}

/* Another process that makes the same link uses the same temporary name, and either may move what the other made: what
 * counts is where the name leads in the end. *again: what was in the way led elsewhere. */
static bool link_once(struct write_system ws, const char *target, const char *path, const char *path_tmp, bool *again,
                      struct err *err)
{
    *again = false;
    if (ws.ops->symlink(ws.context, target, path_tmp) != 0) {
        if (errno != EEXIST) return failed(err, path_tmp, "cannot make a symbolic link", errno);
        *again = !leads_to(path_tmp, target);
        if (*again && ws.ops->unlink(ws.context, path_tmp) != 0 && errno != ENOENT) {
            *again = false;
            return failed(err, path_tmp, "cannot remove what an earlier run left", errno);
        }
        if (*again) return false;
    }
    if (ws.ops->rename(ws.context, path_tmp, path) == 0) return true;
    int why = errno; /* not what looking for the link leaves */
    if (why == ENOENT && leads_to(path, target)) return true;
    *again = why == ENOENT;
    failed(err, path, "cannot give a link this name", why);
    ws.ops->unlink(ws.context, path_tmp);
    return false;
}

bool file_link(struct alloc *alloc, struct write_system ws, const char *target, const char *path, struct err *err)
{
    char *path_tmp = with_suffix(alloc, path, ".tmp", err);
    if (!path_tmp) return false;
    struct err why;
    bool ok = false, again = true;
    err_set(&why, ERR_IO, "%s: another process makes links of this name all the time", path);
    for (int tries = 0; !ok && again && tries < LINK_TRIES; tries++)
        ok = link_once(ws, target, path, path_tmp, &again, &why);
    alloc_put(alloc, path_tmp);
    return ok ? sync_folder_of(alloc, ws, path, err) : err_set(err, why.kind, "%s", why.text);
}

/* Makes one folder; a missing parent is no failure yet. */
static bool make_one(struct write_system ws, const char *path, bool *lacks_parent, struct err *err)
{
    *lacks_parent = false;
    if (ws.ops->mkdir(ws.context, path, 0777) == 0 || errno == EEXIST) return true;
    *lacks_parent = errno == ENOENT;
    return *lacks_parent || failed(err, path, "cannot make the folder", errno);
}

bool folder_make(struct alloc *alloc, struct write_system ws, const char *path, struct err *err)
{
    bool lacks_parent, ok = make_one(ws, path, &lacks_parent, err);
    if (!ok || !lacks_parent) return ok;
    char *part = alloc_text(alloc, path, err);
    if (!part) return false;
    for (char *slash = strchr(part + 1, '/'); ok && slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        ok = make_one(ws, part, &lacks_parent, err);
        *slash = '/';
    }
    ok = ok && make_one(ws, path, &lacks_parent, err);
    if (ok && lacks_parent) ok = failed(err, path, "cannot make the folder", ENOENT);
    alloc_put(alloc, part);
    return ok;
}

static bool lock_descriptor(struct folder_lock *lock, const char *path, const char *busy, struct err *err)
{
    if (lock->ws.ops->lock(lock->ws.context, lock->descriptor) == 0) return true;
    if (errno == EWOULDBLOCK) return err_set(err, ERR_BUSY, "%s: %s; wait for it or stop it", path, busy);
    return failed(err, path, "cannot lock", errno);
}

bool file_lock(struct folder_lock *lock, struct write_system ws, const char *path, struct err *err)
{
    *lock = (struct folder_lock){.ws = ws, .descriptor = -1};
    lock->descriptor = open_retrying(ws, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (lock->descriptor < 0) return failed(err, path, "cannot open the lock file", errno);
    if (lock_descriptor(lock, path, "another process holds this lock", err)) return true;
    folder_unlock(lock);
    return false;
}

bool folder_lock(struct folder_lock *lock, struct write_system ws, const char *path, struct err *err)
{
    *lock = (struct folder_lock){.ws = ws, .descriptor = -1};
    if (ws.ops->mkdir(ws.context, path, 0777) != 0 && errno != EEXIST) {
        failed(err, path, "cannot make the folder", errno);
        goto fail;
    }
    lock->descriptor = open_retrying(ws, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (lock->descriptor < 0) {
        failed(err, path, "cannot open the folder", errno);
        goto fail;
    }
    if (!lock_descriptor(lock, path, "another process is writing into this folder", err)) goto fail;
    return true;
fail:
    folder_unlock(lock);
    return false;
}

void folder_unlock(struct folder_lock *lock)
{
    if (lock->ws.ops && lock->descriptor >= 0) lock->ws.ops->close(lock->ws.context, lock->descriptor);
    *lock = (struct folder_lock){.descriptor = -1};
}

bool folder_free_bytes(struct write_system ws, const char *path, uint64_t *bytes, struct err *err)
{
    if (ws.ops->free_bytes(ws.context, path, bytes) == 0) return true;
    return failed(err, path, "cannot ask how much room is left", errno);
}
