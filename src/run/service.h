#ifndef RUN_SERVICE_H
#define RUN_SERVICE_H
/* The engine thread, and how other threads use it: requests in through a bounded queue, events out through a queue for
 * each request.
 *
 * The engine thread opens the engine, owns it and its scheduler, and runs passes for as long as there is work. It never
 * waits for anybody who reads: what happens to a request is put into its ticket. When more than a ceiling given with
 * the request waits to be read, the answer stands still until half of that has been read; the others do not notice.
 *
 * A request is submitted with everything it borrows. It is told by `wake` (engine thread; must not block) that there
 * is something to read, and by `release`, once, that neither the engine nor the ticket's holder needs it any more. */
#include "gram/constraint.h"
#include "plat/clock.h"
#include "plat/keeper.h"
#include "run/answer.h"
#include "run/answer_form.h"
#include "run/engine.h"
#include "run/engine_pool.h"
#include "run/job.h"
#include "run/scheduler.h"

struct service;
struct ticket;

enum service_state {
    SERVICE_LOADING,
    SERVICE_READY,
    SERVICE_FAILED, /* the engine did not open */
    SERVICE_STOPPING,
    SERVICE_RESTARTING, /* its process ended, and another opens it */
    SERVICE_DOWN,       /* its process ended too often */
    SERVICE_PARKED,     /* its process is not there; a request brings it, when it is its turn */
};

struct service_settings {
    struct engine_settings engine; /* n_sequences: how many answers share passes; drafts: for all of them */
    struct file_system fs;
    const struct text_model *model;
    uint32_t n_waiting_max;
    int64_t decode_stall_ns_max;
    const char *ssd_dir; /* where states are kept on disk; NULL: nowhere */
    uint64_t ssd_bytes_max;
    int64_t demote_idle_ns; /* see run/scheduler.h */
    struct write_system ws; /* for ssd_dir */
    struct keeper *keeper;  /* the engine lives in its child, which runs engine_child_run; NULL: it lives here */
    /* It takes turns with other engines, which needs a keeper: it is opened when something is wanted of it, and
     * requests wait until then. One that did not open is tried again after a while. NULL: it is open all the time. */
    struct engine_pool *pool;
    uint32_t pool_member;
    struct clock clock;
    void *context;
    void (*changed)(void *context, enum service_state state, const struct err *err); /* engine thread */
    void (*warned)(void *context, const struct err *warning);                        /* the same; may be NULL */
};

/* Why a request was not taken. */
enum service_refusal {
    SERVICE_TAKEN,
    SERVICE_NOT_YET, /* still loading */
    SERVICE_BROKEN,  /* there is no engine, and why is in *err */
    SERVICE_CLOSING,
    SERVICE_FULL,     /* as many as may wait do so already */
    SERVICE_TOO_LONG, /* no room for one token behind the prompt */
    SERVICE_NO_MEMORY,
};

struct service_request {
    const uint32_t *prompt; /* [n_prompt] */
    uint32_t n_prompt;
    const struct sampling *sampling; /* complete and checked */
    uint64_t key;
    const uint32_t *banned; /* [n_banned] ids that must not come; NULL: those without a token */
    uint32_t n_banned;
    struct answer_request answer;  /* its emit and context are the service's */
    struct constraint *constraint; /* what the answer must look like; NULL: anything */
    bool wants_logprobs;
    uint32_t n_top_logprobs;
    bool wants_prompt_logprobs; /* an event for each prompt token; nothing of the prompt is taken from the cache */
    enum job_priority priority;
    uint32_t n_thinking_max; /* 0: no limit */
    size_t events_bytes_max; /* what may wait to be read before the answer stands still */
    bool wakes_at_end_only;  /* and at its start: what is larger than may wait fails */
    bool keeps_ids;          /* the result has the ids of the answer */
    void *context;
    void (*wake)(void *context);
    void (*release)(void *context);
};

enum service_event_kind {
    SERVICE_STARTED,      /* it left the queue; n_prompt and n_cached are known */
    SERVICE_PROMPT_TOKEN, /* log-probabilities of one token of the prompt */
    SERVICE_TOKEN,        /* an id, in front of whatever text it completes; with wants_logprobs only */
    SERVICE_PART,         /* text, or a call */
    SERVICE_DONE,         /* the last event, always */
};

