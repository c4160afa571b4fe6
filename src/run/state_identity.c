#include "run/state_identity.h"

#include <math.h>
#include <string.h>

struct state_identity state_identity_of(const struct engine *engine)
{
    struct state_identity identity = {.numerics = engine_settings_of(engine)->numerics};
    float eps = engine_settings_of(engine)->latent_norm_eps;
    uint8_t bytes[sizeof eps];
    memcpy(identity.model, engine_inventory(engine)->catalogue->identity, sizeof identity.model);
    if (isnan(eps)) return identity;
    memcpy(bytes, &eps, sizeof eps); /* with another epsilon than its own it is another model */
    for (size_t i = 0; i < sizeof bytes; i++) identity.model[i] ^= bytes[i];
    return identity;
}
