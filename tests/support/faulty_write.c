#include "support/faulty_write.h"

#include "base/assert.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct write_system real(void)
{
    return write_system_real();
}

static void lose_dirty_bytes(struct faulty_write *f)
{
    for (unsigned i = 0; i < f->n_files; i++) {
        struct stat st;
        if (f->files[i].dirty && stat(f->files[i].path, &st) == 0)
            if (truncate(f->files[i].path, st.st_size / 2) != 0) perror("truncate");
    }
}

/* True when this operation is to fail; errno is set then. */
static bool fault(struct faulty_write *f)
{
    if (f->interrupts && !f->interrupted) {
        f->interrupted = true;
        errno = EINTR;
        return true;
    }
    f->interrupted = false;
    f->calls++;
    if (f->calls == f->fail_at && f->stops) {
        f->stopped = true;
        if (f->loses) lose_dirty_bytes(f);
    }
    errno = f->error ? f->error : EIO;
    return f->stopped || f->calls == f->fail_at;
}

static int file_of(struct faulty_write *f, int descriptor)
{
    for (unsigned i = 0; i < f->n_files; i++)
        if (f->files[i].descriptor == descriptor) return (int)i;
    return -1;
}

/* The newest of that name: a folder may be open twice. */
static int file_called(struct faulty_write *f, const char *path)
{
    for (unsigned i = f->n_files; i-- > 0;)
        if (strcmp(f->files[i].path, path) == 0) return (int)i;
    return -1;
}

static void forget(struct faulty_write *f, int i)
{
    if (i >= 0) f->files[i] = f->files[--f->n_files];
}

static int faulty_open(void *context, const char *path, int flags, mode_t mode)
{
    struct faulty_write *f = context;
    if (fault(f)) return -1;
    int descriptor = real().ops->open(NULL, path, flags, mode);
    if (descriptor < 0) return -1;
    int same = file_called(f, path);
    if (same >= 0 && f->files[same].descriptor < 0) forget(f, same); /* a new file has that name now */
    ASSERT(f->n_files < FAULTY_FILES_MAX);
    snprintf(f->files[f->n_files].path, sizeof f->files[0].path, "%s", path);
    f->files[f->n_files].descriptor = descriptor;
    f->files[f->n_files++].dirty = false;
    return descriptor;
}

static ssize_t faulty_pwrite(void *context, int descriptor, const void *buffer, size_t bytes, off_t offset)
{
    struct faulty_write *f = context;
    int i = file_of(f, descriptor);
    ASSERT(i >= 0);
    bool was_stopped = f->stopped;
    if (fault(f)) {
        int error = errno;
        if (error != EINTR && f->tears && !was_stopped) {
            ssize_t half = real().ops->pwrite(NULL, descriptor, buffer, bytes / 2, offset);
            (void)half;
        }
        errno = error;
        return -1;
    }
    if (f->interrupts && bytes > 1000) bytes = 1000;
    f->files[i].dirty = true;
    ssize_t put = real().ops->pwrite(NULL, descriptor, buffer, bytes, offset);
    if (put > 0) f->bytes_written += (uint64_t)put;
    return put;
}

static int faulty_fsync(void *context, int descriptor)
{
    struct faulty_write *f = context;
    if (fault(f)) return -1;
    int i = file_of(f, descriptor);
    ASSERT(i >= 0);
    f->files[i].dirty = false;
    return 0;
}

static int faulty_close(void *context, int descriptor)
{
    struct faulty_write *f = context;
    int i = file_of(f, descriptor);
    ASSERT(i >= 0); /* closed twice, or never opened here */
    f->files[i].descriptor = -1;
    if (!f->files[i].dirty) forget(f, i);
    return real().ops->close(NULL, descriptor);
}

static int faulty_rename(void *context, const char *from, const char *to)
{
    struct faulty_write *f = context;
    if (f->interrupts) f->interrupted = true;
    if (fault(f)) return -1;
    if (real().ops->rename(NULL, from, to) != 0) return -1;
    forget(f, file_called(f, to));
    int i = file_called(f, from);
    if (i >= 0) snprintf(f->files[i].path, sizeof f->files[0].path, "%s", to);
    return 0;
}

static int faulty_unlink(void *context, const char *path)
{
    struct faulty_write *f = context;
    if (f->interrupts) f->interrupted = true; /* unlink, rename and mkdir do not end with EINTR on Linux */
    if (fault(f)) return -1;
    forget(f, file_called(f, path));
    return real().ops->unlink(NULL, path);
}

static int faulty_mkdir(void *context, const char *path, mode_t mode)
{
    struct faulty_write *f = context;
    if (f->interrupts) f->interrupted = true;
    return fault(f) ? -1 : real().ops->mkdir(NULL, path, mode);
}

static int faulty_lock(void *context, int descriptor)
{
    struct faulty_write *f = context;
    if (f->interrupts) f->interrupted = true;
    return fault(f) ? -1 : real().ops->lock(NULL, descriptor);
}

static int faulty_free_bytes(void *context, const char *path, uint64_t *bytes)
{
    struct faulty_write *f = context;
    if (!f->free_bytes) return real().ops->free_bytes(NULL, path, bytes);
    *bytes = f->free_bytes;
    return 0;
}

static int faulty_symlink(void *context, const char *target, const char *path)
{
    struct faulty_write *f = context;
    if (f->interrupts) f->interrupted = true;
    return fault(f) ? -1 : real().ops->symlink(NULL, target, path);
}

struct write_system faulty_write_system(struct faulty_write *faulty)
{
    static const struct write_ops ops = {faulty_open,   faulty_pwrite, faulty_fsync, faulty_close,      faulty_rename,
                                         faulty_unlink, faulty_mkdir,  faulty_lock,  faulty_free_bytes, faulty_symlink};
    return (struct write_system){.ops = &ops, .context = faulty};
}
