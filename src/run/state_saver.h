#ifndef RUN_STATE_SAVER_H
#define RUN_STATE_SAVER_H
/* Writes states to disk beside the engine: one order at a time, on a thread of its own.
 *
 * While the engine is busy, writing takes a small share of the time (SAVER_SHARE): after each step, whose bytes are
 * made durable at once so that its time is known, the saver rests for as long as the share asks for. So the drive is
 * there for experts, whatever a step takes. When nobody waits for tokens, it does not rest.
 *
 * The engine thread owns the saver and calls everything here. What an order borrows is not touched by it between
 * saver_begin and saver_take: the thread only reads blocks, ids and names in the meantime. Without a thread (has_thread
 * false, for simulations) saver_poll does the steps, and rests by the same clock. */
#include "plat/clock.h"
#include "run/state_file.h"

struct saver;

enum { SAVER_SHARE = 32 }; /* one part of so many of the time */

struct saver_settings {
    struct write_system ws;
    struct clock clock;
    bool has_thread;
    void (*wake)(void *context); /* an order is done; on the saver's thread; may be NULL */
    void *context;
};

/* First the files that `removes` names are removed, then the state is written. All are in `dir`, named by saver_path.
 */
struct saver_order {
    const char *dir;
    const uint64_t *removes; /* [n_removes] */
    uint32_t n_removes;
    const struct kv *kv; /* the new state: holds n rows and does not change; NULL: only remove */
    const uint32_t *ids; /* [n] */
    uint32_t n;
    uint64_t name;
    struct state_identity identity;
};

struct saver_result {
    bool ok;        /* the state is there, if there was one to write */
    struct err err; /* why not */
    uint32_t n_not_removed;
    struct err not_removed; /* the last of them */
    uint64_t bytes;
    int64_t ns, ns_longest; /* that writing took, rests not counted, and its longest step */
};

enum { SAVER_PATH_MAX = 4096 };
#define SAVER_SUFFIX ".weirkv"

/* False: the folder's name is too long. */
bool saver_path(char path[SAVER_PATH_MAX], const char *dir, uint64_t name);

bool saver_new(struct saver **saver, struct alloc *alloc, const struct saver_settings *settings,
               struct err *err) MUST_CHECK;

/* An order in hand is finished first. NULL is fine. */
void saver_free(struct saver *saver);

/* Nothing may be in hand. The order is copied; what it points to stays the caller's. */
void saver_begin(struct saver *saver, const struct saver_order *order);

bool saver_is_busy(const struct saver *saver); /* from saver_begin until its result was taken */

/* Somebody waits for tokens, or nobody does. */
void saver_set_restful(struct saver *saver, bool rests);

/* Without a thread: one step, if it is due. With one: nothing. */
void saver_poll(struct saver *saver);

/* The result of the order in hand, once it is done. */
bool saver_take(struct saver *saver, struct saver_result *result);

/* Waits until the order in hand is done, without rests. */
void saver_finish(struct saver *saver);

#endif
