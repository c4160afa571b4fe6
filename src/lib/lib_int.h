#ifndef LIB_LIB_INT_H
#define LIB_LIB_INT_H
/* For the files of this folder, and for tests that bring their own memory and files. */
#include "base/arena.h"
#include "lib/lib_settings.h"
#include "plat/clock.h"
#include "run/answer.h"
#include "run/answer_form.h"
#include "run/scheduler.h"
#include "weir/weir.h"
#include <pthread.h>

/* ---- values: errors, structs with a size, blocks of the caller ---- */

/* How every public function ends: the status, and *error (may be NULL) filled in. */
enum weir_status lib_end(bool ok, const struct err *err, struct weir_error *error);

/* Lays a caller's struct, which begins with its size, over `own`, which holds the defaults; NULL: they stand. ERR_USER
 * when it has no size, or says something that only a newer library knows. */
bool lib_take(void *own, size_t own_size, const void *given, const char *name, struct err *err) MUST_CHECK;

/* Fills a caller's struct as far as it reaches. NULL is fine. ERR_USER when it has no size. */
bool lib_give(void *given, const void *own, size_t own_size, const char *name, struct err *err) MUST_CHECK;

/* Zeroes a caller's struct, lays our defaults into it and sets its size: for init functions. */
void lib_init(void *given, size_t size, const void *own, size_t own_size);

/* A block that weir_free gives back, with a NUL behind its bytes; zeroed when `bytes` is NULL. */
void *lib_block(struct alloc *alloc, const void *bytes, size_t n, struct err *err) MUST_CHECK;

/* ERR_USER for a NULL where none may be. */
bool lib_need(const void *pointer, const char *name, struct err *err) MUST_CHECK;

static inline size_t lib_bytes(const char *text, size_t bytes)
{
    return bytes == WEIR_WHOLE ? __builtin_strlen(text) : bytes;
}

/* ---- models ---- */

struct weir_model {
    struct alloc own, *alloc; /* alloc: own, or a test's */
    struct file_system fs;
    char *path;
    bool is_folder;
    atomic_uint n_holders; /* prompts, plans, engines */

    pthread_mutex_t lock; /* for everything below; what was loaded stays and does not change */
    bool has_config, has_tokens, has_text;
    struct config config;
    struct text_model text;      /* has_text; a folder with config and tokenizer */
    struct tokenizer *tokenizer; /* has_tokens; that of `text` where there is one */
    bool has_controls;
    struct chat_ids controls;
    struct encoder *encoder; /* used under the lock */
};

/* weir_model_open with memory and files from elsewhere. */
bool lib_model_open(struct weir_model **model, struct alloc *alloc, struct file_system fs, const char *path,
                    struct err *err) MUST_CHECK;

/* Load what is asked for, unless it is there. Any thread. */
const struct config *lib_config(struct weir_model *model, struct err *err) MUST_CHECK;
const struct text_model *lib_text(struct weir_model *model, struct err *err) MUST_CHECK;
const struct tokenizer *lib_tokenizer(struct weir_model *model, struct err *err) MUST_CHECK;
const struct chat_ids *lib_controls(struct weir_model *model, struct err *err) MUST_CHECK;

/* The model's encoder, which is nobody else's until it is returned. */
struct encoder *lib_borrow_encoder(struct weir_model *model, struct err *err) MUST_CHECK;
void lib_return_encoder(struct weir_model *model);

static inline enum encode_mode lib_mode(enum weir_markers markers)
{
    return markers == WEIR_MARKERS_ARE_TOKENS ? ENCODE_ALL : ENCODE_NONE;
}

/* Whether the folder has a tokenizer.json at all. */
bool lib_has_tokenizer(struct weir_model *model, bool *has, struct err *err) MUST_CHECK;

/* Sampling as the model asks for it, complete. */
bool lib_defaults(struct weir_model *model, struct sampling *sampling, struct err *err) MUST_CHECK;

/* ---- prompts ---- */

struct weir_prompt {
    struct weir_model *model;
    struct token_list ids;
    char *text; /* [text_bytes] what a conversation became; NULL: it is none */
    size_t text_bytes;
    bool is_chat, is_ids, starts_in_think;
    bool goes_on;            /* an answer continues what the conversation ends in */
    struct chat_tools tools; /* of a conversation */
};

/* ---- plans and settings ---- */

struct weir_plan {
    struct weir_model *model;
    struct plan plan;
    bool fits;
};

/* A copy of a plan, for the caller. */
struct weir_plan *lib_plan_new(struct weir_model *model, const struct plan *plan, bool fits,
                               struct err *err) MUST_CHECK;

/* ---- engines ---- */

struct weir_engine {
    struct weir_model *model;
    struct alloc *alloc;
    const struct text_model *text; /* NULL: ids only */
    struct arena texts;            /* of the settings */
    struct engine *engine;
    struct ssd_cache *ssd; /* NULL: none */
    struct scheduler *scheduler;
    struct clock clock;
    atomic_flag is_inside; /* a call is under way */
    uint32_t n_sessions;
    struct form_tables forms; /* where there is text */
    bool told_no_drafts;
};

/* Between the two, the engine is this call's. ERR_BUSY: it is another one's. */
bool lib_enter(struct weir_engine *engine, struct err *err) MUST_CHECK;
void lib_leave(struct weir_engine *engine);

/* ---- sessions ---- */

struct weir_session {
    struct weir_engine *engine;
    struct token_list ids; /* the last prompt and its answer */

    /* The answer. */
    struct arena texts; /* what the request brought, and the stop text that ended it */
    bool goes_on;
    struct weir_request request; /* its pointers go into `texts`, or are not looked at any more */
    const struct weir_prompt *prompt;
    struct sampling sampling;
    struct sampler_rules rules;
    struct job job; /* its two flags may be set by any thread at any time */
    struct answer *answer;
    struct answer_form *form; /* NULL: no constraint */
    bool is_refused;          /* a callback wants no more */
    uint32_t n_calls;
    struct err failure; /* kind ERR_NONE: none */
    struct weir_result result;
    int64_t started_ns, answered_ns;
};

#define REQUEST_BYTES_MAX (UINT64_C(1) << 24) /* of all that a request brings */

/* A request, complete, and its sampling, whose lists are in `arena`. */
bool lib_request_read(struct weir_request *own, struct sampling *sampling, struct arena *arena,
                      struct weir_model *model, const struct weir_request *given, struct err *err) MUST_CHECK;

/* The form that the request asks for. */
bool lib_constrain(struct weir_session *session, struct err *err) MUST_CHECK;

#endif
