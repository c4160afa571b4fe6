#ifndef RUN_ANSWER_FORM_H
#define RUN_ANSWER_FORM_H
/* The form that one answer must have, while it is being generated: which ids may come, and which must.
 *
 * Joins a constraint with a position in it. A thread of the tables' own finds out what is allowed at a position as soon
 * as the position is known, that is with the form and behind each id, while the engine computes; whoever needs it a
 * pass later rarely waits. Who needs it in the same pass, behind a draft that came true, finds it out himself where
 * that thread has not begun. What fails on the way is kept here and ends the answer: the sampler then finds nothing
 * allowed, and the failure says why. Owned by the engine thread, as are the tables. */
#include "gram/constraint.h"
#include "run/stop.h"
#include "run/text_model.h"

struct form_maker;

/* What the forms of all answers of one model share. The thread, the vocabulary by bytes and the masks that are kept are
 * made when the first form is. */
struct form_tables {
    struct alloc *alloc;
    const struct text_model *model;
    struct form_maker *maker;
};

/* Takes no memory. */
void form_tables_init(struct form_tables *tables, struct alloc *alloc, const struct text_model *model);
void form_tables_fini(struct form_tables *tables); /* no form may be left; safe twice and on a zeroed struct */

struct form_stats {
    uint64_t n_masks, made_ns, made_ns_max; /* on any thread */
    uint64_t n_waits, waited_ns;            /* of the owner's thread, for what was not there yet */
};
struct form_stats form_tables_stats(const struct form_tables *tables);

struct answer_form;

/* The constraint is held. starts_in_think: the prompt ends in an open think block. */
bool answer_form_new(struct answer_form **form, struct form_tables *tables, struct constraint *constraint,
                     bool starts_in_think, struct err *err) MUST_CHECK;
void answer_form_free(struct answer_form *form); /* NULL is fine; waits for nothing */

/* The ids that may come next, as struct sampler_input wants them; after a failure none. Good until the next call. */
const uint64_t *answer_form_allowed(struct answer_form *form, struct err *failure);

/* Moves on by an id that was chosen. STOP_NONE: more may come; STOP_GRAMMAR: it is whole; STOP_ERROR: see *failure. */
enum stop_reason answer_form_advance(struct answer_form *form, uint32_t id, struct err *failure);

/* Ids that must come next, one after the other, because at each of their places no other is allowed. Up to n_max,
 * without an end of the answer; fewer, or none, whenever finding more fails or takes more than a moment, for they only
 * save time. */
uint32_t answer_form_forced(struct answer_form *form, uint32_t *ids, uint32_t n_max);

#endif
