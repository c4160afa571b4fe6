#include "gram/regular.h"

#include "base/assert.h"
#include "gram/grow.h"
#include <stdlib.h>
#include <string.h>

enum term_kind {
    TERM_NOTHING,
    TERM_EMPTY,
    TERM_SET,
    TERM_SEQ,
    TERM_CLOSE,
    TERM_ANY_OF,
    TERM_ALL_OF,
    TERM_NOT,
    TERM_REPEAT
};

struct regular_term {
    uint32_t a, b, c; /* set: index; seq: both; any, all: first of parts, count; not: a; repeat: what, min, max */
    uint32_t hash;
    uint8_t kind;
    bool has_empty;
};

/* Terms share their parts, and states share their terms, so the same derivative is met again and again. */
struct regular_memo {
    uint64_t key; /* 0: empty */
    uint32_t derivative;
};

enum {
    TERMS_MAX = 1 << 21,
    PARTS_MAX = 1 << 23,
    SETS_MAX = 1 << 16,
    MEMO_MAX = 1 << 22,      /* slots */
    DERIVE_DEPTH_MAX = 2000, /* pieces in a row that may all be left out, or groups in groups */
};
#define STEPS_MAX UINT64_C(20000000)

static void fail(struct regular *r, const char *what)
{
    if (r->err.kind == ERR_NONE) err_set(&r->err, ERR_USER, "unsupported_schema: %s", what);
}

static bool room(struct regular *r, const char *what, uint32_t max, void *block, uint32_t *have, uint64_t need,
                 uint32_t element_bytes)
{
    if (need <= *have) return true;
    const struct grow grow = {r->alloc, what, max};
    return r->err.kind == ERR_NONE && grow_room(&grow, block, have, need, element_bytes, &r->err);
}

/* ---- terms by value ---- */

static uint32_t mix(uint32_t h, uint32_t x)
{
    h = (h ^ x) * 0x9E3779B1u;
    return h ^ h >> 15;
}

static uint32_t hash_of(const struct regular_term *t, const uint32_t *parts)
{
    uint32_t h = mix(0x811C9DC5u, t->kind);
    if (!parts) return mix(mix(mix(h, t->a), t->b), t->c);
    for (uint32_t i = 0; i < t->b; i++) h = mix(h, parts[i]);
    return h;
}

static bool same(const struct regular *r, const struct regular_term *old, const struct regular_term *t,
                 const uint32_t *parts)
{
    if (old->hash != t->hash || old->kind != t->kind) return false;
    if (!parts) return old->a == t->a && old->b == t->b && old->c == t->c;
    return old->b == t->b && memcmp(r->parts + old->a, parts, t->b * sizeof *parts) == 0;
}

static bool table_double(struct regular *r)
{
    uint32_t n = (r->table_mask + 1) * 2;
    uint32_t *table = alloc_get_array(r->alloc, n, sizeof *table, &r->err);
    if (!table) return false;
    for (uint32_t id = 1; id < r->n_terms; id++) {
        uint32_t at = r->terms[id].hash & (n - 1);
        while (table[at]) at = (at + 1) & (n - 1);
        table[at] = id;
    }
    alloc_put(r->alloc, r->table);
    r->table = table;
    r->table_mask = n - 1;
    return true;
}

/* The number of this term. `parts`, for unions and intersections, is borrowed and must not lie in r->parts. */
static uint32_t intern(struct regular *r, struct regular_term t, const uint32_t *parts)
{
    if (r->err.kind != ERR_NONE) return REGULAR_NOTHING;
    t.hash = hash_of(&t, parts);
    uint32_t at = t.hash & r->table_mask;
    for (; r->table[at]; at = (at + 1) & r->table_mask)
        if (same(r, &r->terms[r->table[at]], &t, parts)) return r->table[at];
    if (!room(r, "terms", TERMS_MAX, &r->terms, &r->terms_room, (uint64_t)r->n_terms + 1, sizeof *r->terms))
        return REGULAR_NOTHING;
    if (parts) {
        if (!room(r, "parts of terms", PARTS_MAX, &r->parts, &r->parts_room, (uint64_t)r->n_parts + t.b,
                  sizeof *r->parts))
            return REGULAR_NOTHING;
        memcpy(r->parts + r->n_parts, parts, t.b * sizeof *parts);
        t.a = r->n_parts;
        r->n_parts += t.b;
    }
    uint32_t id = r->n_terms++;
    r->terms[id] = t;
    r->table[at] = id;
    if (r->n_terms * 2 > r->table_mask && !table_double(r)) return REGULAR_NOTHING;
    return id;
}

