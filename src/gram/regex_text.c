#include "gram/regex_text.h"

#include "gram/pattern_reader.h"

struct parser {
    struct pattern_reader p;
    struct regular *regular;
    const struct regex_text *regex;
    uint32_t depth; /* groups that are open */
    struct err *err;
};

static bool alternatives(struct parser *x, uint32_t *term);

/* Behind "(": says what kind of group it is and takes its mark. */
static bool group_mark(struct parser *x, size_t at)
{
    if (!pattern_take_if(&x->p, '?')) return true;
    if (pattern_take_if(&x->p, ':')) return true;
    if (pattern_looks_at(&x->p, "=") || pattern_looks_at(&x->p, "!") || pattern_looks_at(&x->p, "<=") ||
        pattern_looks_at(&x->p, "<!"))
        return pattern_unsupported(&x->p, at, x->err, "look-around is not supported");
    pattern_take_if(&x->p, 'P');
    if (!pattern_take_if(&x->p, '<')) return pattern_unsupported(&x->p, at, x->err, "flags are not supported");
    for (uint32_t c = pattern_take(&x->p); c != '>'; c = pattern_take(&x->p))
        if (c == PATTERN_END) return pattern_invalid(&x->p, at, x->err, "a group name without its end");
    return true;
}

static bool group(struct parser *x, size_t at, uint32_t *term)
{
    if (x->depth == PATTERN_DEPTH_MAX)
        return pattern_unsupported(&x->p, at, x->err, "groups nest deeper than 64 levels");
    if (!group_mark(x, at)) return false;
    x->depth++;
    if (!alternatives(x, term)) return false;
    x->depth--;
    return pattern_take_if(&x->p, ')') || pattern_invalid(&x->p, at, x->err, "a group without its closing parenthesis");
}

static bool set_term(struct parser *x, struct code_set *set, bool ok, uint32_t *term)
{
    if (ok) *term = code_set_term(set, x->regular, x->regex->spelling);
    code_set_fini(set);
    return ok;
}

static bool atom(struct parser *x, uint32_t *term)
{
    size_t at = x->p.at;
    struct code_set set;
    uint32_t single, c = pattern_take(&x->p);
    code_set_init(&set, x->regular->alloc);
    switch (c) {
    case '(': return group(x, at, term);
    case '[': return set_term(x, &set, pattern_class(&x->p, at, &set, x->err), term);
    case '\\': {
        bool ok = pattern_escape(&x->p, at, &set, &single, x->err);
        code_set_tidy(&set);
        return set_term(x, &set, ok, term);
    }
    case '.':
        *term = regular_or(x->regular, code_range_term(x->regular, 0, '\n' - 1, x->regex->spelling),
                           code_range_term(x->regular, '\n' + 1, 0x10FFFF, x->regex->spelling));
        return true;
    case '*':
    case '+':
    case '?': return pattern_invalid(&x->p, at, x->err, "a quantifier without anything in front of it");
    case '^':
    case '$':
        return pattern_unsupported(&x->p, at, x->err, "^ and $ are supported at the ends of a whole alternative only");
    default: *term = code_range_term(x->regular, c, c, x->regex->spelling); return true;
    }
}

/* An atom and what repeats it. */
static bool piece(struct parser *x, uint32_t *term)
{
    struct pattern_count count;
    bool found;
    if (!atom(x, term)) return false;
    size_t at = x->p.at;
    if (!pattern_quantifier(&x->p, &count, &found, x->err)) return false;
    if (!found) return true;
    if (pattern_peek(&x->p) == '+')
        return pattern_unsupported(&x->p, at, x->err, "possessive quantifiers are not supported");
    pattern_take_if(&x->p, '?');
    at = x->p.at;
    *term = regular_repeat(x->regular, *term, count.min, count.max);
    if (!pattern_quantifier(&x->p, &count, &found, x->err)) return false;
    return !found || pattern_invalid(&x->p, at, x->err, "a quantifier behind a quantifier");
}

static bool ends_alternative(const struct parser *x)
{
    uint32_t c = pattern_peek(&x->p);
    return c == PATTERN_END || c == '|' || (c == ')' && x->depth > 0);
}

/* True at a `$` that ends an alternative of the outermost level. */
static bool at_last_anchor(const struct parser *x)
{
    return x->depth == 0 && pattern_peek(&x->p) == '$' && (x->p.at + 1 == x->p.bytes || x->p.text[x->p.at + 1] == '|');
}

/* The pieces up to the end of the alternative. Sequences are made from behind, so that what is left of one is a part of
 * it and not a new term; the recursion is by halves of what one call has gathered. */
static bool pieces(struct parser *x, uint32_t *term)
{
    enum { GATHER = 64 };
    uint32_t gathered[GATHER], n = 0, rest = REGULAR_EMPTY;
    while (n < GATHER && !ends_alternative(x) && !at_last_anchor(x)) {
        if (x->depth == 0 && pattern_peek(&x->p) == ')')
            return pattern_invalid(&x->p, x->p.at, x->err, "a closing parenthesis too many");
        if (!piece(x, &gathered[n++])) return false;
    }
    if (n == GATHER && !pieces(x, &rest)) return false;
    *term = regular_seq(x->regular, regular_seq_of(x->regular, gathered, n), rest);
    return true;
}

static bool alternative(struct parser *x, uint32_t *term)
{
    struct regular *r = x->regular;
    bool is_outer = x->depth == 0, begins = is_outer && pattern_take_if(&x->p, '^');
    if (!pieces(x, term)) return false;
    bool ends = is_outer && at_last_anchor(x) && pattern_take_if(&x->p, '$');
    if (!is_outer || !x->regex->searches) return true;
    uint32_t anything = regular_many(r, code_any_term(r, x->regex->spelling));
    regular_text_is(r, anything);
    if (!ends) *term = regular_seq(r, *term, anything);
    if (!begins) *term = regular_seq(r, anything, *term);
    return true;
}

static bool alternatives(struct parser *x, uint32_t *term)
{
    if (!alternative(x, term)) return false;
    while (pattern_take_if(&x->p, '|')) {
        uint32_t other;
        if (!alternative(x, &other)) return false;
        *term = regular_or(x->regular, *term, other);
    }
    return true;
}

bool regex_text_term(struct regular *regular, const struct regex_text *regex, uint32_t *term, struct err *err)
{
    struct parser x = {.regular = regular, .regex = regex, .err = err};
    *term = REGULAR_NOTHING;
    if (!pattern_reader_init(&x.p, regex->where, regex->text, regex->bytes, err)) return false;
    if (regex->bytes > REGEX_BYTES_MAX)
        return pattern_unsupported(&x.p, REGEX_BYTES_MAX, err, "a pattern may have 8192 bytes at most");
    return alternatives(&x, term) && regular_ok(regular, err);
}
