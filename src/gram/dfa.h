#ifndef GRAM_DFA_H
#define GRAM_DFA_H
/* A deterministic automaton over bytes, complete before it is used: a constraint that is too large is refused when it
 * is compiled, and any number of threads may walk along it.
 *
 * State 0 is dead. From every other state some accepting state can be reached, so a walk never gets stuck. */
#include "gram/regular.h"

enum { DFA_DEAD = 0, DFA_START = 1 };

enum { DFA_ACCEPTS = 1, DFA_GOES_ON = 2 }; /* flags of a state: a match ends here; some byte can follow */

struct dfa {
    struct alloc *alloc;
    uint32_t n_states, n_classes; /* n_states is 1 when nothing matches */
    uint32_t *next;               /* [n_states][n_classes] */
    uint8_t *flags;               /* [n_states] */
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

/* The state after all of these bytes, from the start. */
uint32_t dfa_run(const struct dfa *dfa, const char *bytes, size_t n);

#endif