bool regular_init(struct regular *r, struct alloc *alloc, struct err *err)
{
    *r = (struct regular){.alloc = alloc, .steps_left = STEPS_MAX, .table_mask = 255};
    r->table = alloc_get_array(alloc, r->table_mask + 1, sizeof *r->table, err);
    if (!r->table) return false;
    /* NOTHING has number 0, which the table cannot hold; no constructor ever looks it up. */
    if (!room(r, "terms", TERMS_MAX, &r->terms, &r->terms_room, 2, sizeof *r->terms)) return regular_ok(r, err);
    r->terms[r->n_terms++] = (struct regular_term){.kind = TERM_NOTHING};
    uint32_t empty = intern(r, (struct regular_term){.kind = TERM_EMPTY, .has_empty = true}, NULL);
    ASSERT(r->err.kind != ERR_NONE || empty == REGULAR_EMPTY);
    return regular_ok(r, err);
}

void regular_fini(struct regular *r)
{
    if (!r->alloc) return;
    alloc_put(r->alloc, r->terms);
    alloc_put(r->alloc, r->parts);
    alloc_put(r->alloc, r->sets);
    alloc_put(r->alloc, r->table);
    alloc_put(r->alloc, r->scratch);
    alloc_put(r->alloc, r->memo);
    *r = (struct regular){0};
}

bool regular_ok(const struct regular *r, struct err *err)
{
    if (r->err.kind == ERR_NONE) return true;
    if (err) *err = r->err;
    return false;
}

bool regular_has_empty(const struct regular *r, uint32_t term)
{
    return r->terms[term].has_empty;
}

/* ---- constructors ---- */

void byte_set_add(struct byte_set *set, unsigned low, unsigned high)
{
    for (unsigned byte = low; byte <= high; byte++) set->word[byte >> 6] |= UINT64_C(1) << (byte & 63);
}

uint32_t regular_set(struct regular *r, const struct byte_set *set)
{
    static const struct byte_set none;
    if (memcmp(set, &none, sizeof none) == 0) return REGULAR_NOTHING;
    uint32_t index = 0;
    while (index < r->n_sets && memcmp(&r->sets[index], set, sizeof *set) != 0) index++;
    if (index == r->n_sets) {
        if (!room(r, "sets of bytes", SETS_MAX, &r->sets, &r->sets_room, (uint64_t)r->n_sets + 1, sizeof *r->sets))
            return REGULAR_NOTHING;
        r->sets[r->n_sets++] = *set;
    }
    return intern(r, (struct regular_term){.kind = TERM_SET, .a = index}, NULL);
}

uint32_t regular_range(struct regular *r, unsigned low, unsigned high)
{
    struct byte_set set = {{0}};
    byte_set_add(&set, low, high);
    return regular_set(r, &set);
}

uint32_t regular_bytes(struct regular *r, const char *bytes, size_t n)
{
    uint32_t term = REGULAR_EMPTY;
    while (n-- > 0) term = regular_seq(r, regular_range(r, (unsigned char)bytes[n], (unsigned char)bytes[n]), term);
    return term;
}

uint32_t regular_text(struct regular *r, const char *text)
{
    return regular_bytes(r, text, strlen(text));
}

static bool is_many(const struct regular *r, uint32_t term)
{
    const struct regular_term *t = &r->terms[term];
    return t->kind == TERM_REPEAT && t->b == 0 && t->c == REGULAR_MANY;
}

