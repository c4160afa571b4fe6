#include "gram/grow.h"

#include <inttypes.h>
#include <string.h>

bool grow_room(const struct grow *grow, void *block, uint32_t *room, uint64_t need, uint32_t element_bytes,
               struct err *err)
{
    if (need <= *room) return true;
    if (need > grow->max)
        return err_set(err, ERR_USER, "unsupported_schema: the constraint is too large: more than %" PRIu32 " %s",
                       grow->max, grow->what);
    uint64_t fresh_room = (uint64_t)*room * 2 < need ? need : (uint64_t)*room * 2;
    if (fresh_room < 16) fresh_room = 16;
    if (fresh_room > grow->max) fresh_room = grow->max;
    void *old, *fresh;
    memcpy(&old, block, sizeof old);
    fresh = alloc_resize(grow->alloc, old, fresh_room * element_bytes, err);
    if (!fresh) return false;
    memcpy(block, &fresh, sizeof fresh);
    *room = (uint32_t)fresh_room;
    return true;
}
