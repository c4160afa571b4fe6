/* Stands in for aio_uring.c in builds without liburing. */
#include "plat/aio.h"

bool aio_uring_new(struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err)
{
    (void)aio, (void)alloc, (void)depth;
    return err_set(err, ERR_FAILED, "no io_uring: this build has none");
}
