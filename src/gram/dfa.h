#ifndef GRAM_DFA_H
#define GRAM_DFA_H
/* A deterministic automaton over bytes, complete before it is used: a constraint that is too large is refused when it
 * is compiled, and any number of threads may walk along it.
 *
 * State 0 is dead. From every other state some accepting state can be reached, so a walk never gets stuck. */
#include "gram/regular.h"

enum { DFA_DEAD = 0, DFA_START = 1 };

enum { DFA_ACCEPTS = 1, DFA_GOES_ON = 2 }; /* flags of a state: a match ends here; some byte can follow */

/* What a state is sure to take: text of these kinds (text_kinds.h), up to so many bytes of it. */
struct dfa_run {
    uint16_t kinds;
    uint8_t bytes;        /* DFA_RUN_ENDLESS: any number */
    uint8_t bytes_inside; /* the same as long as no match ends in front of the last of them */
};
enum { DFA_RUN_ENDLESS = UINT8_MAX };

struct dfa {
    struct alloc *alloc;
    uint32_t n_states, n_classes; /* n_states is 1 when nothing matches */
    uint32_t *next;               /* [n_states][n_classes] */
    uint8_t *flags;               /* [n_states] */
    struct dfa_run *runs;         /* [n_states] */
    uint64_t digest;              /* of all but the runs: equal automata have equal ones */
    uint8_t class_of[256];
};

/* Bounds over all automata of a constraint. */
struct dfa_budget {
    uint32_t states_left, states_max;
    uint64_t edges_left;
};

bool dfa_init(struct dfa *dfa, struct regular *regular, uint32_t term, struct dfa_budget *budget,
              struct err *err) MUST_CHECK;
void dfa_fini(struct dfa *dfa); /* safe twice and on a zeroed struct */

static inline uint32_t dfa_step(const struct dfa *dfa, uint32_t state, unsigned byte)
{
    return dfa->next[state * dfa->n_classes + dfa->class_of[byte]];
}

/* The same automaton, state by state. Said only of small ones; large ones are the same when they are one. */
bool dfa_is_same(const struct dfa *a, const struct dfa *b);

#endif
