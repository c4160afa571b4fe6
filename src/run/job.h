#ifndef RUN_JOB_H
#define RUN_JOB_H
/* What somebody wants generated, and what they are told while it happens.
 *
 * A job is a prompt of ids with rules for picking. Whoever submits it keeps the job and everything it borrows until
 * `done` was called. All calls come from the engine thread, in the order of the answer; they must not block. Only
 * job_cancel, job_end_thinking and job_resume may be called from any thread; `cancel` may be set by any thread. */
#include "run/sampler.h"
#include "run/stop.h"
#include <stdatomic.h>

enum job_priority { JOB_INTERACTIVE, JOB_BACKGROUND };

struct job_progress {
    uint32_t n_prompt, n_cached; /* tokens of the prompt, and how many of them were known; where the MTP layer drafts, a
                                    few of these are computed again for it */
    uint32_t n_done;             /* prompt tokens in the state so far */
    uint32_t layer, n_layers;    /* of the pass that runs */
    uint64_t bytes_read;         /* from the disk since the job was started */
    int64_t left_ns_low, left_ns_high; /* until the prompt is in the state, probably; both 0: not known yet */
};

struct job_usage {
    uint32_t n_prompt, n_cached, n_generated;
    uint32_t n_passes;              /* that this job had decode rows in */
    uint32_t n_drafted, n_accepted; /* without those that a grammar forced */
    uint32_t n_forced;              /* ids that a grammar forced and that took no pass of their own */
};

struct job_result {
    enum stop_reason reason; /* STOP_ERROR: see err */
    struct err err;
    struct job_usage usage;
    uint32_t n_held; /* ids of the sequence that were in the state when it ended */
};

struct job_events {
    void *context;
    /* The job left the queue and holds its place. May be NULL. */
    void (*started)(void *context, const struct job_progress *progress);
    /* While the prompt is read: at least once a pass. May be NULL. */
    void (*progress)(void *context, const struct job_progress *progress);
    /* Each id of the answer. STOP_NONE: go on; anything else ends the job with that reason, this id included. */
    enum stop_reason (*token)(void *context, const struct sampled *token);
    /* Exactly once, also for a job that was cancelled or never started. */
    void (*done)(void *context, const struct job_result *result);
    /* Ids that may come next (layout of sampler_input.allowed) behind those that `token` was told; NULL result: any.
     * May be NULL. */
    const uint64_t *(*allowed)(void *context);
    /* Up to n_max ids that must come behind those that `token` was told, one after the other: nothing else would be
     * allowed in their places. Returns how many. May be NULL. */
    uint32_t (*forced)(void *context, uint32_t *ids, uint32_t n_max);
    /* What is verified in the place of a draft that the MTP layer made; `at`: its place in prompt and answer. For
     * measurements of what drafts would bring that come true as often as asked. May be NULL. */
    uint32_t (*draft)(void *context, uint32_t at, uint32_t id);
    /* With this, every token of the prompt gets logits, and so nothing of the prompt is taken from the cache: called
     * with the logits behind each position, in order. False, with the reason in *err, ends the job. May be NULL. */
    bool (*prompt_logits)(void *context, uint32_t position, const float *logits, struct err *err);
};

/* Thinking that can be brought to its end. While a job thinks, the id `end` is what closes it. */
struct job_thinking {
    bool is_open;        /* the prompt ends inside an open think block */
    uint32_t begin, end; /* ids of <think> and </think> */
    uint32_t n_max;      /* thinking tokens before the end is forced; 0: no limit */
};

struct job {
    const uint32_t *prompt; /* [n_prompt] borrowed */
    uint32_t n_prompt;
    const struct sampler_rules *rules;
    enum job_priority priority;
    struct job_thinking thinking;
    struct job_events events;
    const atomic_bool *cancel; /* once it is true, the job is cancelled, even if it is taken back; NULL: no such flag */

    atomic_bool is_cancelled, ends_thinking; /* set by anyone, read by the engine thread */
    atomic_bool is_paused;                   /* set by the engine thread, cleared by anyone */
};

static inline void job_cancel(struct job *job)
{
    atomic_store(&job->is_cancelled, true);
}

/* For whoever runs the job. */
static inline bool job_is_cancelled(struct job *job)
{
    if (job->cancel && atomic_load(job->cancel)) job_cancel(job);
    return atomic_load(&job->is_cancelled);
}

/* The running answer's thinking ends with its next token. Nothing happens when it does not think. */
static inline void job_end_thinking(struct job *job)
{
    atomic_store(&job->ends_thinking, true);
}

/* The answer stands still: it gets no rows in passes until it is resumed. A prompt is read all the same. */
static inline void job_pause(struct job *job)
{
    atomic_store(&job->is_paused, true);
}
static inline void job_resume(struct job *job)
{
    atomic_store(&job->is_paused, false);
}
static inline bool job_is_paused(struct job *job)
{
    return atomic_load(&job->is_paused);
}

#endif