struct service_result {
    enum stop_reason reason;
    struct err err;                        /* with STOP_ERROR */
    const struct stop_string *stop_string; /* the one that ended it, or NULL */
    struct job_usage usage;
    uint32_t n_reasoning;
    bool context_full;   /* STOP_LENGTH because the context ended before max_tokens */
    const uint32_t *ids; /* [n_ids] with keeps_ids, all that was generated; good until the ticket is released */
    uint32_t n_ids;
    int64_t queued_ns, prompt_ns, decode_ns;
};

struct service_event {
    enum service_event_kind kind;
    struct job_progress progress;        /* STARTED */
    const struct sampled *sampled;       /* TOKEN, PROMPT_TOKEN */
    struct answer_event part;            /* PART */
    const struct service_result *result; /* DONE */
};

/* Starts the thread, which opens the engine. The model must live longer. */
bool service_new(struct service **service, struct alloc *alloc, const struct service_settings *settings,
                 struct err *err) MUST_CHECK;

/* No request is taken from now on. */
void service_close(struct service *service);

/* Cancels all requests, and returns how many there were. */
uint32_t service_cancel_all(struct service *service);

/* Waits until all requests are done, or for `ns`; then cancels what is left, and ends the thread with the engine. The
 * service stays for its tickets. Returns how many requests were cancelled. */
uint32_t service_stop(struct service *service, int64_t ns);

/* After service_stop, and when all tickets are released. NULL is fine. */
void service_free(struct service *service);

enum service_state service_state(struct service *service, struct err *err); /* err: when FAILED; may be NULL */

/* Any thread. On refusal *ticket is NULL, release will not be called, and *err has a message for the client. */
enum service_refusal service_submit(struct service *service, const struct service_request *request,
                                    struct ticket **ticket, struct err *err) MUST_CHECK;

/* Seconds after which trying again makes sense, from how long answers take. */
unsigned service_retry_after_s(struct service *service);

/* The next event or NULL: none now. Good until the next call. One thread at a time. */
const struct service_event *ticket_next(struct ticket *ticket);

/* How far the prompt is, as of now. */
struct job_progress ticket_progress(struct ticket *ticket);
bool ticket_has_started(struct ticket *ticket);

/* Any thread that knows the ticket to be held. */
void ticket_cancel(struct ticket *ticket);
void ticket_end_thinking(struct ticket *ticket);

/* The holder wants nothing more; what still goes on is cancelled. */
void ticket_release(struct ticket *ticket);

/* Numbers, as of the end of the last pass. */
struct service_stats {
    struct scheduler_stats scheduler;
    struct prefix_stats prefixes;
    struct draft_choice drafts; /* as the engine was opened for them */
    char no_drafts[128];        /* why there are none although they were wished for; else empty */
    struct draft_control control;
    uint64_t expert_bytes; /* of one expert in its slot */
    struct ssd_stats ssd;
    struct slots_stats slots;
    struct streamer_stats streamer;
    struct reader_stats reader;
    struct stage_times stages;
    bool is_streamed, has_ssd;
    uint32_t n_open;   /* requests taken and not done */
    uint32_t n_paused; /* of these, answers that stand still for their readers */
    uint64_t n_pauses;
    uint32_t engine_pid, n_restarts;              /* of an engine in a process of its own; 0: there is none */
    uint32_t n_opened;                            /* how often the engine in a process of its own was opened */
    uint64_t budget_bytes, n_shrinks, held_bytes; /* of the memory guard */
    struct form_stats masks;
    uint64_t n_refused_full;
    uint32_t kv_blocks, kv_blocks_max, context_tokens, n_sequences;
    uint64_t kv_block_bytes;
    int64_t decode_ns; /* of all answers that are done, together, and the tokens that came out meanwhile */
    uint64_t n_decoded;
    double last_tokens_per_second;
};
void service_stats(struct service *service, struct service_stats *stats);

/* The plan by which the model was opened; false: none, or not yet. */
bool service_plan(struct service *service, struct plan *plan);

/* The memory budget from now on: between what a step needs and what the model was opened with. Slots go back to the
 * system at once, and come back some time after it was raised. ERR_USER: out of these bounds, or nothing is planned. */
bool service_set_budget(struct service *service, uint64_t bytes, struct err *err) MUST_CHECK;

#endif
