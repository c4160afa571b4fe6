#include "kern/list_int.h"

void kern_select(struct kern *kern, uint32_t cpu)
{
    /* Later lines win, so the order of the list is the order of preference. */
#define X(op, isa, need) \
    if ((cpu & (need)) == (need)) kern->op = op##_##isa;
    KERN_LIST(X)
#undef X
}

size_t kern_entries(const struct kern_entry **entries)
{
    static const struct kern_entry all[] = {
#define X(op, isa, need) {#op, #isa, need},
        KERN_LIST(X)
#undef X
    };
    *entries = all;
    return sizeof all / sizeof *all;
}

void kern_put(struct kern *kern, size_t i)
{
    size_t n = 0;
#define X(op, isa, need) \
    if (n++ == i) kern->op = op##_##isa;
    KERN_LIST(X)
#undef X
}