uint32_t regular_seq(struct regular *r, uint32_t a, uint32_t b)
{
    if (a == REGULAR_NOTHING || b == REGULAR_NOTHING) return REGULAR_NOTHING;
    if (a == REGULAR_EMPTY) return b;
    if (b == REGULAR_EMPTY) return a;
    if (is_many(r, a) && (a == b || (r->terms[b].kind == TERM_SEQ && r->terms[b].a == a))) return b;
    bool has_empty = r->terms[a].has_empty && r->terms[b].has_empty;
    return intern(r, (struct regular_term){.kind = TERM_SEQ, .a = a, .b = b, .has_empty = has_empty}, NULL);
}

uint32_t regular_close(struct regular *r, uint32_t a, uint32_t b)
{
    if (a == REGULAR_NOTHING || b == REGULAR_NOTHING) return REGULAR_NOTHING;
    bool has_empty = r->terms[a].has_empty && r->terms[b].has_empty;
    return intern(r, (struct regular_term){.kind = TERM_CLOSE, .a = a, .b = b, .has_empty = has_empty}, NULL);
}

void regular_text_is(struct regular *r, uint32_t term)
{
    for (uint32_t i = 0; i < r->n_texts; i++)
        if (r->texts[i] == term) return;
    if (r->n_texts < 2 && term != REGULAR_NOTHING) r->texts[r->n_texts++] = term;
}

uint32_t regular_seq_of(struct regular *r, const uint32_t *terms, uint32_t n)
{
    uint32_t term = REGULAR_EMPTY;
    while (n-- > 0) term = regular_seq(r, terms[n], term);
    return term;
}

static bool push(struct regular *r, uint32_t term)
{
    if (!room(r, "parts of a term", PARTS_MAX, &r->scratch, &r->scratch_room, (uint64_t)r->n_scratch + 1,
              sizeof *r->scratch))
        return false;
    r->scratch[r->n_scratch++] = term;
    return true;
}

/* Pushes the parts of `term` if it is of this kind, else itself. */
static bool push_flat(struct regular *r, uint32_t term, enum term_kind kind)
{
    const struct regular_term t = r->terms[term];
    if (t.kind != kind) return push(r, term);
    for (uint32_t i = 0; i < t.b; i++)
        if (!push(r, r->parts[t.a + i])) return false;
    return true;
}

static int by_number(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Sorts and takes out what is there twice; returns how many are left. */
static uint32_t sort_unique(uint32_t *terms, uint32_t n)
{
    if (n < 2) return n;
    qsort(terms, n, sizeof *terms, by_number);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < n; i++)
        if (terms[i] != terms[kept - 1]) terms[kept++] = terms[i];
    return kept;
}

/* All sets of a union become one: what cannot be told apart must not be two terms. */
static uint32_t merge_sets(struct regular *r, uint32_t *terms, uint32_t n)
{
    struct byte_set all = {{0}};
    uint32_t kept = 0, n_sets = 0, only = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct regular_term *t = &r->terms[terms[i]];
        if (t->kind != TERM_SET) {
            terms[kept++] = terms[i];
            continue;
        }
        for (int w = 0; w < 4; w++) all.word[w] |= r->sets[t->a].word[w];
        only = terms[i];
        n_sets++;
    }
    if (n_sets) terms[kept++] = n_sets == 1 ? only : regular_set(r, &all);
    return sort_unique(terms, kept);
}

static bool is_everything(const struct regular *r, uint32_t term)
{
    return r->terms[term].kind == TERM_NOT && r->terms[term].a == REGULAR_NOTHING;
}

/* Makes the union of scratch[base..]. */
static uint32_t union_of(struct regular *r, uint32_t base)
{
    uint32_t *terms = r->scratch + base, n = r->n_scratch - base, kept = 0;
    bool has_empty = false, others_have_empty = false;
    for (uint32_t i = 0; i < n; i++) {
        if (is_everything(r, terms[i])) return terms[i];
        for (uint32_t k = 0; k < r->n_texts; k++)
            if (terms[i] == r->texts[k]) return terms[i];
        has_empty |= r->terms[terms[i]].has_empty;
        others_have_empty |= terms[i] != REGULAR_EMPTY && r->terms[terms[i]].has_empty;
    }
    for (uint32_t i = 0; i < n; i++)
        if (terms[i] != REGULAR_NOTHING && (terms[i] != REGULAR_EMPTY || !others_have_empty)) terms[kept++] = terms[i];
    kept = merge_sets(r, terms, kept);
    if (kept == 0) return REGULAR_NOTHING;
    if (kept == 1) return terms[0];
    return intern(r, (struct regular_term){.kind = TERM_ANY_OF, .b = kept, .has_empty = has_empty}, terms);
}

