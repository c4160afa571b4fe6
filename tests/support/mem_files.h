#ifndef SUPPORT_MEM_FILES_H
#define SUPPORT_MEM_FILES_H
/* A file system whose files are arrays in memory, with counters. Descriptors are 1000 + open number. */
#include "plat/file.h"

enum { MEM_FILES_MAX = 32, MEM_OPEN_MAX = 256 };

struct mem_file {
    const char *path;
    unsigned char *data;
    uint64_t bytes;
};

struct mem_files {
    struct mem_file files[MEM_FILES_MAX];
    unsigned n_files;
    int open[MEM_OPEN_MAX]; /* 1 + index into files, 0 = closed */
    unsigned n_open;
    unsigned open_max;  /* EMFILE from here on; 0: MEM_OPEN_MAX */
    int refuses_direct; /* open with O_DIRECT gives EINVAL */
};

struct file_system mem_files_system(struct mem_files *files);

/* `data` is borrowed. */
void mem_files_add(struct mem_files *files, const char *path, void *data, uint64_t bytes);

#endif
