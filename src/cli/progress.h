#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H
/* One line that is written over while something long runs, on a terminal and nowhere else. */
#include "plat/clock.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;
    struct clock clock;
    bool is_shown; /* out is a terminal that can write over a line */
    bool has_bar;  /* the cursor stands behind one */
    int64_t drawn_ns;
};

struct progress progress_on(FILE *out, bool is_dumb);

/* Several times a second at most. Rate and seconds: negative while unknown. `what` may be NULL. */
void progress_draw(struct progress *progress, uint64_t done, uint64_t whole, double bytes_per_second,
                   double seconds_left, const char *what);

/* Takes the line away: before anything else is written, and at the end. */
void progress_clear(struct progress *progress);

#endif
