#ifndef GRAM_DFA_RUNS_H
#define GRAM_DFA_RUNS_H
/* What the states of an automaton are sure to take, in kinds of text. For dfa.c. */
#include "gram/dfa.h"

/* Fills dfa->runs. Everything else must be there. */
bool dfa_runs_make(struct dfa *dfa, struct err *err) MUST_CHECK;

#endif
