#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H
/* Which of several names a mistyped word most likely meant.
 *
 * Start with {.word = ...}, offer every name, read best: the offered name with the fewest insertions, deletions,
 * replacements and swaps of neighbours; the earliest on a tie; NULL when nothing was offered. Whoever writes only the
 * beginning of a name, of two letters or more, made one slip. Names are borrowed. */
#include <stddef.h>

struct nearest {
    const char *word;
    const char *best;
    size_t distance; /* of best */
};

void nearest_offer(struct nearest *nearest, const char *name);

#endif
