#ifndef RESID_STREAMED_H
#define RESID_STREAMED_H
/* A model opened to stream, as a plan sized it: reader, spine, policy and slots, joined; and what is looked after
 * between passes: the budget, and that the files are still those that were opened. Owned by the engine thread. */
#include "model/weights.h"
#include "resid/guard.h"
#include "resid/plan.h"
#include "resid/policy.h"
#include "resid/read_rates.h"
#include "resid/slots.h"
#include "resid/streamer.h"

enum direct_choice { DIRECT_AUTO, DIRECT_ON, DIRECT_OFF }; /* auto: what a measurement finds faster */

/* Where the device under the reader comes from. */
struct device_source {
    bool (*make)(void *context, struct aio **aio, struct alloc *alloc, unsigned depth, struct err *err);
    void *context;
};

struct streamed_settings {
    const struct plan *plan; /* read while opening only */
    struct spine_choice spine;
    enum direct_choice direct;
    unsigned io_depth;     /* attempts in flight */
    unsigned n_io_threads; /* where io_uring is not to be had */
    const char *policy;
    const char *const *mirrors; /* [n_mirrors] folders with copies of shards, at most MIRRORS_MAX */
    uint32_t n_mirrors;
    bool prefetch;               /* act on the model's hints, which it gives when it is told to foresee */
    const char *usage_folder;    /* of usage histories: read at the start, written now and then; NULL: none */
    const char *usage_import;    /* start from another engine's .coli_usage instead; NULL: no */
    struct device_source device; /* make NULL: the best there is; tests bring their own */
    struct clock clock;
};

/* What a program that states nothing else gets; the plan is still to be given. */
struct streamed_settings streamed_settings_default(void);

/* For the plan request: what a streamed model will use. */
enum { STREAMED_REQUESTS_MAX = 1024, STREAMED_EMBEDDING_ROWS = 256 };

struct streamed;

bool streamed_open(struct streamed **streamed, struct alloc *alloc, const struct inventory *inventory,
                   const struct streamed_settings *settings, struct err *err) MUST_CHECK;
/* Writes the usage history where one is kept, as streamed_after_pass does every few minutes. No lease may be out; NULL
 * is fine. */
void streamed_close(struct streamed *streamed);

struct weights *streamed_weights(struct streamed *streamed);

/* What was used how often, on which it depends which expert makes room; for measurements that begin alike. */
void streamed_forget_use(struct streamed *streamed);

/* Before a pass: a few shards are looked at, others the next time. ERR_DATA when one is no longer what was opened; that
 * is the end of the model: every later pass fails for the same reason. */
bool streamed_before_pass(struct streamed *streamed, struct err *err) MUST_CHECK;

/* After a pass, and after the caller let go of all leases: keeps the budget, and when the pass failed (`why`, else
 * NULL) looks at all shards, so that `why` tells of a file that was cut or replaced and not of what came of it. */
void streamed_after_pass(struct streamed *streamed, struct err *why);

/* May be lowered and raised while the model is open; slots go back as needed after the next pass. */
void streamed_set_budget(struct streamed *streamed, uint64_t bytes);
const struct guard *streamed_guard(const struct streamed *streamed);

/* Things worth a line in the log, once each, oldest first. False: nothing new. */
enum { STREAMED_NOTE_MAX = 256 };
bool streamed_take_note(struct streamed *streamed, char text[STREAMED_NOTE_MAX]);

/* Numbers for /stats and friends. */
struct slots *streamed_slots(struct streamed *streamed);
const struct reader *streamed_reader(const struct streamed *streamed);
const struct streamer_stats *streamed_stats(const struct streamed *streamed);
/* Misses of the last wants beside the fewest possible; takes a few milliseconds. */
bool streamed_regret(const struct streamed *streamed, struct regret_figures *figures, struct err *err) MUST_CHECK;
bool streamed_is_direct(const struct streamed *streamed);

#endif
