#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H
/* libweir: a very large mixture-of-experts model on a machine with far less memory, as a library.
 *
 *   struct weir_model    a model folder: tokenizer, chat template, memory plan. Cheap; opens no weights.
 *   struct weir_prompt   token ids to answer, made of a conversation, of a text or of ids.
 *   struct weir_engine   the weights, opened by a plan that keeps to a budget of memory.
 *   struct weir_session  one conversation on an engine, turn after turn.
 *
 * Errors are values: whatever can fail returns a status, WEIR_OK being 0, and says in *error what happened, where, and
 * what to do. `error` may be NULL. After a failure nothing has changed and nothing is to be given back, unless a
 * function says otherwise.
 *
 * Ownership: x_free and x_close take what x_open, x_new and their like gave; NULL is fine. What a function gives as a
 * plain pointer (ids, texts) goes back by weir_free. A const pointer that is returned or handed to a callback belongs
 * to the library. What is passed in is copied or read during the call, except for what weir_start says.
 *
 * Threads: a model may be used by any number of threads. An engine with its sessions is used by one thread at a time,
 * which need not always be the same; a call that finds another thread inside, or that comes from a callback, is refused
 * with WEIR_BUSY. weir_cancel and weir_end_thinking may be called at any time by any thread and by signal handlers. A
 * prompt may be read by any number of threads.
 *
 * Texts of errors call settings as the command line does: --ram-budget is ram_budget_bytes.
 *
 * The library prints nothing, ends no process, reads no environment, and keeps nothing outside of what it returns.
 *
 * Compatibility: structs that can grow begin with their size, which their init function sets (or the caller, where a
 * struct is filled by the library). A program that was built with an older header runs with a newer library; one built
 * with a newer header runs with an older library as long as it leaves alone what that does not know, and is refused
 * with WEIR_USER otherwise. Names of enums are only added. The other structs are complete. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

/* "0.1.0", of the library that runs. */
WEIR_API const char *weir_version(void);

enum weir_status {
    WEIR_OK,
    WEIR_FAILED,    /* for a reason that is none of these */
    WEIR_USER,      /* the call is wrong: an argument, an option, a message */
    WEIR_FIT,       /* the model does not fit the budget; the text names what to change, and to what */
    WEIR_DATA,      /* a file is damaged, incomplete, or of a kind that is not supported */
    WEIR_IO,        /* the operating system could not read or write */
    WEIR_NOMEM,     /* memory ran out */
    WEIR_BUSY,      /* a bound is reached, something is in use, or a call came out of order */
    WEIR_CANCELLED, /* somebody asked for it to stop */
};

struct weir_error {
    enum weir_status status;
    char text[1024]; /* one line, without its full stop */
};

/* "ok", "failed", "user", and so on. */
WEIR_API const char *weir_status_name(enum weir_status status);

/* Gives back ids or a text, before its model is closed. NULL is fine. */
WEIR_API void weir_free(void *block);

/* As many bytes as a text has up to its NUL. */
#define WEIR_WHOLE SIZE_MAX

/* ---- models ---- */

struct weir_model;

/* `path`: a folder with a model, or a tokenizer.json alone. Nothing is read yet but what kind of path it is: files are
 * read by the first call that needs them, once, and an error about one comes from that call. */
WEIR_API enum weir_status weir_model_open(struct weir_model **model, const char *path, struct weir_error *error);

/* WEIR_BUSY while prompts, plans or engines of it exist; then it stays open. */
WEIR_API enum weir_status weir_model_close(struct weir_model *model, struct weir_error *error);

struct weir_model_facts {
    size_t size;
    bool has_tokenizer; /* without one a model is driven by ids */
    uint32_t n_logits;  /* rows of the output head; 0 for a tokenizer alone */
    uint32_t n_tokens;  /* ids from there on have no token; 0 without a tokenizer */
    uint32_t n_layers, n_experts, n_experts_per_token;
};
/* Set facts->size first. */
WEIR_API enum weir_status weir_model_describe(struct weir_model *model, struct weir_model_facts *facts,
                                              struct weir_error *error);

