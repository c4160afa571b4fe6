#ifndef RUN_ENGINE_POOL_H
#define RUN_ENGINE_POOL_H
/* Which of several engines are open: so many at a time, each for whoever has waited longest.
 *
 * A member is a service whose engine lives in a process of its own. It asks whenever it looks up, and does what it is
 * told. Its states, and what makes each:
 *
 *   OUT      no process, no work                         at first; engine_pool_left
 *   WAITING  work, and no seat                           ask with work
 *   IN       a seat: its process is there, or comes up   a seat is free and nobody has waited longer
 *   LEAVING  somebody waits for its seat                 of those IN the one without work that had some last the
 *                                                        longest ago, or else the same of all
 *   ENDING   its process was told to end                 engine_pool_end
 *
 * A member that LEAVES begins nothing new and ends when what runs has run, so no answer is ever cut; when nobody waits
 * any more it stays. A seat is free only when the process has ended and its memory is back.
 *
 * Any thread; one lock inside, under which nobody is called. */
#include "base/alloc.h"

struct engine_pool;

enum pool_word {
    POOL_REST,  /* no seat */
    POOL_RUN,   /* a seat */
    POOL_LEAVE, /* a seat that somebody waits for */
};

/* n_seats engines may be open at a time. */
bool engine_pool_new(struct engine_pool **pool, struct alloc *alloc, uint32_t n_seats, uint32_t n_members,
                     struct err *err) MUST_CHECK;
void engine_pool_free(struct engine_pool *pool); /* after its members' threads; NULL is fine */

/* How a member is told to ask again, from any thread. A member may not go before all have stopped asking. */
void engine_pool_join(struct engine_pool *pool, uint32_t member, void (*nudge)(void *context), void *context);

/* What the member may do now. has_work: somebody wants something of it. */
enum pool_word engine_pool_ask(struct engine_pool *pool, uint32_t member, bool has_work);

/* Nothing runs in a member that leaves. True: its process must be told to end; false: it stays after all. */
bool engine_pool_end(struct engine_pool *pool, uint32_t member) MUST_CHECK;

/* The member's process has ended, for whatever reason, or will not be there because nobody wants it any more. */
void engine_pool_left(struct engine_pool *pool, uint32_t member);

#endif
