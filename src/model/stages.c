#include "model/stages.h"

#include "base/assert.h"

const char *stage_name(enum stage stage)
{
    static const char *const names[] = {
#define X(stage, name) name,
        STAGE_LIST(X)
#undef X
    };
    ASSERT((unsigned)stage < STAGE_COUNT);
    return names[stage];
}

void stage_begin(struct stage_clock *clock)
{
    if (clock->now_ns) clock->last_ns = clock->now_ns(clock->context);
}

void stage_end(struct stage_clock *clock, enum stage stage)
{
    if (clock->looks_up) clock->looks_up(clock->who);
    if (!clock->now_ns) return;
    int64_t now = clock->now_ns(clock->context);
    clock->times.ns[stage] += now - clock->last_ns;
    clock->last_ns = now;
}
