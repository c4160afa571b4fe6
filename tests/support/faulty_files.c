#include "support/faulty_files.h"

#include "base/assert.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Counts a call and says whether it is the one that fails. */
static bool fails(struct faulty_files *faulty)
{
    if (++faulty->calls != faulty->fail_at) return false;
    errno = faulty->error ? faulty->error : EIO;
    return true;
}

/* Every second time: no. */
static bool is_interrupted(struct faulty_files *faulty)
{
    if (!faulty->interrupts) return false;
    faulty->interrupted = !faulty->interrupted;
    errno = EINTR;
    return faulty->interrupted;
}

static int faulty_open(void *context, const char *path, int flags)
{
    struct faulty_files *faulty = context;
    if (is_interrupted(faulty)) return -1;
    if (!faulty->ends_early && fails(faulty)) return -1;
    int descriptor = open(path, flags);
    faulty->n_open += descriptor >= 0;
    return descriptor;
}

static int faulty_stat(void *context, int descriptor, struct stat *out)
{
    struct faulty_files *faulty = context;
    if (!faulty->ends_early && fails(faulty)) return -1;
    return fstat(descriptor, out);
}

static ssize_t faulty_pread(void *context, int descriptor, void *buffer, size_t bytes, off_t offset)
{
    struct faulty_files *faulty = context;
    if (is_interrupted(faulty)) return -1;
    if (fails(faulty)) return faulty->ends_early ? 0 : -1;
    if (faulty->read_most && bytes > faulty->read_most) bytes = faulty->read_most;
    return pread(descriptor, buffer, bytes, offset);
}

static int faulty_close(void *context, int descriptor)
{
    struct faulty_files *faulty = context;
    ASSERT(faulty->n_open > 0);
    faulty->n_open--;
    return close(descriptor);
}

struct file_system faulty_files_system(struct faulty_files *faulty)
{
    static const struct file_ops ops = {faulty_open, faulty_stat, faulty_pread, faulty_close};
    return (struct file_system){.ops = &ops, .context = faulty};
}
