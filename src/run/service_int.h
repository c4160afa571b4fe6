#ifndef RUN_SERVICE_INT_H
#define RUN_SERVICE_INT_H
/* What the files of the service share: service.c (the doors), ticket.c (one request, and what its reader is told) and
 * engine_room.c (the thread that runs jobs).
 *
 * Who owns what: the inbox, the state and the published numbers are under service->lock; a ticket's events are under
 * its own lock; engine, scheduler, and the answer inside a ticket belong to the engine thread. No lock is held while a
 * request is told something, and none while a pass runs. */
#include "fmt/token_list.h"
#include "run/answer_form.h"
#include "run/service.h"

#include <pthread.h>

struct event_node {
    struct event_node *next;
    size_t bytes;
    struct service_event event;
    _Alignas(struct sampled) char payload[]; /* what the event points to */
};

struct ticket {
    struct service *service;
    struct ticket *next; /* in the inbox */
    struct service_request request;
    struct job job;
    struct sampler_rules rules;
    struct answer *answer;
    struct answer_form *form; /* NULL: no constraint */
    uint32_t n_calls;
    struct token_list ids; /* of the answer, where they are wanted */
    uint32_t number;       /* by which a process knows it; never 0 */
    uint32_t told_flags;
    bool is_sent;
    struct err failure; /* of ours, which ends the job; kind ERR_NONE: none */
    int64_t submitted_ns, started_ns, answered_ns;
    atomic_uint holders;

    pthread_mutex_t lock; /* for everything below */
    struct event_node *first, *last, *current;
    size_t bytes;
    struct event_node *done; /* made in advance, so that the end can always be told; its payload is the result */
    struct job_progress progress;
    bool has_started;
};

struct service {
    struct alloc *alloc;
    struct service_settings settings;
    pthread_t thread;
    bool has_thread;
    struct engine *engine; /* engine thread, as is the next */
    struct scheduler *scheduler;
    struct ssd_cache *ssd; /* NULL: none */
    struct form_tables forms;

    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t work, idle;
    enum service_state state;
    struct err failure;
    struct ticket *inbox, **inbox_end;
    bool closes, stops;
    int wake_fds[2]; /* a pipe that wakes the thread of a remote engine; -1: none */
    uint32_t engine_pid, n_restarts, n_opened, n_numbers;
    int64_t retry_ns;      /* before then an engine of a pool that did not open is not tried again; 0: it opened */
    bool is_nudged;        /* something that the engine thread should look at changed */
    uint64_t budget_bytes; /* asked for and not yet given to the engine; 0: none */
    uint32_t n_open;
    struct ticket **open; /* [n_open], room for all that may be taken */
    uint64_t n_refused_full, n_pauses;
    double answer_s; /* how long answers take, lately */
    struct service_stats stats;
    struct plan plan;
    bool has_plan;
};

static inline uint32_t service_open_max(const struct service *s)
{
    return s->settings.engine.n_sequences + s->settings.n_waiting_max;
}

/* --- ticket.c --- */

/* With two holders, the engine and the caller. */
struct ticket *ticket_new(struct service *service, const struct service_request *request, struct err *err) MUST_CHECK;
void ticket_put(struct ticket *ticket); /* one holder less */

/* The end of a ticket's job, also of one that never got to a scheduler. Engine thread; the engine's hold goes. */
void ticket_see_done(struct ticket *ticket, const struct job_result *job);

/* A token of the prompt with its log-probabilities; what cannot be told ends the job. */
void ticket_see_prompt_token(struct ticket *ticket, const struct sampled *sampled);

/* --- service.c --- */

/* A service without a thread: no more than a place for an engine. service_free gives it back. */
bool service_make(struct service **service, struct alloc *alloc, const struct service_settings *settings,
                  struct err *err) MUST_CHECK;

/* --- service_news.c --- */

void service_count_done(struct service *service, const struct ticket *ticket, const struct service_result *result);
void service_count_pause(struct service *service);

/* The engine thread looks at its jobs again. Any thread; wake is for who holds the lock. */
void service_nudge(struct service *service);
void service_wake(struct service *service);

/* --- engine_room.c --- */

void *engine_room_run(void *service); /* the engine thread */
bool engine_room_open(struct service *service, struct err *err) MUST_CHECK;
void engine_room_close(struct service *service); /* also when nothing was opened; after the engine thread */
void engine_room_publish(struct service *service);
bool engine_room_make_form(struct service *service, struct ticket *ticket, struct err *err) MUST_CHECK;
/* Waits, if told to, until something comes in, is nudged, or is due; then the budget that was asked for is set. */
void engine_room_wait(struct service *service, bool waits);

/* --- service_remote.c --- */

void *service_remote_run(void *service); /* the engine thread where the engine is in another process */

/* Passes on what the engine and the disk cache have to say. Engine thread, or after it. */
void engine_room_warn(struct service *service);

#endif
