#ifndef SUPPORT_SMALL_DISK_H
#define SUPPORT_SMALL_DISK_H
/* A file system of a few blocks, which really fills up. Only the calling process and its children see it, so a test
 * calls this in a child, and it is gone when the last of them ends. */
#include <stdbool.h>
#include <stdint.h>

/* Mounts one over an existing folder. False: this machine does not let us. One thread only. */
bool small_disk_mount(const char *folder, uint64_t bytes);

/* Gives it another size. Stops the test on failure. */
void small_disk_resize(const char *folder, uint64_t bytes);
#endif
