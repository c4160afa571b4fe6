#ifndef RESID_STREAMED_H
#define RESID_STREAMED_H
/* A model opened to stream, as a plan sized it: reader, spine, policy and slots, joined. Owned by the engine thread. */
#include "model/weights.h"
#include "resid/plan.h"
#include "resid/policy.h"
#include "resid/read_rates.h"
#include "resid/slots.h"
#include "resid/streamer.h"

enum direct_choice { DIRECT_AUTO, DIRECT_ON, DIRECT_OFF }; /* auto: what a measurement finds faster */

struct streamed_settings {
    const struct plan *plan; /* read while opening only */
    struct spine_choice spine;
    enum direct_choice direct;
    unsigned io_depth;     /* attempts in flight */
    unsigned n_io_threads; /* where io_uring is not to be had */
    const char *policy;
};

/* What a program that states nothing else gets; the plan is still to be given. */
struct streamed_settings streamed_settings_default(void);

/* For the plan request: what a streamed model will use. */
enum { STREAMED_REQUESTS_MAX = 1024, STREAMED_EMBEDDING_ROWS = 256 };

struct streamed;

bool streamed_open(struct streamed **streamed, struct alloc *alloc, const struct inventory *inventory,
                   const struct streamed_settings *settings, struct err *err) MUST_CHECK;
void streamed_close(struct streamed *streamed); /* no lease may be out; NULL is fine */

struct weights *streamed_weights(struct streamed *streamed);

/* Numbers for /stats and friends. */
struct slots *streamed_slots(struct streamed *streamed);
const struct reader *streamed_reader(const struct streamed *streamed);
const struct streamer_stats *streamed_stats(const struct streamed *streamed);
const struct read_rates *streamed_rates(const struct streamed *streamed); /* zeros where nothing was measured */
bool streamed_is_direct(const struct streamed *streamed);

#endif
