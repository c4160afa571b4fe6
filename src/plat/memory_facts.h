#ifndef PLAT_MEMORY_FACTS_H
#define PLAT_MEMORY_FACTS_H
/* How much memory this process may count on: the smallest of several facts, each with its source for people.
 *
 * Physical memory and what is free now come from /proc/meminfo; control groups (version 1 and 2, walked up to the root,
 * memory.high included) and resource limits can be tighter. Swap does not count. What cannot be read or understood is
 * unknown, never zero and never "no limit". */
#include "plat/file.h"

enum fact_state { FACT_UNKNOWN, FACT_NO_LIMIT, FACT_KNOWN };

struct memory_fact {
    enum fact_state state;
    uint64_t bytes;   /* when known */
    char source[200]; /* "MemAvailable of /proc/meminfo"; when unknown: why */
};

struct memory_facts {
    struct memory_fact physical;
    struct memory_fact free_now;      /* in the whole machine, page cache that can go included */
    struct memory_fact cgroup;        /* the tightest limit of this process's groups */
    struct memory_fact cgroup_free;   /* the least that any of them has left, page cache that can go included */
    struct memory_fact address_space; /* RLIMIT_AS, less what is mapped now */
    struct memory_fact data;          /* RLIMIT_DATA, less what is used now */
};

/* Of this machine, or of the tree of files below `root` ("" is the real one). Limits on the process itself are taken
 * from `root`/proc/self/limits. Allocates only while it runs; never fails, but facts may be unknown. */
void memory_facts_read(struct memory_facts *facts, struct alloc *alloc, struct file_system fs, const char *root);

/* The smallest of all known facts; NULL when neither physical memory nor any limit is known. */
const struct memory_fact *memory_facts_least(const struct memory_facts *facts);

/* The bytes of memory that this process holds now, from /proc/self/statm; unknown where there is none. */
struct memory_fact memory_resident_now(struct alloc *alloc, struct file_system fs, const char *root);
/* The same from that file, kept open by whoever asks often; takes no memory. */
struct memory_fact memory_resident_from(const struct file *statm);

#endif
