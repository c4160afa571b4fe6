#include "gram/code_set.h"

#include "base/utf8.h"
#include "gram/grow.h"
#include <stdlib.h>
#include <string.h>

enum { CODE_MAX = 0x10FFFF, SURROGATE_LOW = 0xD800, SURROGATE_HIGH = 0xDFFF, RANGES_MAX = 1 << 20 };

void code_set_init(struct code_set *set, struct alloc *alloc)
{
    *set = (struct code_set){.alloc = alloc};
}

void code_set_fini(struct code_set *set)
{
    if (!set->alloc) return;
    alloc_put(set->alloc, set->ranges);
    *set = (struct code_set){0};
}

static bool add(struct code_set *set, uint32_t low, uint32_t high, struct err *err)
{
    const struct grow grow = {set->alloc, "character ranges", RANGES_MAX};
    if (low > high) return true;
    if (!grow_room(&grow, &set->ranges, &set->room, (uint64_t)set->n + 1, sizeof *set->ranges, err)) return false;
    set->ranges[set->n++] = (struct code_range){low, high};
    return true;
}

bool code_set_add(struct code_set *set, uint32_t low, uint32_t high, struct err *err)
{
    if (high < SURROGATE_LOW || low > SURROGATE_HIGH) return add(set, low, high, err);
    return add(set, low, SURROGATE_LOW - 1, err) && add(set, SURROGATE_HIGH + 1, high, err);
}

static int by_low(const void *left, const void *right)
{
    uint32_t a = ((const struct code_range *)left)->low, b = ((const struct code_range *)right)->low;
    return (a > b) - (a < b);
}

void code_set_tidy(struct code_set *set)
{
    if (set->n < 2) return;
    qsort(set->ranges, set->n, sizeof *set->ranges, by_low);
    uint32_t kept = 0;
    for (uint32_t i = 1; i < set->n; i++) {
        struct code_range *last = &set->ranges[kept], r = set->ranges[i];
        if (r.low > last->high + 1)
            set->ranges[++kept] = r;
        else if (r.high > last->high)
            last->high = r.high;
    }
    set->n = kept + 1;
}

bool code_set_negate(struct code_set *set, struct err *err)
{
    struct code_set out;
    code_set_tidy(set);
    code_set_init(&out, set->alloc);
    uint32_t next = 0;
    bool ok = true;
    for (uint32_t i = 0; ok && i < set->n; i++) {
        if (set->ranges[i].low > next) ok = code_set_add(&out, next, set->ranges[i].low - 1, err);
        next = set->ranges[i].high + 1;
    }
    if (ok && next <= CODE_MAX) ok = code_set_add(&out, next, CODE_MAX, err);
    if (!ok) {
        code_set_fini(&out);
        return false;
    }
    code_set_fini(set);
    *set = out;
    return true;
}

/* ---- spelling ---- */

static uint32_t one_sequence(struct regular *r, uint32_t low, uint32_t high)
{
    char first[4], last[4];
    size_t n = utf8_put(first, low);
    utf8_put(last, high);
    uint32_t term = REGULAR_EMPTY;
    while (n-- > 0) term = regular_seq(r, regular_range(r, (unsigned char)first[n], (unsigned char)last[n]), term);
    return term;
}

/* Splits low..high, all of one length, where a trailing byte does not run over its whole range. */
static uint32_t utf8_term(struct regular *r, uint32_t low, uint32_t high)
{
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF};
    for (int i = 0; i < 3; i++)
        if (low <= ends[i] && high > ends[i])
            return regular_or(r, utf8_term(r, low, ends[i]), utf8_term(r, ends[i] + 1, high));
    for (int i = 1; high > 0x7F && i < 4; i++) {
        uint32_t tail = (UINT32_C(1) << (6 * i)) - 1;
        if ((low | tail) == (high | tail)) break;
        if (low & tail) return regular_or(r, utf8_term(r, low, low | tail), utf8_term(r, (low | tail) + 1, high));
        if ((high & tail) != tail)
            return regular_or(r, utf8_term(r, low, (high & ~tail) - 1), utf8_term(r, high & ~tail, high));
    }
    return one_sequence(r, low, high);
}

/* As json_text_add_escaped writes it. */
static uint32_t escape_term(struct regular *r, uint32_t code)
{
    static const char shorts[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    const char *found = code ? strchr(shorts, (int)code) : NULL;
    if (found) return regular_bytes(r, (char[]){'\\', letters[found - shorts]}, 2);
    return regular_bytes(r, (char[]){'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15]}, 6);
}

static uint32_t json_term(struct regular *r, uint32_t low, uint32_t high)
{
    uint32_t term = REGULAR_NOTHING;
    while (low <= high && low < 0x20) term = regular_or(r, term, escape_term(r, low++));
    for (int i = 0; i < 2; i++) {
        uint32_t special = i == 0 ? '"' : '\\';
        if (low > special || high < special) continue;
        if (low < special) term = regular_or(r, term, utf8_term(r, low, special - 1));
        term = regular_or(r, term, escape_term(r, special));
        low = special + 1;
    }
    return low <= high ? regular_or(r, term, utf8_term(r, low, high)) : term;
}

static uint32_t plain_range(struct regular *r, uint32_t low, uint32_t high, enum spelling spelling)
{
    if (low > high) return REGULAR_NOTHING;
    return spelling == SPELL_RAW ? utf8_term(r, low, high) : json_term(r, low, high);
}

uint32_t code_range_term(struct regular *r, uint32_t low, uint32_t high, enum spelling spelling)
{
    if (high < SURROGATE_LOW || low > SURROGATE_HIGH) return plain_range(r, low, high, spelling);
    return regular_or(r, low < SURROGATE_LOW ? plain_range(r, low, SURROGATE_LOW - 1, spelling) : REGULAR_NOTHING,
                      plain_range(r, SURROGATE_HIGH + 1, high, spelling));
}

/* By halves: a union that grows one by one would be written down at every length. */
static uint32_t ranges_term(struct regular *r, const struct code_range *ranges, uint32_t n, enum spelling spelling)
{
    if (n == 0) return REGULAR_NOTHING;
    if (n == 1) return code_range_term(r, ranges->low, ranges->high, spelling);
    return regular_or(r, ranges_term(r, ranges, n / 2, spelling), ranges_term(r, ranges + n / 2, n - n / 2, spelling));
}

uint32_t code_set_term(const struct code_set *set, struct regular *r, enum spelling spelling)
{
    return ranges_term(r, set->ranges, set->n, spelling);
}

uint32_t code_any_term(struct regular *r, enum spelling spelling)
{
    return code_range_term(r, 0, CODE_MAX, spelling);
}
