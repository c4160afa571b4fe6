#ifndef RUN_SCHEDULER_H
#define RUN_SCHEDULER_H
/* Many jobs on one engine: continuous batching.
 *
 * A step is one pass. It takes a row of every job that is answering (and the rows of its drafts) and at most one
 * portion of one prompt, so that all of them share one sweep over the experts. Jobs join, leave and are cancelled
 * between any two passes; a cancelled prompt calls its pass off. A job's ids depend on its own prompt, rules and seed
 * only, whoever runs beside it, whatever part of its prompt was known already and however it was cut.
 *
 * First come, first served within a priority; interactive before background. A job is admitted when the blocks of state
 * that it may come to need are there; until then it waits, and a job that could never be admitted is refused at once.
 * A failure of a pass is pinned on the job that causes it by running its jobs alone; the others go on.
 *
 * Belongs to the engine thread. Memory is taken by scheduler_new, apart from blocks of state and kept prefixes. */
#include "plat/clock.h"
#include "run/draft_control.h"
#include "run/engine.h"
#include "run/job.h"
#include "run/prefix_cache.h"
#include "run/ssd_cache.h"

struct scheduler;

struct scheduler_settings {
    uint32_t n_tokens;      /* ids from here on are dead */
    uint32_t n_running_max; /* jobs that share passes; the engine must grant logits for that many rows and drafts */
    uint32_t n_waiting_max;
    uint32_t prefix_blocks_max;  /* of the prefix cache */
    int64_t decode_stall_ns_max; /* how long an answering job may wait for a pass that reads somebody's prompt */
    enum draft_kind draft;       /* MTP: of a model that has the layer */
    bool weighs_drafts;          /* each round takes as many as pay, up to n_drafts_max; without: always so many */
    uint32_t n_drafts_max;       /* per job and pass */
    uint32_t ngram_min, ngram_max;
    struct ssd_cache *ssd;  /* states on disk; NULL: none. Outlives the scheduler */
    int64_t demote_idle_ns; /* a kept prefix that nobody used for so long is saved */
    struct clock clock;
};

/* What drafting did, cost and brought. Seconds are those of passes that read no prompt. */
struct draft_stats {
    uint64_t n_rows_with[DRAFT_DEPTHS]; /* how often a sequence had so many drafts in a pass; the last: or more */
    uint64_t n_passes, n_trials;        /* with drafts; of these, only to learn what drafts bring */
    uint64_t n_steps;                   /* of the MTP layer */
    uint64_t n_restarts;                /* sequences of which it began anew */
    uint64_t n_step_missed, step_bytes; /* experts that it had to wait for, and all that was read meanwhile */
    double n_verify_missed;             /* more experts that verifying had to wait for, as estimated */
    int64_t steps_ns;
    double expected_gain_ns, gain_ns; /* over no drafts: as foreseen pass by pass, and as it came; below 0: lost */
};

/* Experts and bytes that drafting added: those of the MTP layer, and what verifying wanted more. */
struct draft_totals {
    uint64_t n_experts, bytes;
};
struct draft_totals draft_totals(const struct draft_stats *stats, uint64_t expert_bytes);

struct scheduler_stats {
    uint64_t n_submitted, n_refused, n_done[STOP_ERROR + 1]; /* by enum stop_reason */
    uint64_t n_passes, n_prompt_tokens, n_cached_tokens, n_generated;
    uint64_t n_drafted, n_accepted, n_called_off;
    uint64_t n_finishes_told, n_finishes_held; /* predictions for prompts of several passes, and those that came true */
    uint32_t n_waiting, n_running;
    struct draft_stats drafts;
    uint64_t n_forced; /* ids that a grammar forced and that took no pass of their own */
};

/* With the drafts that the engine was opened for, and otherwise zeros. */
struct scheduler_settings scheduler_settings_for(const struct engine *engine);

bool scheduler_new(struct scheduler **scheduler, struct engine *engine, const struct scheduler_settings *settings,
                   struct err *err) MUST_CHECK;

/* Jobs that are left end as cancelled. NULL is fine. */
void scheduler_free(struct scheduler *scheduler);

/* Queues a job; `done` will be called for it, unless this fails. ERR_BUSY: the queue is full. ERR_USER: it could never
 * run, and why. */
bool scheduler_submit(struct scheduler *scheduler, struct job *job, struct err *err) MUST_CHECK;

/* One pass, or what is to be done without one. False: there is nothing to do until a job is submitted, a save ends or
 * the time of scheduler_due_ns comes. */
bool scheduler_step(struct scheduler *scheduler);

/* When scheduler_step should be called again although nobody asked for anything: a kept prefix is then to be saved.
 * INT64_MAX: never. */
int64_t scheduler_due_ns(const struct scheduler *scheduler);

struct engine *scheduler_engine(const struct scheduler *scheduler);

/* Ends the jobs that were cancelled, without running a pass. True: there were some. */
bool scheduler_end_cancelled(struct scheduler *scheduler);

/* An empty `kv` takes over the longest beginning of the ids that is kept, in memory or on disk. Returns its tokens. */
uint32_t scheduler_recall(struct scheduler *scheduler, struct kv *kv, const uint32_t *ids, uint32_t n);

/* Keeps a state for jobs to come, like that of a job that is over. */
void scheduler_remember(struct scheduler *scheduler, const struct kv *kv, const uint32_t *ids, uint32_t n);

/* Lets kept prefixes go until a sequence of so many tokens finds room. False: it does not. */
bool scheduler_make_room(struct scheduler *scheduler, uint32_t n_tokens);

struct scheduler_stats scheduler_stats(const struct scheduler *scheduler);
/* Of one expert, in its slot; 0 when none is streamed. */
uint64_t scheduler_expert_bytes(const struct scheduler *scheduler);

/* What the choice of drafts goes by. */
const struct draft_control *scheduler_draft_control(const struct scheduler *scheduler);
struct prefix_stats scheduler_prefix_stats(const struct scheduler *scheduler);

/* Memory is short: one kept prefix goes. False when none is left. */
bool scheduler_give_up_prefix(struct scheduler *scheduler);

#endif
