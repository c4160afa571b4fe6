#ifndef SUPPORT_FAULTY_FILES_H
#define SUPPORT_FAULTY_FILES_H
/* The read seam over real files with faults: a chosen call fails, reads come short, every call is first interrupted.
 * Counts descriptors, so that a test can say that none is left. One thread. */
#include "plat/file.h"
#include <stdbool.h>

struct faulty_files {
    uint64_t fail_at; /* the k-th open, stat or pread fails; 0: none does */
    int error;        /* errno of the fault; 0: EIO */
    size_t read_most; /* bytes of one pread; 0: no limit */
    bool interrupts;  /* open and pread fail with EINTR once before they work */
    bool ends_early;  /* the fault is not an error but a pread that gives 0: the file has shrunk */

    uint64_t calls;
    int n_open;
    bool interrupted;
};

/* The faulty_files outlives the system and starts zeroed but for its wishes. */
struct file_system faulty_files_system(struct faulty_files *faulty);
#endif
