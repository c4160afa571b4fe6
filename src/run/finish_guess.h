#ifndef RUN_FINISH_GUESS_H
#define RUN_FINISH_GUESS_H
/* When the reading of a prompt will be over: an interval, and the record of how often it held.
 *
 * What rows took lately gives the interval; how much wider than that it is made follows from the record: a miss widens
 * it by half, a hit narrows it by three hundredths, so that in the long run some 93 of 100 hold. Values only; belongs
 * to one thread. A zeroed one knows nothing yet. */
#include <stdbool.h>
#include <stdint.h>

enum { FINISH_SAMPLES = 16 };

struct finish_guess {
    double row_ns[FINISH_SAMPLES]; /* of the latest passes, in a ring */
    uint32_t n, next;
    double slack; /* 0: none missed or held yet */
    uint64_t n_judged, n_held;
};

struct finish_interval {
    int64_t low_ns, high_ns; /* from when it was made */
};

/* A pass read so many rows of a prompt in so much time. */
void finish_guess_add(struct finish_guess *guess, uint32_t n_rows, int64_t ns);

/* How long so many rows will take. False: nothing is known yet. */
bool finish_guess_ask(const struct finish_guess *guess, uint32_t n_rows, struct finish_interval *interval);

/* What an interval promised came after so much time. */
void finish_guess_judge(struct finish_guess *guess, const struct finish_interval *interval, int64_t ns);

#endif