/* A sentence for people when the folder brings a chat template whose prompts would differ from those made here, else
 * "". To be given back by weir_free. */
WEIR_API enum weir_status weir_model_template_note(struct weir_model *model, char **note, struct weir_error *error);

/* Whether markers such as <|user|> in a text become control tokens. Not, for whatever comes from elsewhere. */
enum weir_markers { WEIR_MARKERS_ARE_TEXT, WEIR_MARKERS_ARE_TOKENS };

/* The ids of a text, nothing added. The text must be UTF-8; one that is not is WEIR_USER and tells where. */
WEIR_API enum weir_status weir_tokenize(struct weir_model *model, const char *text, size_t bytes,
                                        enum weir_markers markers, uint32_t **ids, size_t *n_ids,
                                        struct weir_error *error);

/* The text of ids, with a NUL behind it that *bytes (may be NULL) does not count. skip_special leaves out control
 * tokens. Always UTF-8: bytes that form no character become U+FFFD. */
WEIR_API enum weir_status weir_detokenize(struct weir_model *model, const uint32_t *ids, size_t n_ids,
                                          bool skip_special, char **text, size_t *bytes, struct weir_error *error);

/* ---- prompts ---- */

struct weir_prompt;

enum weir_thinking { WEIR_THINKING_OFF, WEIR_THINKING_MAX, WEIR_THINKING_HIGH };

struct weir_chat_options {
    size_t size;
    enum weir_thinking thinking;
    bool keep_reasoning;       /* of answers before the last question too */
    bool no_generation_prompt; /* end behind the last message, not where the answer begins */
    enum weir_markers markers; /* in what the messages say */
};
WEIR_API void weir_chat_options_init(struct weir_chat_options *options, size_t size);

struct weir_message {
    const char *role;      /* "system", "user", "assistant" or "tool" */
    const char *text;      /* [bytes] UTF-8 */
    size_t bytes;          /* or WEIR_WHOLE */
    const char *reasoning; /* of an assistant; NULL: none */
    size_t reasoning_bytes;
};

/* A conversation of texts. `options` NULL: as initialised. */
WEIR_API enum weir_status weir_prompt_of_messages(struct weir_prompt **prompt, struct weir_model *model,
                                                  const struct weir_message *messages, size_t n_messages,
                                                  const struct weir_chat_options *options, struct weir_error *error);

/* A conversation as JSON, in the form of the chat completions API: an array of messages, or an object with messages,
 * tools, add_generation_prompt, enable_thinking, thinking, reasoning_effort, reasoning, clear_thinking and
 * chat_template_kwargs, which are stronger than `options`. Another member is WEIR_USER. */
WEIR_API enum weir_status weir_prompt_of_chat(struct weir_prompt **prompt, struct weir_model *model, const char *json,
                                              size_t bytes, const struct weir_chat_options *options,
                                              struct weir_error *error);

/* A text to be continued, markers in it being tokens, behind the ids without which the model never saw a text. */
WEIR_API enum weir_status weir_prompt_of_text(struct weir_prompt **prompt, struct weir_model *model, const char *text,
                                              size_t bytes, struct weir_error *error);

/* Ids as they are. */
WEIR_API enum weir_status weir_prompt_of_ids(struct weir_prompt **prompt, struct weir_model *model, const uint32_t *ids,
                                             size_t n_ids, struct weir_error *error);
WEIR_API void weir_prompt_free(struct weir_prompt *prompt);

WEIR_API const uint32_t *weir_prompt_ids(const struct weir_prompt *prompt, size_t *n_ids);
/* What a conversation was rendered to; "" for other prompts. */
WEIR_API const char *weir_prompt_text(const struct weir_prompt *prompt, size_t *bytes);

/* ---- settings ---- */

/* As much as this machine has to give: memory available to the process, less a reserve. */
#define WEIR_AUTO UINT64_MAX

