#ifndef RUN_DIALOGUE_H
#define RUN_DIALOGUE_H
/* One conversation with an engine, turn after turn: prompt ids in, text out.
 *
 * A dialogue is a scheduler with one job at a time, so its answers are made as those of a server are: with drafts, if
 * the engine was opened for them, with constraints and with thinking that can be ended. A new prompt takes over what is
 * known of its beginning, and only the rest is read: in a conversation that is the new turn. The answer is the same as
 * if nothing had been known and nothing drafted. Same prompt, sampling and key: same answer, for any number of threads.
 *
 * Belongs to the engine thread; engine and model are borrowed. */
#include "plat/clock.h"
#include "run/answer.h"
#include "run/scheduler.h"
#include <stdatomic.h>

struct constraint;
struct dialogue;

struct dialogue_request {
    const uint32_t *prompt; /* [n_prompt], needed during dialogue_start only */
    uint32_t n_prompt;
    const struct sampling *sampling; /* complete and checked; it and all below must outlive the answer */
    const struct answer_request *answer;
    uint64_t key; /* of the draws, see run/random.h */
    bool wants_logprobs;
    uint32_t n_top_logprobs;
    struct constraint *constraint; /* what the answer must look like; NULL: anything. Needs a text model */
    uint32_t n_thinking_max;       /* ids of reasoning before its end is forced; 0: no limit */
    const atomic_bool *cancel;     /* once it is true, by any thread, the answer ends as STOP_CANCELLED; may be NULL */
    /* After each pass over a prompt that takes more than one: how many of its ids have been read. May be NULL. */
    void (*progress)(void *context, uint32_t n_read, uint32_t n_prompt);
    void *progress_context;
};

struct dialogue_result {
    enum stop_reason reason; /* STOP_NONE while it goes on */
    const struct stop_string *stop_string;
    uint32_t n_prompt, n_reused;       /* n_reused: ids of the prompt that were known already */
    uint32_t n_generated, n_reasoning; /* n_generated: without the id that ended the turn */
    struct job_usage usage;            /* of passes and drafts; complete when the answer is over */
    int64_t prefill_ns, decode_ns;
};

/* `model` NULL: ids only, for a folder without a tokenizer; requests then have no answer. */
bool dialogue_new(struct dialogue **dialogue, struct engine *engine, const struct text_model *model, struct clock clock,
                  struct err *err) MUST_CHECK;
void dialogue_free(struct dialogue *dialogue); /* NULL is fine */

/* Reads the prompt. One that leaves no room for an answer is ERR_USER. After a failure the dialogue may be started
 * again. An answer that was still going on is forgotten. */
bool dialogue_start(struct dialogue *dialogue, const struct dialogue_request *request, struct err *err) MUST_CHECK;

/* Gives out one id and what text it completes; or ends the answer, with result->reason set and *out untouched. The id
 * that completes a stop string is given out like any other. */
bool dialogue_next(struct dialogue *dialogue, struct sampled *out, struct err *err) MUST_CHECK;

const struct dialogue_result *dialogue_result(const struct dialogue *dialogue);

/* What its scheduler counted since dialogue_new. */
struct scheduler_stats dialogue_stats(const struct dialogue *dialogue);

#endif
