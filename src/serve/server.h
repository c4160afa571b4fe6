#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H
/* The HTTP API: OpenAI and Anthropic clients on one side, services that run a model each on the other. A request says
 * which model it wants; one that names none, or none of ours, gets the first.
 *
 * Requests are decoded, rendered and tokenized by a few workers, so that neither sockets nor passes wait for them.
 * Everything that is refused is refused before the first byte of an answer. */
#include "base/alloc.h"
#include "fmt/chat_options.h"
#include "run/service.h"
#include "serve/access.h"
#include "serve/httpd.h"

struct server;

/* One of the models that are served. */
struct served_model {
    const char *name;        /* what /v1/models lists, and requests say */
    const char *fingerprint; /* of everything that alters answers */
    const char *numerics, *kv;
    const struct text_model *text;
    struct service *service;
    const struct sampling *sampling; /* complete: what a request does not say */
    struct chat_options chat;
    uint32_t context_tokens;
    bool is_isolated; /* the engine is in a process of its own */
};

struct server_settings {
    const char *host;
    uint16_t port;
    unsigned n_connections_max;
    unsigned n_per_address_max; /* where others than this machine can ask; here they share all */
    size_t body_bytes_max;
    int64_t queue_ns_max; /* waiting longer than this fails */
    unsigned silence_s, stall_s;
    int64_t keep_alive_ns;       /* of silence in a stream */
    int64_t whole_keep_alive_ns; /* and in front of an answer that is not streamed, whose status is then 200 whatever
                                    becomes of it; 0: silence, and the right status */
    size_t backlog_bytes_max;    /* of a stream that its client does not read: behind it the answer stands still */

    const struct access_rules *access;
    const struct served_model *models; /* [n_models], at least one, of different names */
    size_t n_models;
    bool strict_model, strict_fields;
    bool both_reasoning_fields; /* chat has reasoning under the name `reasoning` too */
    struct clock clock;

    void *context;
    void (*log)(void *context, const char *line); /* key=value words; any thread */
};

/* Listens from now on. Settings and what they point to must outlive the server. */
bool server_start(struct server **server, struct alloc *alloc, const struct server_settings *settings,
                  struct err *err) MUST_CHECK;

uint16_t server_port(const struct server *server);
const char *server_address(const struct server *server);

/* Takes no more clients and no more work; what goes on goes on. */
void server_drain(struct server *server);

/* After service_stop: ends what is left. NULL is fine. */
void server_stop(struct server *server);

#endif
