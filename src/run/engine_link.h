#ifndef RUN_ENGINE_LINK_H
#define RUN_ENGINE_LINK_H
/* What goes between the process that serves and the one that holds the engine, over a stream: frames, each a head and a
 * payload. Both are the same program, so structs travel as they are; nothing in a payload is a pointer that matters.
 *
 * The engine's side runs jobs as a scheduler does, and every call of a job's events becomes a frame. Those that return
 * something wait for a REPLY, which is the next frame of that kind; there is one such call at a time. */
#include "base/buf.h"
#include "run/job.h"
#include "run/service.h"

enum link_kind {
    /* to the engine */
    LINK_SUBMIT, /* struct link_job, then its lists */
    LINK_FLAGS,  /* uint32_t of link_flag */
    LINK_REPLY,
    LINK_BUDGET, /* uint64_t */
    LINK_STOP,
    /* from the engine */
    LINK_OPENED,       /* struct link_opened */
    LINK_STATS,        /* struct service_stats */
    LINK_WARNING,      /* struct err */
    LINK_STARTED,      /* struct job_progress, as PROGRESS */
    LINK_PROGRESS,     /* */
    LINK_PROMPT_TOKEN, /* struct sampled */
    LINK_TOKEN,        /* struct sampled; the reply is a struct link_verdict, then the ids that end the answer now */
    LINK_ALLOWED,      /* the reply is a mask */
    LINK_FORCED,       /* uint32_t, how many at most; the reply is ids */
    LINK_DONE,         /* struct job_result */
    LINK_KINDS
};

enum link_flag { LINK_CANCELLED = 1, LINK_ENDS_THINKING = 2, LINK_PAUSED = 4 };

struct link_head {
    uint32_t kind, job;
    uint64_t bytes; /* of the payload */
};

struct link_job {
    struct sampling sampling; /* its lists follow */
    uint64_t key;
    enum sampler_order order;
    enum job_priority priority;
    struct job_thinking thinking;
    bool wants_logprobs, wants_prompt, has_form;
    uint32_t n_top_logprobs;
    uint32_t n_prompt, n_eos, n_banned, n_bias, n_stop_ids; /* lists, in this order */
};

struct link_verdict {
    enum stop_reason reason;
    uint32_t n_eos;
};

struct link_opened {
    bool ok;
    struct err err; /* when not ok */
    bool has_plan;
    struct plan plan;
    uint32_t pid;
};

struct link_part {
    const void *data;
    size_t bytes;
};

enum { LINK_PARTS_MAX = 6 };
#define LINK_BYTES_MAX (UINT64_C(1) << 30)

/* Whole frames; callers see to it that two threads do not send at once. False: the other side is gone. */
bool link_send(int fd, enum link_kind kind, uint32_t job, const struct link_part *parts, size_t n);

/* The next frame, its payload in `payload`, which must have been made. False: the other side is gone or speaks another
 * language. */
bool link_read(int fd, struct link_head *head, struct buf *payload);

/* Copies a payload that must be exactly this large. */
bool link_take(const struct buf *payload, void *out, size_t bytes) MUST_CHECK;

#endif