static uint32_t intersection_of(struct regular *r, uint32_t base)
{
    uint32_t *terms = r->scratch + base, n = r->n_scratch - base, kept = 0;
    bool has_empty = true;
    for (uint32_t i = 0; i < n; i++) {
        if (terms[i] == REGULAR_NOTHING) return REGULAR_NOTHING;
        if (is_everything(r, terms[i])) continue;
        has_empty = has_empty && r->terms[terms[i]].has_empty;
        terms[kept++] = terms[i];
    }
    kept = sort_unique(terms, kept);
    if (kept == 0) return regular_not(r, REGULAR_NOTHING);
    if (kept == 1) return terms[0];
    return intern(r, (struct regular_term){.kind = TERM_ALL_OF, .b = kept, .has_empty = has_empty}, terms);
}

static uint32_t combine(struct regular *r, const uint32_t *terms, uint32_t n, enum term_kind kind)
{
    uint32_t base = r->n_scratch, term = REGULAR_NOTHING;
    bool ok = r->err.kind == ERR_NONE;
    for (uint32_t i = 0; ok && i < n; i++) ok = push_flat(r, terms[i], kind);
    if (ok) term = kind == TERM_ANY_OF ? union_of(r, base) : intersection_of(r, base);
    r->n_scratch = base;
    return term;
}

uint32_t regular_any_of(struct regular *r, const uint32_t *terms, uint32_t n)
{
    return combine(r, terms, n, TERM_ANY_OF);
}

uint32_t regular_or(struct regular *r, uint32_t a, uint32_t b)
{
    return combine(r, (uint32_t[]){a, b}, 2, TERM_ANY_OF);
}

uint32_t regular_and(struct regular *r, uint32_t a, uint32_t b)
{
    return combine(r, (uint32_t[]){a, b}, 2, TERM_ALL_OF);
}

uint32_t regular_not(struct regular *r, uint32_t a)
{
    if (r->terms[a].kind == TERM_NOT) return r->terms[a].a;
    return intern(r, (struct regular_term){.kind = TERM_NOT, .a = a, .has_empty = !r->terms[a].has_empty}, NULL);
}

uint32_t regular_repeat(struct regular *r, uint32_t a, uint32_t min, uint32_t max)
{
    ASSERT(min <= max);
    if (max == 0 || a == REGULAR_EMPTY) return REGULAR_EMPTY;
    if (a == REGULAR_NOTHING) return min == 0 ? REGULAR_EMPTY : REGULAR_NOTHING;
    if (min == 1 && max == 1) return a;
    const struct regular_term t = r->terms[a];
    if (t.has_empty) min = 0; /* any of the turns may match nothing */
    if (is_many(r, a)) return a;
    return intern(
        r, (struct regular_term){.kind = TERM_REPEAT, .a = a, .b = min, .c = max, .has_empty = min == 0 || t.has_empty},
        NULL);
}

uint32_t regular_many(struct regular *r, uint32_t a)
{
    return regular_repeat(r, a, 0, REGULAR_MANY);
}

uint32_t regular_optional(struct regular *r, uint32_t a)
{
    return regular_or(r, a, REGULAR_EMPTY);
}

/* ---- derivatives ---- */

static uint32_t derive(struct regular *r, uint32_t term, unsigned byte, uint32_t depth);

