#ifndef PLAT_PEAK_MEMORY_H
#define PLAT_PEAK_MEMORY_H
/* The most memory this process has had resident so far, in bytes, as the kernel counts it (VmHWM); 0 when it does not
 * say. Any thread. */
#include <stdint.h>

uint64_t peak_memory_bytes(void);

/* The same out of the text of a /proc/PID/status. */
uint64_t peak_memory_parse(const char *status);

#endif
