#include "plat/clock.h"

#include <errno.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)

static int64_t real_now_ns(void *context)
{
    (void)context;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void real_sleep_ns(void *context, int64_t ns)
{
    (void)context;
    struct timespec left = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

struct clock clock_real(void)
{
    static const struct clock_ops ops = {real_now_ns, real_sleep_ns};
    return (struct clock){.ops = &ops};
}

static int64_t sim_now_ns(void *context)
{
    return ((const struct sim_clock *)context)->now_ns;
}

static void sim_sleep_ns(void *context, int64_t ns)
{
    struct sim_clock *sim = context;
    sim->now_ns += ns;
    sim->slept_ns += ns;
}

struct clock clock_simulated(struct sim_clock *sim)
{
    static const struct clock_ops ops = {sim_now_ns, sim_sleep_ns};
    return (struct clock){.ops = &ops, .context = sim};
}

int64_t clock_now_ns(struct clock clock)
{
    return clock.ops->now_ns(clock.context);
}

void clock_sleep_ns(struct clock clock, int64_t ns)
{
    if (ns > 0) clock.ops->sleep_ns(clock.context, ns);
}
