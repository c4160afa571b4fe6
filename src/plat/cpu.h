#ifndef PLAT_CPU_H
#define PLAT_CPU_H
/* What this processor can do, and how many threads this process may keep busy. */
#include <stdint.h>

/* The bits of kern/kern.h's CPU_ list, given by name so that plat need not know kern. */
struct cpu_feature {
    const char *name; /* "avx2" */
    int is_usable;    /* by the processor and the operating system */
};

/* Array of features in the order of kern.h's bits; *n tells how many. */
const struct cpu_feature *cpu_features(unsigned *n);

/* Bit i set iff feature i is usable here. */
uint32_t cpu_mask(void);

/* Physical cores that this process may use: affinity and cgroup quota respected, at least 1. */
unsigned cpu_threads_usable(void);

#endif
