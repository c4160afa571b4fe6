#ifndef RUN_SCHEDULER_INT_H
#define RUN_SCHEDULER_INT_H
/* What the scheduler's two files share: jobs and passes (scheduler.c), drafts (scheduler_drafts.c). */
#include "run/draft_control.h"
#include "run/finish_guess.h"
#include "run/known_states.h"
#include "run/prompt_lookup.h"
#include "run/scheduler.h"

enum { DRAFTS_MAX = PROMPT_LOOKUP_DRAFT_MAX };

/* A job that holds a place. */
struct running {
    struct job *job;
    struct kv kv;
    struct history history; /* prompt and answer; the last id may not be in the state yet */
    uint32_t n_reserved;    /* blocks of state that it may come to hold */
    uint32_t n_max;         /* ids to give out */
    bool answers;           /* the prompt is in the state */
    bool thinks;
    bool runs_alone; /* the last pass it was in failed, and whose fault that was is not known */
    uint32_t n_thought;
    uint32_t first_row, n_rows; /* of the pass that runs; n_rows 0: not in it */
    uint32_t n_kept;            /* of these rows, that hold: the MTP layer learns from them */
    struct job_usage usage;
    uint64_t bytes_before;          /* read from the disk when it was started */
    struct finish_interval promise; /* the first prediction that was made for its prompt, if that is long */
    int64_t promised_ns;
    bool has_promise;

    /* Drafts of its next pass. The first n_certain are forced by a grammar; is_plain: their rows need no logits. */
    uint32_t drafts[DRAFTS_MAX], n_drafts, n_certain;
    bool certain_is_plain;
    struct draft_hits hits;
    struct prompt_lookup lookup;
    bool absorbs;       /* the MTP layer takes in its prompt */
    bool is_absorbed;   /* it takes in what the last pass made certain */
    float *pending;     /* [DRAFTS_PENDING_MAX][hidden] states of the rows behind kv.n_mtp_rows, for the MTP layer */
    uint32_t n_pending; /* kv.n_mtp_rows + n_pending == kv.n_rows between passes */
};

struct scheduler {
    struct alloc *alloc;
    struct engine *engine;
    struct scheduler_settings settings;
    struct sampler sampler;
    struct known_states known;
    struct running *running; /* [n_running], in the order of admission */
    uint32_t n_running;
    struct job **waiting; /* [n_waiting], in the order of arrival */
    uint32_t n_waiting;
    struct running *reader;   /* whose prompt the pass that runs reads, or NULL */
    uint32_t layer;           /* that it is in */
    struct forward_row *rows; /* [pass_rows] */
    struct finish_guess finish;
    int64_t pass_began_ns;
    bool is_in_pass;
    double prompt_row_ns; /* measured: what a row of a prompt adds to a pass; 0: not yet known */
    struct scheduler_stats stats;

    struct forward_mtp_row *mtp_rows; /* [pass_rows]; NULL unless the MTP layer drafts */
    struct draft_row *draft_rows;     /* [n_running_max] */
    struct draft_control control;
    struct draft_forecast forecast; /* of the next pass; ns 0: none */
    int64_t links_ns;               /* that making its drafts took */
};

static inline uint32_t context_of(const struct scheduler *s)
{
    return engine_settings_of(s->engine)->context_tokens;
}

/* --- scheduler_drafts.c --- */

bool drafting_init(struct scheduler *s, struct err *err) MUST_CHECK;
void drafting_fini(struct scheduler *s); /* safe on a half-made scheduler */

/* A job was admitted, with n_cached tokens of its prompt known. */
void drafting_start(struct scheduler *s, struct running *r, uint32_t n_cached);

/* What a pass costs, between two readings. */
struct pass_meter {
    int64_t ns, waited_ns; /* of experts */
    uint64_t n_wanted, n_missed, bytes;
};
struct pass_meter meter_read(const struct scheduler *s);

/* A pass over n_rows rows brought so many ids. */
void drafting_saw_pass(struct scheduler *s, const struct pass_meter *before, const struct pass_meter *after,
                       size_t n_rows, uint64_t n_ids);
/* Of r's drafts in that pass the first n_came came out. */
void drafting_saw_drafts(struct scheduler *s, struct running *r, uint32_t n_came);

/* Behind a pass: what its jobs have verified in their next one. */
void drafting_prepare(struct scheduler *s);

#endif
