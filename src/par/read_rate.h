#ifndef PAR_READ_RATE_H
#define PAR_READ_RATE_H
/* How fast a team reads memory: the pace that nothing which must read its weights can beat. */
#include "par/team.h"
#include <stdint.h>

struct read_rate {
    struct alloc *alloc;
    uint64_t *words;
    size_t n_words;
    uint64_t sum; /* so that the reads cannot be left out */
};

/* Takes `bytes` of memory, which should be several times the last cache level. */
bool read_rate_init(struct read_rate *rate, struct alloc *alloc, struct team *team, uint64_t bytes,
                    struct err *err) MUST_CHECK;
void read_rate_fini(struct read_rate *rate); /* safe twice and on a zeroed struct */

/* Reads all of it once; the caller holds the watch. */
void read_rate_run(struct read_rate *rate, struct team *team);

#endif
