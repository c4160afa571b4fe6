#ifndef SUPPORT_GENERATION_H
#define SUPPORT_GENERATION_H
/* The plain way to answer, for comparison with the scheduler: one sequence, one id at a time. Feed the prompt, pick
 * from the logits behind it, feed what was picked, and so on.
 *
 * Works on ids only. Text, stop strings and the parts of a reply are the caller's: it looks at each id and ends the
 * answer when it likes. An end-of-turn id ends the answer and is neither given out nor fed. The same prompt, rules and
 * seed give the same ids, whatever else the engine does.
 *
 * Belongs to the engine thread. Session and rules are borrowed. */
#include "run/sampler.h"
#include "run/session.h"
#include "run/stop.h"

struct generation {
    struct session *session;
    const struct sampler_rules *rules;
    struct history history;
    struct sampler sampler;
    uint32_t n_max;   /* ids to give out at most: what was asked for, or what the context has room for */
    uint32_t pending; /* picked and not yet fed */
    bool has_pending;
    enum stop_reason reason; /* STOP_NONE while it goes on */
};

/* Takes the end-of-turn ids of a model whose rules do not say otherwise, and `n_tokens`, from where on ids are dead. */
bool generation_init(struct generation *generation, struct session *session, const struct sampler_rules *rules,
                     uint32_t n_tokens, struct err *err) MUST_CHECK;
void generation_fini(struct generation *generation); /* safe twice and on a zeroed struct */

/* Feeds a prompt: the session must already hold its first session_tokens() ids, and the rest is fed. At least one id is
 * always fed, since the logits behind the last one are needed. A prompt that leaves no room for an answer is ERR_USER.
 */
bool generation_start(struct generation *generation, const uint32_t *prompt, uint32_t n, struct err *err) MUST_CHECK;

/* The next id; or, with generation->reason set, the end, and *out is untouched. */
bool generation_next(struct generation *generation, struct sampled *out, struct err *err) MUST_CHECK;

#endif