static uint32_t derive_parts(struct regular *r, const struct regular_term *t, unsigned byte, uint32_t depth)
{
    uint32_t base = r->n_scratch, out = REGULAR_NOTHING;
    bool ok = true;
    for (uint32_t i = 0; ok && i < t->b; i++) {
        uint32_t part = derive(r, r->parts[t->a + i], byte, depth);
        if (part != REGULAR_NOTHING)
            ok = push_flat(r, part, (enum term_kind)t->kind);
        else if (t->kind == TERM_ALL_OF)
            ok = false; /* one part that matches nothing decides */
    }
    if (ok) out = t->kind == TERM_ANY_OF ? union_of(r, base) : intersection_of(r, base);
    r->n_scratch = base;
    return out;
}

/* `first`, then `rest`. A union in front is spread over what follows it: so every derivative of a term is a union of
 * few different parts, as many as the term is long, and unions of unions do not pile up. */
static uint32_t spread(struct regular *r, uint32_t first, uint32_t rest)
{
    const struct regular_term t = r->terms[first];
    uint32_t base = r->n_scratch, out = REGULAR_NOTHING;
    if (t.kind != TERM_ANY_OF) return regular_seq(r, first, rest);
    bool ok = true;
    for (uint32_t i = 0; ok && i < t.b; i++) ok = push_flat(r, regular_seq(r, r->parts[t.a + i], rest), TERM_ANY_OF);
    if (ok && r->err.kind == ERR_NONE) out = union_of(r, base);
    r->n_scratch = base;
    return out;
}

static uint32_t derive_seq(struct regular *r, const struct regular_term *t, unsigned byte, uint32_t depth)
{
    uint32_t first = spread(r, derive(r, t->a, byte, depth), t->b);
    if (!r->terms[t->a].has_empty) return first;
    uint32_t second = derive(r, t->b, byte, depth);
    return second == REGULAR_NOTHING ? first : regular_or(r, first, second);
}

static uint32_t derive_close(struct regular *r, const struct regular_term *t, unsigned byte, uint32_t depth)
{
    uint32_t first = regular_close(r, derive(r, t->a, byte, depth), t->b);
    return r->terms[t->a].has_empty ? regular_or(r, first, derive(r, t->b, byte, depth)) : first;
}

static uint32_t derive_repeat(struct regular *r, const struct regular_term *t, unsigned byte, uint32_t depth)
{
    uint32_t first = derive(r, t->a, byte, depth);
    if (first == REGULAR_NOTHING) return REGULAR_NOTHING;
    uint32_t rest = regular_repeat(r, t->a, t->b > 0 ? t->b - 1 : 0, t->c == REGULAR_MANY ? REGULAR_MANY : t->c - 1);
    return spread(r, first, rest);
}

/* Of a term with parts. */
static uint32_t derive_new(struct regular *r, uint32_t term, unsigned byte, uint32_t depth)
{
    const struct regular_term t = r->terms[term];
    if (depth == DERIVE_DEPTH_MAX) fail(r, "the pattern has too many parts in a row that may be left out");
    if (r->steps_left == 0) fail(r, "the pattern takes too long to compile");
    if (r->err.kind != ERR_NONE) return REGULAR_NOTHING;
    r->steps_left--;
    switch ((enum term_kind)t.kind) {
    case TERM_SEQ: return derive_seq(r, &t, byte, depth + 1);
    case TERM_CLOSE: return derive_close(r, &t, byte, depth + 1);
    case TERM_ANY_OF:
    case TERM_ALL_OF:
        r->steps_left -= t.b < r->steps_left ? t.b : r->steps_left;
        return derive_parts(r, &t, byte, depth + 1);
    case TERM_NOT: return regular_not(r, derive(r, t.a, byte, depth + 1));
    case TERM_REPEAT: return derive_repeat(r, &t, byte, depth + 1);
    case TERM_NOTHING:
    case TERM_EMPTY:
    case TERM_SET: break;
    }
    return REGULAR_NOTHING;
}

static struct regular_memo *memo_slot(struct regular_memo *memo, uint32_t mask, uint64_t key)
{
    uint32_t at = (uint32_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 32) & mask;
    while (memo[at].key && memo[at].key != key) at = (at + 1) & mask;
    return &memo[at];
}

