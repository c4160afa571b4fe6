#ifndef RUN_RANDOM_H
#define RUN_RANDOM_H
/* Where the randomness of a request comes from.
 *
 * A request has one 64-bit key. The draw for its generated token t is philox_unit(key, t), so it depends on nothing but
 * key and t: not on speculation, batching, other requests or an earlier attempt. */
#include "base/err.h"
#include <stdint.h>

/* A seed given by the client is the key, bit for bit. */
uint64_t random_key_from_seed(int64_t seed);

/* A key from the operating system, for a request without a seed. ERR_IO when there is none. */
bool random_key_fresh(uint64_t *key, struct err *err) MUST_CHECK;

#endif
