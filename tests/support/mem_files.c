#include "support/mem_files.h"

#include "base/assert.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { DESCRIPTOR_BASE = 1000 };

static struct mem_file *file_of(struct mem_files *m, int descriptor)
{
    ASSERT(descriptor >= DESCRIPTOR_BASE);
    ASSERT(descriptor < DESCRIPTOR_BASE + MEM_OPEN_MAX);
    int place = m->open[descriptor - DESCRIPTOR_BASE];
    ASSERT(place > 0); /* used after close */
    return &m->files[place - 1];
}

static int mem_open(void *context, const char *path, int flags)
{
    struct mem_files *m = context;
    unsigned max = m->open_max ? m->open_max : MEM_OPEN_MAX;
    if ((flags & O_DIRECT) && m->refuses_direct) return errno = EINVAL, -1;
    for (unsigned i = 0; i < m->n_files; i++) {
        if (strcmp(m->files[i].path, path) != 0) continue;
        if (m->n_open >= max) return errno = EMFILE, -1;
        int free = 0;
        while (m->open[free]) free++;
        m->open[free] = (int)i + 1;
        m->n_open++;
        return DESCRIPTOR_BASE + free;
    }
    return errno = ENOENT, -1;
}

static int mem_stat(void *context, int descriptor, struct stat *out)
{
    struct mem_file *f = file_of(context, descriptor);
    *out = (struct stat){.st_mode = S_IFREG | 0444, .st_size = (off_t)f->bytes, .st_ino = (ino_t)(uintptr_t)f};
    return 0;
}

static ssize_t mem_pread(void *context, int descriptor, void *buffer, size_t bytes, off_t offset)
{
    struct mem_file *f = file_of(context, descriptor);
    uint64_t at = (uint64_t)offset, left = at < f->bytes ? f->bytes - at : 0;
    if (bytes > left) bytes = (size_t)left;
    if (bytes > 0) memcpy(buffer, f->data + at, bytes);
    return (ssize_t)bytes;
}

static int mem_close(void *context, int descriptor)
{
    struct mem_files *m = context;
    (void)file_of(m, descriptor);
    m->open[descriptor - DESCRIPTOR_BASE] = 0;
    m->n_open--;
    return 0;
}

struct file_system mem_files_system(struct mem_files *files)
{
    static const struct file_ops ops = {mem_open, mem_stat, mem_pread, mem_close};
    return (struct file_system){.ops = &ops, .context = files};
}

void mem_files_add(struct mem_files *m, const char *path, void *data, uint64_t bytes)
{
    ASSERT(m->n_files < MEM_FILES_MAX);
    m->files[m->n_files++] = (struct mem_file){path, data, bytes};
}
