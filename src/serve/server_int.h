#ifndef SERVE_SERVER_INT_H
#define SERVE_SERVER_INT_H
/* What the files of this folder share about a running server. */
#include "serve/histograms.h"
#include "serve/server.h"

#include <pthread.h>

struct call;
struct own_turns;
struct response_store;

enum { WORKERS = 2 };

struct worker {
    struct server *server;
    struct encoder **encoders; /* [n_models] */
    pthread_t thread;
    bool has_thread;
};

struct server_counts {
    _Atomic uint64_t n_requests, n_ok, n_refused, n_failed, n_left; /* by how they ended; left: the client did */
    _Atomic uint64_t n_prompt_tokens, n_cached_tokens, n_answer_tokens, n_reasoning_tokens;
    _Atomic uint64_t n_answers;
};

struct server {
    struct alloc *alloc;
    struct server_settings settings;
    struct httpd_server *http;
    struct worker workers[WORKERS];
    struct server_counts counts;
    struct response_store *responses;
    struct own_turns **own_turns; /* [n_models]: ids mean something to one model only */
    struct histograms histograms;
    int64_t started_ns, created_s; /* created_s: Unix time */
    atomic_bool is_draining;

    pthread_mutex_t lock; /* for everything below */
    pthread_cond_t work;
    struct httpd_exchange **queue; /* [n_queue_max] a ring; held */
    size_t n_queue_max, n_queued, first_queued;
    bool ends;
    struct call *calls;
};

/* A request as the routes see it; lives as long as its exchange. */
struct visit {
    struct server *server;
    const struct route *route;
    enum error_family family;
    char target[160]; /* what stands for * in the path */
    int64_t began_ns;
    unsigned status;
};

/* Answers in the shape of the visit's family. */
void server_refuse(struct httpd_exchange *exchange, const struct problem *problem);

/* Answers 200 with a JSON body, which changes hands; or says that it could not be written. */
void server_reply(struct httpd_exchange *exchange, struct buf *body, bool ok, const struct err *err);

/* One line for the log: "event=... " and what is given. */
void server_log(struct server *server, const char *format, ...) PRINTF_LIKE(2, 3);

/* By its name; NULL: there is none. */
const struct served_model *server_find_model(const struct server *server, const char *name);

/* All names, in quotes and with commas, as messages list them. */
void server_list_models(const struct server *server, char *text, size_t room);

/* What a worker and the server have for each model. */
struct encoder *server_encoder(const struct worker *worker, const struct served_model *model);
struct own_turns *server_own_turns(const struct server *server, const struct served_model *model);

int64_t server_now(const struct server *server);
int64_t server_unix_time(void);

#endif