enum weir_numerics { WEIR_NUMERICS_EXACT, WEIR_NUMERICS_INT8 };
enum weir_kv { WEIR_KV_F32, WEIR_KV_F16, WEIR_KV_Q8 };
enum weir_direct { WEIR_DIRECT_AUTO, WEIR_DIRECT_ON, WEIR_DIRECT_OFF };
enum weir_draft { WEIR_DRAFT_AUTO, WEIR_DRAFT_OFF, WEIR_DRAFT_NGRAM, WEIR_DRAFT_MTP };

/* How an engine is opened. Zero means the default where nothing else is said. */
struct weir_settings {
    size_t size;
    uint64_t ram_budget_bytes;   /* everything the process may hold; WEIR_AUTO */
    uint64_t prompt_cache_bytes; /* for the state of earlier prompts, inside the budget; WEIR_AUTO */
    double experts_resident;     /* at most this share of the experts in memory, up to 1; 0: as many as fit */
    uint32_t context_tokens;     /* of one sequence; 0: 4096 */
    uint32_t n_sequences;        /* answers that share passes; 0: 1 */
    uint32_t n_threads;          /* 0: the physical cores that this process may use */
    uint32_t prefill_chunk;      /* tokens of a prompt in one pass; 0: as many as memory allows sensibly */
    enum weir_numerics numerics; /* int8 rounds what meets quantised weights to 8 bits: faster, other answers */
    enum weir_kv kv;             /* how state is stored; anything but f32 changes results slightly */
    const char *without_cpu;     /* instruction sets not to use, such as "avx512,avx2"; NULL: none */
    double latent_norm_eps;      /* below 0: what the model says, which is the default */

    /* Reading. */
    enum weir_direct direct_io; /* auto: what a measurement finds faster */
    uint32_t io_depth;          /* reads in flight */
    bool no_prefetch;           /* do not read ahead what the next layer will probably want */
    const char *policy;         /* which expert makes room, such as "lru"; NULL: the best one known */
    const char *const *mirrors; /* [n_mirrors] folders with copies of the model's files, on other drives */
    uint32_t n_mirrors;
    const char *usage_folder; /* where it is remembered which experts were used; must exist; NULL: nowhere */
    const char *usage_import; /* start from another engine's .coli_usage; NULL: do not */

    /* Drafts, several of which the model verifies in one pass. They change no answer. */
    enum weir_draft draft;         /* auto: by the model's MTP layer, if it has one; ngram: from earlier in the text */
    uint32_t n_drafts;             /* of one answer and pass; 0: as many as pay */
    uint32_t ngram_min, ngram_max; /* tokens that must match; 0: 1 and 3 */

    /* States of conversations on disk, which later engines find again. */
    const char *ssd_cache;        /* a folder; NULL: none */
    uint64_t ssd_cache_bytes_max; /* 0: 50 GB */
};
WEIR_API void weir_settings_init(struct weir_settings *settings, size_t size);

/* ---- the memory plan ---- */

struct weir_plan;

/* What an engine with these settings (NULL: as initialised) takes, from the model's headers alone, in less than a
 * second. memory_bytes: of another machine, that does nothing else; 0: this one. disk_bytes_per_second: for a
 * prediction of speed; 0: none. On WEIR_FIT *plan is there too, with all lines but the slots; on other failures it is
 * NULL. */
WEIR_API enum weir_status weir_plan_make(struct weir_plan **plan, struct weir_model *model,
                                         const struct weir_settings *settings, uint64_t memory_bytes,
                                         uint64_t disk_bytes_per_second, struct weir_error *error);
WEIR_API void weir_plan_free(struct weir_plan *plan);

struct weir_plan_facts {
    size_t size;
    bool fits;
    uint64_t budget_bytes, used_bytes;
    const char *budget_source; /* for people; lives as long as the plan, as does rate_derivation */
    uint32_t n_items;
    uint32_t prefill_chunk;     /* tokens of a prompt in one pass */
    uint32_t n_slots;           /* experts in memory */
    uint64_t slots_bytes;       /* of all slots, the last line */
    uint64_t slot_bytes;        /* of one */
    bool is_thin;               /* fewer slots than one token's experts */
    uint64_t token_bytes;       /* of the experts of one token */
    double hits_low, hits_high; /* share of them that is found in memory, predicted */
    double rate_low, rate_high; /* tokens a second, predicted; 0 without a disk rate */
    const char *rate_derivation;
};
/* Set facts->size first. */
WEIR_API enum weir_status weir_plan_describe(const struct weir_plan *plan, struct weir_plan_facts *facts,
                                             struct weir_error *error);

