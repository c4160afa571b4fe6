#ifndef SERVE_CALL_H
#define SERVE_CALL_H
/* One request for an answer, from its decoded form to the last byte of the reply.
 *
 * A protocol turns a body into a call, and what the call's answer consists of into bytes; everything between, which is
 * the same for all of them, is here: submitting, waiting, collecting, keeping a stream alive, timing out, failing.
 *
 * A worker makes the call and decodes it; from then on it belongs to the net thread. It is counted, because the engine
 * may still hold its ticket when the client has left. */
#include "base/arena.h"
#include "fmt/chat_options.h"
#include "fmt/detokenizer.h"
#include "fmt/token_list.h"
#include "serve/names.h"
#include "serve/server_int.h"
#include "serve/tools.h"

struct json_object;
struct call;

/* A stretch of the answer, in order. Text of one kind that follows on itself is one item. */
struct item {
    enum answer_part part;
    struct buf text; /* of a call: its arguments, one compact JSON object */
    const struct chat_tool *tool;
    char id[NAME_BYTES];      /* what the client knows the call, or the item, by */
    char call_id[NAME_BYTES]; /* where a call has two */
    struct buf logprobs;      /* JSON values, with commas, of the tokens of content */
};

struct call_prompt {
    size_t start; /* in call->ids */
    uint32_t n;
    uint32_t n_added; /* ids in front that the server put there and nobody sees */
};

/* What an item of the Responses API became: a part of a message, or a call in one. */
struct input_place {
    size_t message, call; /* SIZE_MAX: none */
};

struct protocol {
    const char *id_prefix, *item_prefix, *call_prefix;
    const char *input; /* the member of a request that is read */
    /* Fills everything about the answer that is wanted. Worker. */
    bool (*decode)(struct call *call, struct worker *worker, struct problem *problem);
    /* A whole answer. */
    bool (*reply)(struct call *call, struct buf *out, struct err *err);
    /* A stream, each appending to call->out. `part`: text was added to `item`, or it is a new call. */
    bool (*begin)(struct call *call, struct err *err);
    bool (*part)(struct call *call, struct item *item, const struct answer_event *event, struct err *err);
    bool (*keep_alive)(struct call *call, struct err *err);
    bool (*end)(struct call *call, struct err *err);
    bool (*fail)(struct call *call, const struct problem *problem, struct err *err);
    /* One token with its log-probabilities, in front of the text it completes. May be NULL. */
    bool (*token)(struct call *call, const struct sampled *sampled, bool is_prompt, struct err *err);
    /* Text was added to `item`: what waited in call->pending for it finds its place. NULL: it goes to item->logprobs.
     */
    bool (*take)(struct call *call, struct item *item, struct err *err);
    /* The answer to one prompt is complete; its items go afterwards. May be NULL. */
    bool (*answered)(struct call *call, struct err *err);
};

struct call {
    struct server *server;
    struct httpd_exchange *exchange;
    const struct protocol *protocol;
    atomic_uint holders;
    struct call *next, **link; /* in server->calls */

    /* The request, read-only once it is decoded. */
    struct arena arena;
    const struct served_model *model; /* whose answer it is to be */
    struct json_object *body;
    struct json_object *messages; /* what is rendered, if it is not a member of the body */
    struct tools tools;
    struct sampling sampling;
    uint64_t key;
    struct chat_options chat;
    bool is_chat, starts_in_think;
    bool streams, includes_usage, echoes, wants_logprobs, wants_prompt_logprobs;
    uint32_t n_top_logprobs, n_thinking_max;
    uint32_t *banned;
    uint32_t n_banned;
    struct constraint *constraint; /* NULL: none */
    struct token_list ids;
    struct call_prompt *prompts; /* [n_prompts] */
    size_t n_prompts;
    bool is_stored, shows_thinking, wants_summary; /* what single protocols read */
    const char *previous_id;
    struct json_object *input_items;
    struct input_place *input_places; /* [input_items] */
    size_t n_previous_items;          /* of input_items: of the previous response */

    /* The answer; net thread. */
    struct ticket *ticket;
    size_t at_prompt;
    char id[NAME_BYTES];
    int64_t created_s, submitted_ns, last_ns; /* last: bytes were written */
    struct item *items;
    size_t n_items, items_room;
    struct buf pending[4]; /* log-probabilities of tokens whose text is still held back */
    struct service_result result;
    struct job_usage usage; /* of all prompts so far */
    uint32_t n_reasoning, n_cached;
    bool has_started, is_committed, is_complete, is_final, breaks_off;
    struct problem problem;
    struct buf out;
    size_t out_at;

    /* The protocol's own. */
    struct buf text, list[4];
    struct detokenizer shown; /* what the tokens told so far say, for counting */
    uint64_t n_shown;         /* code points */
    uint32_t n_seen_prompt;   /* tokens of the prompt */
    uint32_t sequence;
    size_t n_open; /* items that were begun in the stream */
};

/* Serves a request by a protocol. Worker. */
void call_serve(struct server *server, struct worker *worker, struct httpd_exchange *exchange,
                const struct protocol *protocol);

/* A call with its body parsed, for whoever wants to decode one without an answer. NULL: the problem says why.
 * call_close gives it back (NULL is fine). */
struct call *call_open(struct server *server, struct httpd_exchange *exchange, const struct protocol *protocol,
                       struct problem *problem) MUST_CHECK;
void call_close(struct call *call);

/* Parses a body, which must be an object. */
bool call_parse_body(struct json_object **body, struct server *server, struct httpd_exchange *exchange,
                     struct problem *problem) MUST_CHECK;

/* By request id or answer id. False: there is no such call. */
bool call_cancel(struct server *server, const char *id);
bool call_end_thinking(struct server *server, const char *id);

/* --- for protocols --- */

/* What every endpoint reads in the same way: model, stream, sampling. */
struct field_rule;
bool call_read_common(struct call *call, const struct field_rule *rules, struct problem *problem) MUST_CHECK;

/* That the members which turn thinking on and off have the types they must have. */
bool call_check_thinking(struct call *call, struct problem *problem) MUST_CHECK;

/* Tools, tool_choice and parallel_tool_calls, in the form of a protocol. */
bool call_read_tools(struct call *call, enum tools_wire wire, struct problem *problem) MUST_CHECK;

/* Renders and encodes call->messages or body.messages, with the tools, as the only prompt. */
bool call_encode_chat(struct call *call, struct worker *worker, struct problem *problem) MUST_CHECK;

/* The last thing that decode does: fills what is not given, checks the rest, bans what must not come. */
bool call_finish_decode(struct call *call, struct problem *problem) MUST_CHECK;

/* What the answer must look like: `format` (NULL: none) as response_format, text.format or output_config.format has it,
 * which is `name`, the members that other servers have for it, and tool_choice. At most one of them may constrain text.
 */
bool call_read_constraint(struct call *call, struct json_object *format, const char *name,
                          struct problem *problem) MUST_CHECK;

/* All text of one kind, joined, appended to `out`. */
bool call_join(const struct call *call, enum answer_part part, struct buf *out, struct err *err) MUST_CHECK;
void call_forget_items(struct call *call);
size_t call_count(const struct call *call, enum answer_part part);

#endif
