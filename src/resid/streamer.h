#ifndef RESID_STREAMER_H
#define RESID_STREAMER_H
/* The weights of a model that does not fit: the provider behind model/weights.h that reads experts as they are wanted.
 *
 * A want leases its hits at once and starts its misses; next hands out hits first, then misses as they land. With fewer
 * slots than a want has experts it goes in waves: a slot that is given back takes the next miss, so one slot per size
 * of expert is enough to make progress. Holding leases while asking for more than there are slots is an error, not a
 * hang. Embedding rows are read on demand and the last few are kept. Everything on the engine thread. */
#include "model/weights.h"
#include "plat/clock.h"
#include "resid/regret.h"
#include "resid/slots.h"

struct streamer_settings {
    const struct spine *spine; /* lent on to the model; this and all below outlive the streamer */
    struct slots_settings slots;
    const struct linear *linear; /* unpacks embedding rows */
    struct clock clock;
    uint32_t embedding_rows_kept; /* at least 1 */
    struct regret *regret;        /* told of every want; NULL: nobody */
};

struct streamer_stats {
    uint64_t n_wants, n_handed_out, n_rows_read; /* the last: of the embedding, from disk */
    uint64_t n_gave_way;                         /* experts that lost their slot to an earlier one of the same want */
    int64_t waited_ns;                           /* inside next, for the disk */
    int64_t lead_ns; /* between the beginning of a hinted read and the want that needed it, summed over all such */
};

/* ERR_DATA for experts in formats that kernels do not read as stored. */
bool streamer_new(struct weights **weights, struct alloc *alloc, const struct streamer_settings *settings,
                  struct err *err) MUST_CHECK;
/* Loads these experts while nothing else is to be read, in this order: what a history expects to be wanted. Copied. */
bool streamer_preload(struct weights *weights, const uint32_t *keys, uint32_t n, struct err *err) MUST_CHECK;
/* No lease may be out. NULL is fine. */
void streamer_free(struct weights *weights);

/* The slots, for the memory guard and for numbers. */
struct slots *streamer_slots(struct weights *weights);
const struct streamer_stats *streamer_stats(const struct weights *weights);

#endif
