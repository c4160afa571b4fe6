#include "gram/number_range.h"

#include "base/buf.h"
#include "fmt/json_text.h"
#include "gram/json_terms.h"
#include <json-c/json_object.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE_MAX = 16, FRACTION_MAX = 16, EXACT_DIGITS_MAX = 15 };

/* ---- bounds ---- */

/* Digits of "12.5e-3" with the point moved by the exponent. */
static bool place_digits(struct decimal *d, const char *text)
{
    char digits[DECIMAL_DIGITS_MAX];
    uint32_t n = 0;
    long point = -1;
    for (; *text && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.')
            point = (long)n;
        else if (n == DECIMAL_DIGITS_MAX)
            return false;
        else
            digits[n++] = *text;
    }
    if (point < 0) point = (long)n;
    if (*text) point += strtol(text + 1, NULL, 10);
    if (point > DECIMAL_DIGITS_MAX - 1 || point < -(DECIMAL_DIGITS_MAX - (long)n)) return false;
    long i = 0;
    while (i < (long)n && digits[i] == '0' && i < point) i++;
    for (; i < point; i++) d->whole[d->n_whole++] = i < (long)n ? digits[i] : '0';
    if (d->n_whole == 0) d->whole[d->n_whole++] = '0';
    for (i = point; i < (long)n; i++) d->fraction[d->n_fraction++] = i < 0 ? '0' : digits[i];
    while (d->n_fraction > 0 && d->fraction[d->n_fraction - 1] == '0') d->n_fraction--;
    return true;
}

static bool is_zero(const struct decimal *d)
{
    return d->n_fraction == 0 && d->n_whole == 1 && d->whole[0] == '0';
}

bool decimal_read(struct decimal *d, struct alloc *alloc, struct json_object *value, struct err *err)
{
    struct buf text;
    d->negative = false;
    d->n_whole = d->n_fraction = 0;
    if (!json_object_is_type(value, json_type_int) && !json_object_is_type(value, json_type_double))
        return err_set(err, ERR_USER, "a bound must be a number");
    buf_init(&text, alloc, 2 * DECIMAL_DIGITS_MAX);
    bool ok = json_text_add(&text, value, JSON_COMPACT, err);
    if (ok) {
        d->negative = text.data[0] == '-';
        ok = place_digits(d, text.data + d->negative) || err_set(err, ERR_USER, "a bound has too many digits");
        if (ok && is_zero(d)) d->negative = false;
    }
    buf_fini(&text);
    return ok;
}

static int compare_size(const struct decimal *a, const struct decimal *b)
{
    if (a->n_whole != b->n_whole) return a->n_whole < b->n_whole ? -1 : 1;
    int order = memcmp(a->whole, b->whole, a->n_whole);
    uint32_t n = a->n_fraction < b->n_fraction ? a->n_fraction : b->n_fraction;
    if (order == 0) order = memcmp(a->fraction, b->fraction, n);
    if (order == 0) order = (a->n_fraction > b->n_fraction) - (a->n_fraction < b->n_fraction);
    return (order > 0) - (order < 0);
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? compare_size(b, a) : compare_size(a, b);
}

/* ---- sizes, without a sign ---- */

struct side {
    struct regular *r;
    const struct decimal *at;
    bool greater; /* or less */
    bool or_equal;
};

static uint32_t digit_range(struct regular *r, int low, int high)
{
    return low > high ? REGULAR_NOTHING : regular_range(r, (unsigned)low, (unsigned)high);
}

static uint32_t beyond(const struct side *s, char digit)
{
    return s->greater ? digit_range(s->r, digit + 1, '9') : digit_range(s->r, '0', digit - 1);
}

static uint32_t digits(struct regular *r, uint32_t min, uint32_t max)
{
    return min > max ? REGULAR_NOTHING : regular_repeat(r, regular_range(r, '0', '9'), min, max);
}

