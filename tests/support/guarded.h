#ifndef SUPPORT_GUARDED_H
#define SUPPORT_GUARDED_H
/* Operands for kernels, between unreadable pages, and the comparisons of an equivalence check.
 *
 * A check lays out its operands in areas of exactly the needed size, against the page behind or the page in front, so
 * that one element too far is a fault and not luck. Outputs are poisoned and compared whole. */
#include "kern/layout_int.h"
#include "support/check.h"
#include <stdbool.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Random numbers: splitmix64. */
struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
size_t rng_below(struct rng *rng, size_t n);
float rng_float(struct rng *rng); /* -1 .. 1 */

/* What the numbers are like. Extremes may make infinities and NaN: those must come out alike too. */
enum kind { PLAIN, MIXED, TINY, EXTREME, KINDS };

float rng_number(struct rng *rng, enum kind kind);

enum { AREAS = 16, AREA_BYTES = 1 << 21, POISON = 0xa5 };

struct area {
    unsigned char *base; /* [AREA_BYTES], unreadable pages on both sides */
    unsigned char *copy; /* [AREA_BYTES], of the contents when sealed */
    unsigned char *data;
    size_t bytes;
};

/* One check: its random numbers, where operands lie, and the operands to be found unchanged afterwards. */
struct check {
    const char *name;
    struct rng rng;
    bool is_quiet;    /* a failure is what is expected: say nothing */
    bool against_end; /* operands end at an unreadable page, or begin behind one */
    enum kind kind;
    size_t comparisons;
    size_t n_areas;
    struct area areas[AREAS];
    char shape[160]; /* for messages */
};

#define SHAPE(check, ...) (void)snprintf((check)->shape, sizeof(check)->shape, __VA_ARGS__)

void check_init(struct check *check, uint64_t seed);
void check_fini(struct check *check);

void check_begin(struct check *check); /* takes all areas back */

/* Poisoned memory of exactly this size, with nothing readable behind it or nothing in front of it. */
void *check_area(struct check *check, size_t bytes);

/* Areas filled with numbers of the check's kind, with positive scales, with rows of weights, with pointers to rows (not
 * in the order of addresses), with a copy of other numbers. */
float *check_floats(struct check *check, size_t n);
float *check_scales(struct check *check, size_t n);
void *check_weights(struct check *check, enum layout layout, size_t n_out, size_t n_in);
const float **check_pointers(struct check *check, const float *rows, size_t n_rows, size_t stride);
float *check_twin(struct check *check, const float *data, size_t n);

/* Remembers the contents of all areas; then tells whether those of the first n are unchanged. */
void check_seal(struct check *check);
bool check_is_sealed(struct check *check, size_t n_operands);

/* The same bits, or both NaN. */
bool check_same(struct check *check, const float *want, const float *got, size_t n);

/* |got - exact| <= terms * epsilon * magnitude, and what underflow may cost. */
bool check_near(struct check *check, double exact, float got, double terms, double magnitude);

/* Runs `body`, which returns false at a difference, for each kind of numbers and for both sides of the operands. */
typedef bool body_fn(struct check *check, const void *argument);
bool check_all_kinds(struct check *check, body_fn *body, const void *argument);

#endif
