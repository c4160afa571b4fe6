#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H
/* Ctrl-C while something long runs: the first one asks it to stop at the next good place, the second one ends the
 * program at once.
 *
 * Main thread. Between watch and unwatch only; at other times Ctrl-C does what it always does. */
#include <stdatomic.h>

/* The flag becomes true when somebody asks. It is false again after the next watch. */
const atomic_bool *interrupt_watch(void);
void interrupt_unwatch(void);

#endif
