#ifndef PLAT_CLOCK_H
#define PLAT_CLOCK_H
/* The time seam: monotonic nanoseconds, and waiting. Whoever pauses, times out or measures takes a struct clock, so
 * that a simulation runs the same code without waiting for anything.
 *
 * The real clock may be used from any thread; a simulated one belongs to one thread. */
#include <stdint.h>

struct clock_ops {
    int64_t (*now_ns)(void *context);
    void (*sleep_ns)(void *context, int64_t ns);
};

struct clock {
    const struct clock_ops *ops;
    void *context;
};

struct clock clock_real(void);

/* Time passes only when somebody sleeps or sets it. */
struct sim_clock {
    int64_t now_ns;
    int64_t slept_ns;
};
struct clock clock_simulated(struct sim_clock *sim);

int64_t clock_now_ns(struct clock clock);
void clock_sleep_ns(struct clock clock, int64_t ns);

#endif