/* Line i, below n_items: its name, its bytes and how they came about. Any of the three may be NULL. */
WEIR_API enum weir_status weir_plan_item(const struct weir_plan *plan, uint32_t i, const char **name, uint64_t *bytes,
                                         const char **derivation, struct weir_error *error);

/* ---- engines ---- */

struct weir_engine;

/* Opens the weights; the model must stay open. A plan that does not fit is WEIR_FIT, before anything large is opened.
 * `settings` NULL: as initialised. */
WEIR_API enum weir_status weir_engine_open(struct weir_engine **engine, struct weir_model *model,
                                           const struct weir_settings *settings, struct weir_error *error);

/* WEIR_BUSY while sessions of it exist; then it stays open. */
WEIR_API enum weir_status weir_engine_close(struct weir_engine *engine, struct weir_error *error);

/* The plan it was opened by. WEIR_USER for a checkpoint, which is expanded into memory as a whole. */
WEIR_API enum weir_status weir_engine_plan(struct weir_engine *engine, struct weir_plan **plan,
                                           struct weir_error *error);

/* Things that people should know (a setting that could not be kept, say), each once, oldest first; false: nothing new.
 * Cut to `room` bytes with its NUL. */
WEIR_API bool weir_engine_note(struct weir_engine *engine, char *text, size_t room);

struct weir_counters {
    size_t size;
    bool is_streamed; /* else all weights are in memory, and the next lines are 0 */
    uint32_t n_slots, n_slots_resident;
    uint64_t n_hits, n_misses; /* wants of an expert that found it in memory; that had to wait for the disk */
    uint64_t expert_bytes_read;
    int64_t expert_wait_ns;
    uint64_t n_passes, n_prompt_tokens, n_cached_tokens, n_generated; /* cached: of prompts, and not read again */
    uint64_t n_drafted, n_accepted;
    uint32_t n_waiting, n_running; /* answers */
    uint32_t n_state_blocks, n_state_blocks_max;
    uint64_t state_block_bytes;
    uint64_t n_states_saved, n_states_restored, n_state_failures; /* of the cache on disk */
    uint64_t peak_memory_bytes;                                   /* of the whole process */
    /* Drafts: where they come from (never auto), passes that had some, tokens that a constraint forced and that took no
     * pass of their own, what making and verifying them added, and what they brought over no drafts: as foreseen pass
     * by pass, and as it came; below 0: lost. */
    enum weir_draft draft;
    uint64_t n_draft_passes, n_forced, n_draft_experts, draft_bytes;
    int64_t draft_expected_gain_ns, draft_gain_ns;
};
/* Set counters->size first. */
WEIR_API enum weir_status weir_engine_counters(struct weir_engine *engine, struct weir_counters *counters,
                                               struct weir_error *error);

/* ---- sessions and answers ---- */

struct weir_session;

WEIR_API enum weir_status weir_session_new(struct weir_session **session, struct weir_engine *engine,
                                           struct weir_error *error);
/* An answer that still goes on is given up, and tells nothing more. WEIR_BUSY from a callback, or while another thread
 * is in the engine; then the session stays. */
WEIR_API enum weir_status weir_session_free(struct weir_session *session, struct weir_error *error);

enum weir_event_kind {
    WEIR_EVENT_PROGRESS,  /* the prompt is being read: n_read of n_prompt */
    WEIR_EVENT_TOKEN,     /* one id, in front of whatever text it completes: id, and logprob and top if asked for */
    WEIR_EVENT_REASONING, /* text: the model thinks */
    WEIR_EVENT_TEXT,      /* text of the answer */
    WEIR_EVENT_CALL,      /* a whole call of a tool: name, and its arguments as one JSON object in text */
};

struct weir_logprob {
    uint32_t id;
    double logprob; /* natural */
};

