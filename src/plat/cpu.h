#ifndef PLAT_CPU_H
#define PLAT_CPU_H
/* What this processor can do, and how many threads this process may keep busy. Thread-safe: nothing is kept. */
#include <stddef.h>
#include <stdint.h>

/* Bit i of a CPU mask, in the order of kern/kern.h's CPU_ list, given by name so that plat need not know kern:
 * "avx2" (with FMA and F16C), "avx512" (F, BW, DQ and VL), ... NULL from the first bit that means nothing. */
const char *cpu_feature_name(unsigned bit);

/* Bit i set iff feature i is usable here: by the processor, and enabled by the operating system. */
uint32_t cpu_mask(void);

/* Physical cores that this process may use: affinity and cgroup quota (rounded up) respected, at least 1. */
unsigned cpu_threads_usable(void);

/* Which logical processors a process may run on: processor i is bit i % 64 of word i / 64. */
enum { CPU_SET_WORDS = 128 };
struct cpu_set {
    uint64_t words[CPU_SET_WORDS];
};

/* The same count with the facts given: the folder that stands for "/" ("" is the real one) and the affinity. What the
 * folder does not tell is assumed to set no limit: without topology every logical processor is a core. */
unsigned cpu_threads_in(const char *root, const struct cpu_set *allowed);

#endif