/* Whole numbers, written without leading zeros, on this side of the whole part of the bound. */
static uint32_t whole_term(const struct side *s, bool or_equal)
{
    struct regular *r = s->r;
    uint32_t n = s->at->n_whole, same_length = or_equal ? REGULAR_EMPTY : REGULAR_NOTHING;
    if (n > WHOLE_MAX) return s->greater ? REGULAR_NOTHING : digits(r, 1, WHOLE_MAX);
    for (uint32_t k = n; k-- > 0;) {
        char d = s->at->whole[k];
        same_length = regular_or(r, regular_seq(r, beyond(s, d), digits(r, n - 1 - k, n - 1 - k)),
                                 regular_seq(r, regular_range(r, (unsigned char)d, (unsigned char)d), same_length));
    }
    return regular_or(r, same_length, s->greater ? digits(r, n + 1, WHOLE_MAX) : digits(r, 1, n - 1));
}

/* Point and digits, or nothing, on this side of the fraction of the bound. */
static uint32_t fraction_term(const struct side *s)
{
    struct regular *r = s->r;
    uint32_t any = digits(r, 0, REGULAR_MANY), zeros = regular_many(r, regular_text(r, "0"));
    uint32_t not_zero = regular_seq_of(r, (uint32_t[]){zeros, regular_range(r, '1', '9'), any}, 3);
    uint32_t rest, point = regular_text(r, ".");
    if (s->greater)
        rest = s->or_equal ? any : not_zero;
    else
        rest = s->or_equal ? zeros : REGULAR_NOTHING;
    bool nothing_is_on_this_side = s->at->n_fraction == 0 ? s->or_equal : !s->greater;
    for (uint32_t k = s->at->n_fraction; k-- > 0;) {
        unsigned char d = (unsigned char)s->at->fraction[k];
        rest = regular_or(r, regular_seq(r, beyond(s, (char)d), any), regular_seq(r, regular_range(r, d, d), rest));
        if (!s->greater) rest = regular_optional(r, rest); /* digits that are not there are zeros */
    }
    rest = regular_seq(r, point, rest);
    return nothing_is_on_this_side ? regular_optional(r, rest) : rest;
}

static uint32_t size_term(const struct side *s)
{
    struct regular *r = s->r;
    uint32_t any_fraction = regular_optional(r, regular_seq(r, regular_text(r, "."), digits(r, 1, REGULAR_MANY)));
    uint32_t equal = s->at->n_whole > WHOLE_MAX ? REGULAR_NOTHING : regular_bytes(r, s->at->whole, s->at->n_whole);
    return regular_or(r, regular_seq(r, whole_term(s, false), any_fraction), regular_seq(r, equal, fraction_term(s)));
}

/* Sizes x for which sign * x is on the right side of a bound. */
static uint32_t bound_term(struct regular *r, const struct number_bound *bound, bool is_low, bool negative)
{
    uint32_t everything = regular_not(r, REGULAR_NOTHING);
    if (!bound->at) return everything;
    const struct side side = {r, bound->at, is_low != negative, !bound->exclusive};
    bool zero = is_zero(bound->at);
    if (zero || bound->at->negative == negative) return size_term(&side);
    return side.greater ? everything : REGULAR_NOTHING;
}

uint32_t number_range_term(struct regular *r, const struct number_range *range)
{
    bool exact = range->low.exclusive || range->high.exclusive;
    if (!range->low.at && !range->high.at) return range->is_integer ? json_integer_term(r) : json_number_term(r);
    uint32_t form =
        regular_or(r, regular_text(r, "0"), regular_seq(r, regular_range(r, '1', '9'), digits(r, 0, WHOLE_MAX - 1)));
    if (!range->is_integer) {
        struct byte_set any = {{0}};
        byte_set_add(&any, '0', '9');
        byte_set_add(&any, '.', '.');
        form =
            regular_seq(r, form, regular_optional(r, regular_seq(r, regular_text(r, "."), digits(r, 1, FRACTION_MAX))));
        if (exact) form = regular_and(r, form, regular_repeat(r, regular_set(r, &any), 1, EXACT_DIGITS_MAX + 1));
    }
    uint32_t both[2];
    for (int negative = 0; negative < 2; negative++)
        both[negative] = regular_and(
            r, form,
            regular_and(r, bound_term(r, &range->low, true, negative), bound_term(r, &range->high, false, negative)));
    return regular_or(r, both[0], regular_seq(r, regular_text(r, "-"), both[1]));
}
