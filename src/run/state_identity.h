#ifndef RUN_STATE_IDENTITY_H
#define RUN_STATE_IDENTITY_H
/* Which states an engine can go on from. */
#include "run/engine.h"
#include "run/state_file.h"

/* Of the model's files and of every setting that changes what rows are made of. */
struct state_identity state_identity_of(const struct engine *engine);

#endif
