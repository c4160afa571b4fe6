#include "kern/list_int.h"

void kern_select(struct kern *kern, uint32_t cpu)
{
    /* Later lines win, so the order of the list is the order of preference. */
#define X(op, isa, need) \
    if ((cpu & (need)) == (need)) kern->op = op##_##isa;
    KERN_LIST(X)
#undef X
}
