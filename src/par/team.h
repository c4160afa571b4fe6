#ifndef PAR_TEAM_H
#define PAR_TEAM_H
/* A fork-join team: n threads (the caller is one of them) that share out the items of one loop at a time.
 *
 * Owner: the engine thread, which is the only one that may call team_run. Work is split by output items only, and an
 * item's arithmetic must not depend on which range or thread it came in: so answers are the same for any n. */
#include "base/alloc.h"
#include <stddef.h>

struct team;

/* Items begin .. end-1, on thread number `thread` (0 = the caller, below team_threads): index of per-thread scratch. */
typedef void team_fn(void *context, size_t begin, size_t end, unsigned thread);

bool team_new(struct team **team, struct alloc *alloc, unsigned n_threads, struct err *err) MUST_CHECK;
void team_free(struct team *team); /* NULL is fine */
unsigned team_threads(const struct team *team);

/* Runs fn over all items and returns when every one is done. `grain`: the least number of items worth handing out. */
void team_run(struct team *team, size_t n_items, size_t grain, team_fn *fn, void *context);

#endif
