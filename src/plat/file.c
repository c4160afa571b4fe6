#include "plat/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES_MAX (1u << 30) /* one call of Linux stops near 2^31 */

static int real_open(void *context, const char *path, int flags)
{
    (void)context;
    return open(path, flags);
}

static int real_stat(void *context, int descriptor, struct stat *out)
{
    (void)context;
    return fstat(descriptor, out);
}

static ssize_t real_pread(void *context, int descriptor, void *buffer, size_t bytes, off_t offset)
{
    (void)context;
    return pread(descriptor, buffer, bytes, offset);
}

static int real_close(void *context, int descriptor)
{
    (void)context;
    return close(descriptor);
}

struct file_system file_system_real(void)
{
    static const struct file_ops ops = {real_open, real_stat, real_pread, real_close};
    return (struct file_system){.ops = &ops};
}

static bool identify(const struct file *file, struct file_identity *out, struct err *err)
{
    struct stat st;
    if (file->fs.ops->stat(file->fs.context, file->descriptor, &st) != 0)
        return err_set(err, ERR_IO, "%s: cannot look at it: %s", file->path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_set(err, ERR_DATA, "%s: not a regular file", file->path);
    *out = (struct file_identity){
        .device = st.st_dev,
        .inode = st.st_ino,
        .bytes = (uint64_t)st.st_size,
        .modified_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec,
        .n_links = st.st_nlink,
    };
    return true;
}

bool file_open(struct file *file, struct alloc *alloc, struct file_system fs, const char *path, struct err *err)
{
    *file = (struct file){.fs = fs, .alloc = alloc, .descriptor = -1};
    file->path = alloc_text(alloc, path, err);
    if (!file->path) goto fail;
    do { /* O_NONBLOCK: opening a fifo must not wait for its other end */
        file->descriptor = fs.ops->open(fs.context, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (file->descriptor < 0 && errno == EINTR);
    if (file->descriptor < 0) {
        bool leads_nowhere = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
        err_set(err, leads_nowhere ? ERR_DATA : ERR_IO, "%s: cannot open: %s", path, strerror(errno));
        goto fail;
    }
    if (!identify(file, &file->identity, err)) goto fail;
    return true;
fail:
    file_close(file);
    return false;
}

bool file_present(struct file_system fs, const char *path)
{
    int descriptor;
    do { /* a link is not followed: that it leads nowhere is for file_open to say */
        descriptor = fs.ops->open(fs.context, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) return errno != ENOENT;
    fs.ops->close(fs.context, descriptor);
    return true;
}

void file_close(struct file *file)
{
    if (!file->fs.ops) return;
    if (file->descriptor >= 0) file->fs.ops->close(file->fs.context, file->descriptor);
    alloc_put(file->alloc, file->path);
    *file = (struct file){.descriptor = -1};
}

bool file_read(const struct file *file, void *buffer, uint64_t bytes, uint64_t offset, struct err *err)
{
    uint64_t done = 0;
    if (offset > INT64_MAX - bytes || bytes > INT64_MAX)
        return err_set(err, ERR_DATA, "%s: no file reaches offset %" PRIu64, file->path, offset);
    while (done < bytes) {
        size_t want = bytes - done < READ_BYTES_MAX ? (size_t)(bytes - done) : READ_BYTES_MAX;
        ssize_t got = file->fs.ops->pread(file->fs.context, file->descriptor, (char *)buffer + done, want,
                                          (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return err_set(err, ERR_IO, "%s: reading %" PRIu64 " bytes at offset %" PRIu64 ": %s", file->path, bytes,
                           offset, strerror(errno));
        if (got == 0)
            return err_set(err, ERR_DATA,
                           "%s: ends at %" PRIu64 ", inside the %" PRIu64 " bytes at offset %" PRIu64
                           "; was it cut or is a download unfinished?",
                           file->path, offset + done, bytes, offset);
        done += (uint64_t)got;
    }
    return true;
}

bool file_recheck(const struct file *file, struct err *err)
{
    struct file_identity now;
    if (!identify(file, &now, err)) return false;
    const struct file_identity *then = &file->identity;
    if (now.device != then->device || now.inode != then->inode || now.bytes != then->bytes ||
        now.modified_ns != then->modified_ns)
        return err_set(err, ERR_DATA, "%s: changed while in use (%" PRIu64 " bytes when opened, %" PRIu64 " now)",
                       file->path, then->bytes, now.bytes);
    if (then->n_links > 0 && now.n_links == 0)
        return err_set(err, ERR_DATA, "%s: was deleted or replaced while in use", file->path);
    return true;
}

char *file_read_all(struct alloc *alloc, struct file_system fs, const char *path, uint64_t bytes_max, size_t *bytes,
                    struct err *err)
{
    struct file file;
    char *text = NULL;
    if (!file_open(&file, alloc, fs, path, err)) return NULL;
    if (file.identity.bytes > bytes_max) {
        err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes, more than the limit of %" PRIu64, path, file.identity.bytes,
                bytes_max);
        goto fail;
    }
    text = alloc_get(alloc, file.identity.bytes + 1, err);
    if (!text) goto fail;
    if (!file_read(&file, text, file.identity.bytes, 0, err)) goto fail;
    *bytes = (size_t)file.identity.bytes;
    file_close(&file);
    return text;
fail:
    alloc_put(alloc, text);
    file_close(&file);
    return NULL;
}