/* Doubles the table, or at its largest forgets all: what is forgotten is found again. */
static bool memo_room(struct regular *r)
{
    if (r->memo_mask && r->n_memo * 2 <= r->memo_mask) return true;
    uint32_t n = r->memo_mask ? (r->memo_mask + 1) * 2 : 1024;
    bool forgets = n > MEMO_MAX;
    struct regular_memo *memo = alloc_get_array(r->alloc, forgets ? MEMO_MAX : n, sizeof *memo, &r->err);
    if (!memo) return false;
    for (uint32_t i = 0; r->memo && !forgets && i <= r->memo_mask; i++)
        if (r->memo[i].key) *memo_slot(memo, n - 1, r->memo[i].key) = r->memo[i];
    if (forgets) r->n_memo = 0;
    alloc_put(r->alloc, r->memo);
    r->memo = memo;
    r->memo_mask = (forgets ? MEMO_MAX : n) - 1;
    return true;
}

static uint32_t derive(struct regular *r, uint32_t term, unsigned byte, uint32_t depth)
{
    const struct regular_term *t = &r->terms[term];
    if (t->kind == TERM_NOTHING || t->kind == TERM_EMPTY || r->err.kind != ERR_NONE) return REGULAR_NOTHING;
    if (t->kind == TERM_SET) return byte_set_has(&r->sets[t->a], byte) ? REGULAR_EMPTY : REGULAR_NOTHING;
    uint64_t key = (uint64_t)term << 8 | byte;
    struct regular_memo *slot = r->memo ? memo_slot(r->memo, r->memo_mask, key) : NULL;
    if (slot && slot->key) return slot->derivative;
    uint32_t derivative = derive_new(r, term, byte, depth);
    if (r->err.kind != ERR_NONE || !memo_room(r)) return REGULAR_NOTHING;
    *memo_slot(r->memo, r->memo_mask, key) = (struct regular_memo){key, derivative};
    r->n_memo++;
    return derivative;
}

uint32_t regular_derive(struct regular *r, uint32_t term, unsigned byte)
{
    return derive(r, term, byte, 0);
}

/* ---- classes of bytes ---- */

static uint32_t split_classes(const struct byte_set *set, uint8_t class_of[256], uint32_t n)
{
    uint16_t fresh[256]; /* the number that the inside part of a class gets; 0: not seen */
    bool stays[256] = {false};
    memset(fresh, 0, sizeof fresh);
    for (unsigned byte = 0; byte < 256; byte++)
        if (!byte_set_has(set, byte)) stays[class_of[byte]] = true;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint8_t c = class_of[byte];
        if (!byte_set_has(set, byte) || !stays[c]) continue;
        if (!fresh[c]) fresh[c] = (uint16_t)n++;
        class_of[byte] = (uint8_t)fresh[c];
    }
    return n;
}

uint32_t regular_classes(struct regular *r, uint32_t term, uint8_t class_of[256])
{
    uint32_t n = 1, n_seen = r->n_terms;
    memset(class_of, 0, 256);
    uint8_t *seen = alloc_get(r->alloc, (uint64_t)n_seen + r->n_sets, &r->err);
    if (!seen) return n;
    uint8_t *set_seen = seen + n_seen;
    uint32_t base = r->n_scratch;
    bool ok = push(r, term);
    while (ok && r->n_scratch > base) {
        uint32_t id = r->scratch[--r->n_scratch];
        if (seen[id]) continue;
        seen[id] = 1;
        const struct regular_term t = r->terms[id];
        if (t.kind == TERM_SET && !set_seen[t.a]) {
            set_seen[t.a] = 1;
            n = split_classes(&r->sets[t.a], class_of, n);
        }
        if (t.kind == TERM_ANY_OF || t.kind == TERM_ALL_OF)
            for (uint32_t i = 0; ok && i < t.b; i++) ok = push(r, r->parts[t.a + i]);
        bool has_two = t.kind == TERM_SEQ || t.kind == TERM_CLOSE;
        if (has_two || t.kind == TERM_NOT || t.kind == TERM_REPEAT) ok = push(r, t.a);
        if (ok && has_two) ok = push(r, t.b);
    }
    r->n_scratch = base;
    alloc_put(r->alloc, seen);
    return n;
}
