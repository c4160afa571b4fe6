#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H
/* Ctrl-C while something long runs: the first one asks it to stop at the next good place, the second one ends the
 * program at once.
 *
 * Main thread. Until the first call Ctrl-C does what it always does. */
#include <stdatomic.h>
#include <stdbool.h>

struct weir_session;

/* From now on a Ctrl-C makes the flag true; it is false again after the next watch. */
const atomic_bool *interrupt_watch(void);

/* The same, and however many come, none ends the program: for one that somebody talks with. */
const atomic_bool *interrupt_watch_all(void);

/* One of these two (`all`: the second), and a Ctrl-C also cancels the answer of this session, until it is forgotten.
 */
const atomic_bool *interrupt_watch_session(struct weir_session *session, bool all);
void interrupt_forget_session(void);

/* From now on it does nothing: one that comes too late for an answer must not end a conversation. */
void interrupt_ignore(void);

/* From now on it does what it always does. */
void interrupt_unwatch(void);

#endif
