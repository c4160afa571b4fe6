#ifndef GRAM_NUMBER_RANGE_H
#define GRAM_NUMBER_RANGE_H
/* JSON numbers between bounds, compared digit by digit, so without any rounding.
 *
 * Integers have at most 16 digits. Decimals have at most 16 digits on each side of the point and no exponent; beside an
 * exclusive bound they have at most 15 in all, because two such decimals are never the same double, so a validator that
 * compares doubles agrees. */
#include "gram/regular.h"

struct json_object;

enum { DECIMAL_DIGITS_MAX = 4400 };

/* A bound; at most DECIMAL_DIGITS_MAX digits on each side of the point, no leading or trailing zeros. */
struct decimal {
    bool negative;
    uint32_t n_whole, n_fraction; /* whole is at least "0" */
    char whole[DECIMAL_DIGITS_MAX], fraction[DECIMAL_DIGITS_MAX];
};

/* From a JSON number. False when it is none. */
bool decimal_read(struct decimal *decimal, struct alloc *alloc, struct json_object *value, struct err *err) MUST_CHECK;

struct number_bound {
    const struct decimal *at; /* NULL: no bound */
    bool exclusive;
};

/* -1, 0, 1 as a is less than, equal to or greater than b. */
int decimal_compare(const struct decimal *a, const struct decimal *b);

/* The numbers from low to high. */
struct number_range {
    struct number_bound low, high;
    bool is_integer;
};
uint32_t number_range_term(struct regular *regular, const struct number_range *range);

#endif
