#include "run/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

uint64_t random_key_from_seed(int64_t seed)
{
    return (uint64_t)seed;
}

bool random_key_fresh(uint64_t *key, struct err *err)
{
    /* Up to 256 bytes come whole or not at all; a signal can only interrupt the wait for the pool at boot. */
    ssize_t n;
    do n = getrandom(key, sizeof *key, 0);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof *key) return true;
    return err_set(err, ERR_IO, "the operating system gave no random bytes: %s; send a seed to do without",
                   strerror(errno));
}
