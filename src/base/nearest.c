#include "base/nearest.h"

#include <string.h>

/* Longer words are compared by their beginnings: names are short, and the cost must be bounded. */
#define LENGTH_MAX 64

enum { BEGINNING_MIN = 2 }; /* letters that tell what was meant */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: three rows of the classic table are enough. */
static size_t distance(const char *a, const char *b)
{
    size_t n_a = strnlen(a, LENGTH_MAX), n_b = strnlen(b, LENGTH_MAX);
    size_t rows[3][LENGTH_MAX + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n_b; j++) above[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(replaced, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[n_b];
}

void nearest_offer(struct nearest *nearest, const char *name)
{
    size_t d = distance(nearest->word, name), n = strlen(nearest->word);
    if (d > 1 && n >= BEGINNING_MIN && strncmp(nearest->word, name, n) == 0) d = 1;
    if (nearest->best && d >= nearest->distance) return;
    nearest->best = name;
    nearest->distance = d;
}