/* Made by the library, good during the callback. Texts are UTF-8, whole characters, and final. */
struct weir_event {
    enum weir_event_kind kind;
    const char *text; /* [bytes] with a NUL behind it */
    size_t bytes;
    const char *name;
    uint32_t id;
    double logprob;
    const struct weir_logprob *top; /* [n_top] the likeliest, best first */
    size_t n_top;
    uint32_t n_read, n_prompt;
};

/* Comes on the thread that is in weir_generate or weir_step. Anything but 0 ends the answer as cancelled. */
typedef int weir_event_fn(void *context, const struct weir_event *event);

struct weir_bias {
    uint32_t id;
    float value; /* added to its logit; -100 and less: the id never comes */
};

enum weir_constraint {
    WEIR_CONSTRAINT_NONE,
    WEIR_CONSTRAINT_JSON,   /* any JSON object */
    WEIR_CONSTRAINT_SCHEMA, /* JSON that a schema accepts; the schema, in JSON */
    WEIR_CONSTRAINT_REGEX,
    WEIR_CONSTRAINT_GRAMMAR, /* GBNF */
    WEIR_CONSTRAINT_CHOICE,  /* one of several texts; a JSON array of strings */
};

#define WEIR_WINDOW_ALL (-1)    /* penalties look at prompt and answer */
#define WEIR_WINDOW_ANSWER (-2) /* at the answer alone */

/* How to answer. */
struct weir_request {
    size_t size;
    weir_event_fn *event; /* may be NULL */
    void *context;        /* of event */

    /* Which token: the defaults are the model's. */
    double temperature; /* 0..2; 0 takes the likeliest */
    double top_p, min_p;
    int64_t top_k; /* 0: all */
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t repetition_window, presence_window, frequency_window; /* tokens looked back at, or WEIR_WINDOW_... */
    bool has_seed; /* the same seed gives the same answer; without one each is another */
    uint64_t seed;
    const struct weir_bias *bias; /* [n_bias] */
    size_t n_bias;
    bool wants_logprobs;
    uint32_t n_top_logprobs; /* up to 20 */

    /* Where it ends. */
    uint32_t max_tokens, min_tokens;
    bool ignore_eos;
    const char *const *stop; /* [n_stop] texts that end the answer in front of them, up to 16 */
    size_t n_stop;
    const uint32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;

    /* What it looks like. */
    uint32_t thinking_max; /* tokens of thinking, then it is brought to its end; 0: no limit */
    bool one_call;         /* the first call of a tool ends the answer */
    enum weir_constraint constraint;
    const char *constraint_text; /* [constraint_bytes] */
    size_t constraint_bytes;     /* or WEIR_WHOLE */

    bool is_background; /* others are served first */
};
/* Fills in the defaults, those of the model's generation_config.json included. */
WEIR_API enum weir_status weir_request_init(struct weir_request *request, size_t size, struct weir_model *model,
                                            struct weir_error *error);

/* Everything in it but the constraint, so that a wrong one can be refused before an engine is opened. */
WEIR_API enum weir_status weir_request_check(const struct weir_request *request, struct weir_model *model,
                                             struct weir_error *error);

enum weir_reason {
    WEIR_REASON_NONE,     /* it goes on, or there was none */
    WEIR_REASON_END,      /* the model ended its turn */
    WEIR_REASON_STOP,     /* a stop text or a stop id */
    WEIR_REASON_COMPLETE, /* the constraint allows nothing more */
    WEIR_REASON_CALL,     /* at least one call of a tool was made */
    WEIR_REASON_LENGTH,   /* max_tokens, or the context is full */
    WEIR_REASON_CANCELLED,
    WEIR_REASON_ERROR,
};
/* "none", "eos", "stop", "complete", "tool", "length", "cancelled", "error". */
WEIR_API const char *weir_reason_name(enum weir_reason reason);

struct weir_result {
    size_t size;
    enum weir_reason reason;
    const char *stop; /* the stop text that ended it, or NULL; good until the session's next answer */
    bool context_is_full;
    uint32_t n_prompt, n_cached;       /* tokens of the prompt; of these, that needed no work */
    uint32_t n_generated, n_reasoning; /* without the id that ended the turn */
    uint32_t n_passes, n_drafted, n_accepted;
    int64_t prompt_ns, answer_ns; /* until the first token; from then on */
};

