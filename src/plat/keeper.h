#ifndef PLAT_KEEPER_H
#define PLAT_KEEPER_H
/* Processes for one that has threads: a keeper is forked while there is one thread, and forks a child whenever it is
 * asked to, so no lock of another thread is ever copied. The child is the program as it was when the keeper began.
 *
 * A child talks with the process that asked for it through a stream; the end of either closes it. A keeper has one
 * child at a time and is used by one thread at a time. Nothing here kills anybody: a child ends when it reads the end
 * of its stream, the keeper when its owner is gone and its child has ended. */
#include "base/alloc.h"

struct keeper;

enum keeper_role {
    KEEPER_OWNER, /* goes on with *keeper */
    KEEPER_CHILD, /* in a process made by keeper_spawn; *fd is its stream */
    KEEPER_OVER,  /* in the keeper's process, when it has nothing more to do */
};

/* Returns once for each role, in processes of their own; the two latter should tidy up and end. */
bool keeper_start(struct keeper **keeper, struct alloc *alloc, enum keeper_role *role, int *fd,
                  struct err *err) MUST_CHECK;

/* *fd: our end of the stream to a new child. */
bool keeper_spawn(struct keeper *keeper, int *fd, struct err *err) MUST_CHECK;

/* How the child ended, in words: "was killed by signal 9 (Killed)", "ended with code 3". Waits for it. */
enum { KEEPER_WORDS = 96 };
void keeper_wait(struct keeper *keeper, char words[KEEPER_WORDS]);

void keeper_free(struct keeper *keeper); /* waits for the keeper's end; NULL is fine */

#endif
