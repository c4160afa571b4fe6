#ifndef RESID_GUARD_H
#define RESID_GUARD_H
/* Keeps the process inside its budget after all: when more memory is held than planned, the least valuable slots go
 * back to the system; after a long quiet time they come back one by one. Decides by numbers it is given, so it can be
 * tested without memory. Owned by the engine thread; call guard_step between steps. */
#include "resid/slots.h"

struct guard {
    uint64_t budget_bytes; /* may be changed at any time, from the engine thread */
    uint64_t slot_bytes;   /* of a typical slot */
    int64_t quiet_ns;      /* how long nothing must have happened before a slot comes back */
    int64_t calm_since_ns; /* zero at first */
    uint64_t n_shrinks, n_regrowths;
    uint64_t held_bytes; /* by the process, when it was last looked at; 0: not known */
};

/* What happened: slots given back (negative) or taken again. The first of a row of shrinks is worth a line in the log.
 */
int32_t guard_step(struct guard *guard, struct slots *slots, uint64_t held_bytes, int64_t now_ns);

#endif
