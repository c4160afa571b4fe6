#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H
/* The two halves of `weir doctor`: looking at the machine and at a model, and judging what was seen.
 *
 * The looking fills plain structs; the judging is a pure function of them, so that a test can be any machine. */
#include "cli/findings.h"
#include "plat/memory_facts.h"

struct machine_facts {
    uint32_t cpu_mask; /* usable here, and not ruled out by an option */
    unsigned n_threads;
    struct memory_facts memory;
    struct memory_fact swap, swap_free; /* NO_LIMIT: there is no swap */
    struct memory_fact lock_limit;      /* RLIMIT_MEMLOCK */
    struct memory_fact files_limit;     /* RLIMIT_NOFILE: `bytes` is a number of files */
    char huge_pages[16];                /* "always", "madvise", "never"; "" when unknown */
    bool is_commit_strict;              /* vm.overcommit_memory is 2 */
    char device[16];                    /* what reads go through */
    char why_not_uring[512];            /* "" when it is io_uring */
};

/* Of this machine, or of the tree of files below `root` ("" is the real one); processor, threads and device are always
 * those of this machine. */
bool machine_look(struct machine_facts *facts, struct alloc *alloc, struct file_system fs, const char *root,
                  struct err *err) MUST_CHECK;
void machine_judge(const struct machine_facts *facts, struct findings *findings);

/* The storage that a model lies on. */
struct storage_facts {
    uint64_t file_system; /* f_type of statfs; 0: unknown */
    int rotates;          /* 1: a disk with a head; 0: none; -1: unknown */
    uint64_t bytes_per_s; /* read for a measurement; 0: none was made */
    bool has_direct;      /* reads around the page cache work */
};

struct storage_facts storage_look(struct file_system fs, const char *root, const char *folder);
void storage_judge(const struct storage_facts *facts, struct findings *findings);

/* Everything about the command's first operand, its storage and its plan included. What is wrong with the model is a
 * finding; only running out of memory and the like fails. */
bool model_examine(const struct command_context *context, const struct machine_facts *machine,
                   struct findings *findings, struct err *err) MUST_CHECK;

#endif