/* Answers a prompt, and returns when the answer is over. A prompt is always the whole conversation: what the session
 * knows of it already is not read again, and the answer is the same as if nothing had been known. Not WEIR_OK when the
 * answer failed; cancelled is not failed. Fill in result->size, or give NULL. */
WEIR_API enum weir_status weir_generate(struct weir_session *session, const struct weir_prompt *prompt,
                                        const struct weir_request *request, struct weir_result *result,
                                        struct weir_error *error);

/* The same in pieces, for several answers at a time or for a loop of one's own: weir_start queues an answer, each
 * weir_step runs one pass for all that were started, events coming meanwhile, and tells how many still go on (NULL is
 * fine). The prompt must live until its answer is over; the request is copied. WEIR_BUSY: this session still answers,
 * or the queue is full. */
WEIR_API enum weir_status weir_start(struct weir_session *session, const struct weir_prompt *prompt,
                                     const struct weir_request *request, struct weir_error *error);
WEIR_API enum weir_status weir_step(struct weir_engine *engine, size_t *n_going_on, struct weir_error *error);

/* Of the last answer, also while it goes on. Not WEIR_OK when it failed, which *error tells. */
WEIR_API enum weir_status weir_session_result(struct weir_session *session, struct weir_result *result,
                                              struct weir_error *error);

/* Ends the answer soon: between two experts, if need be. Without an answer it does nothing. Any thread. */
WEIR_API void weir_cancel(struct weir_session *session);
/* If the answer is still thinking, the thinking ends with its next token. Any thread. */
WEIR_API void weir_end_thinking(struct weir_session *session);

/* Tokens that a session holds: the last prompt and its answer. */
WEIR_API size_t weir_session_tokens(const struct weir_session *session);

/* Writes what a session holds to a file, whole or not at all, so that a later one, in another process too, need not
 * read it again. *n_saved (may be NULL): its tokens; fewer than the session has where memory was short. */
WEIR_API enum weir_status weir_session_save(struct weir_session *session, const char *path, size_t *n_saved,
                                            struct weir_error *error);

/* Makes a session hold what a file does. Everything in it is checked: WEIR_DATA for a damaged one or one of another
 * model, and then the session holds what it did before. Where only the end is damaged, the rest is restored;
 * *n_restored (may be NULL) tells how many tokens. */
WEIR_API enum weir_status weir_session_restore(struct weir_session *session, const char *path, size_t *n_restored,
                                               struct weir_error *error);

/* ---- how likely a text is ---- */

struct weir_scored {
    uint32_t position, id;
    bool has_logprob; /* the first token has none: nothing stands in front of it */
    double logprob;
    const struct weir_logprob *top; /* [n_top] the likeliest ids at this place */
    size_t n_top;
};

struct weir_score_request {
    size_t size;
    uint32_t n_top; /* up to 1000 */
    void *context;
    int (*token)(void *context, const struct weir_scored *token); /* each, in order; may be NULL */
    /* The logits behind each token: [n_logits] of weir_model_facts. May be NULL. */
    int (*logits)(void *context, uint32_t position, const float *logits, size_t n_logits);
    const char *trace_path; /* a file for what each layer did, as JSON lines; NULL: none */
};
WEIR_API void weir_score_request_init(struct weir_score_request *request, size_t size);

struct weir_score_result {
    size_t size;
    size_t n_scored;   /* tokens with a log-probability */
    double logprob;    /* the sum */
    double perplexity; /* 0 when nothing was scored */
};

/* Teacher-forced: how likely each token is behind those in front of it. A callback that returns anything but 0 ends it
 * with WEIR_CANCELLED. WEIR_BUSY while answers go on. */
WEIR_API enum weir_status weir_score(struct weir_engine *engine, const struct weir_prompt *prompt,
                                     const struct weir_score_request *request, struct weir_score_result *score,
                                     struct weir_error *error);

#ifdef __cplusplus
}
#endif
#endif
