#ifndef SUPPORT_FAULTY_WRITE_H
#define SUPPORT_FAULTY_WRITE_H
/* The write seam with faults: real files, but a chosen operation fails, or the machine "stops" there.
 *
 * Counted operations are open, pwrite, fsync, rename, unlink, mkdir, symlink and lock. close always works, because a
 * dead process has no open files either; fsync does not wait for the disk, but remembers what it covered. */
#include "plat/file_write.h"
#include <stdatomic.h>

enum { FAULTY_FILES_MAX = 64 };

struct faulty_write {
    uint64_t fail_at;    /* the k-th operation fails; 0: none does */
    bool stops;          /* and so does every one after it: the process was killed */
    bool loses;          /* and file bytes that no fsync covered are cut in half, under whatever name: the power went */
    bool tears;          /* a failing pwrite writes half of its bytes first */
    bool interrupts;     /* every operation first fails with EINTR once, and pwrite takes 1000 bytes at most */
    int error;           /* errno of the fault; 0: EIO */
    uint64_t free_bytes; /* what free_bytes says; 0: what is true */

    uint64_t calls, bytes_written;
    bool interrupted;
    atomic_bool stopped; /* every write fails; a test may say so while other threads write */
    struct {
        char path[512];
        int descriptor;
        bool dirty;
    } files[FAULTY_FILES_MAX];
    unsigned n_files;
};

/* The faulty_write outlives the system and starts zeroed but for its wishes. */
struct write_system faulty_write_system(struct faulty_write *faulty);
#endif
