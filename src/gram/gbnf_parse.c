#include "gram/gbnf_int.h"

#include "base/utf8.h"

#include <string.h>

static bool is_name(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Blanks and comments; line ends only when they mean nothing. */
static void skip(struct gbnf *g, bool lines)
{
    for (;;) {
        uint32_t c = pattern_peek(&g->p);
        if (c == '#') {
            while (c != PATTERN_END && c != '\n') {
                pattern_take(&g->p);
                c = pattern_peek(&g->p);
            }
            continue;
        }
        if (c != ' ' && c != '\t' && c != '\r' && (c != '\n' || !lines)) return;
        pattern_take(&g->p);
    }
}

/* The rule of the name at the reader, made when it is new. */
static struct gbnf_rule *rule_here(struct gbnf *g)
{
    const char *name = g->p.text + g->p.at;
    size_t at = g->p.at;
    uint32_t hash = 5381;
    while (is_name(pattern_peek(&g->p))) hash = hash * 33 + pattern_take(&g->p);
    uint32_t n = (uint32_t)(g->p.at - at), *bucket = &g->buckets[hash % GBNF_BUCKETS];
    for (uint32_t i = *bucket; i; i = g->rules[i - 1].bucket_next)
        if (g->rules[i - 1].name_bytes == n && memcmp(g->rules[i - 1].name, name, n) == 0) return &g->rules[i - 1];
    if (g->n_rules == GBNF_RULES_MAX) {
        pattern_unsupported(&g->p, at, g->err, "more than 1024 rules");
        return NULL;
    }
    struct gbnf_rule *rule = &g->rules[g->n_rules++];
    *rule = (struct gbnf_rule){.name = name, .name_bytes = n, .at = at, .bucket_next = *bucket};
    *bucket = g->n_rules;
    return rule;
}

static struct gbnf_expr *new_expr(struct gbnf *g, enum gbnf_kind kind)
{
    struct gbnf_expr *expr = arena_get(&g->builder->scratch, sizeof *expr, g->err);
    if (expr) expr->kind = kind;
    return expr;
}

static bool take_term(struct gbnf *g, struct code_set *set, bool ok, uint32_t *term)
{
    if (ok) *term = code_set_term(set, &g->builder->regular, SPELL_RAW);
    code_set_fini(set);
    return ok;
}

/* Characters up to the closing quote. The text of a literal is gathered first: a sequence is made from behind. */
static bool literal(struct gbnf *g, uint32_t *term)
{
    size_t at = g->p.at;
    struct buf text;
    bool ok = true;
    pattern_take(&g->p);
    buf_init(&text, g->builder->alloc, GBNF_BYTES_MAX);
    while (ok && !pattern_take_if(&g->p, '"')) {
        struct code_set ignored;
        size_t here = g->p.at;
        uint32_t c = pattern_take(&g->p);
        code_set_init(&ignored, g->builder->alloc);
        if (c == PATTERN_END || c == '\n')
            ok = pattern_invalid(&g->p, at, g->err, "a literal without its closing quote");
        if (ok && c == '\\') {
            ok = pattern_escape(&g->p, here, &ignored, &c, g->err);
            if (ok && c == PATTERN_END) ok = pattern_invalid(&g->p, here, g->err, "a class is no part of a literal");
            if (ok && c >= 0xD800 && c <= 0xDFFF)
                ok = pattern_invalid(&g->p, here, g->err, "a surrogate without its pair");
        }
        char utf8[4];
        if (ok) ok = buf_add(&text, utf8, utf8_put(utf8, c), g->err);
        code_set_fini(&ignored);
    }
    if (ok) *term = regular_bytes(&g->builder->regular, text.data, text.bytes);
    buf_fini(&text);
    return ok;
}

static struct gbnf_expr *alternatives(struct gbnf *g);

static struct gbnf_expr *group(struct gbnf *g)
{
    size_t at = g->p.at;
    pattern_take(&g->p);
    if (g->depth == PATTERN_DEPTH_MAX) {
        pattern_unsupported(&g->p, at, g->err, "groups nest deeper than 64 levels");
        return NULL;
    }
    g->depth++;
    skip(g, true);
    struct gbnf_expr *expr = alternatives(g);
    g->depth--;
    if (expr && !pattern_take_if(&g->p, ')')) {
        pattern_invalid(&g->p, at, g->err, "a group without its closing parenthesis");
        return NULL;
    }
    return expr;
}

static struct gbnf_expr *atom(struct gbnf *g)
{
    size_t at = g->p.at;
    uint32_t c = pattern_peek(&g->p);
    if (c == '(') return group(g);
    struct gbnf_expr *expr = new_expr(g, is_name(c) ? GBNF_REF : GBNF_TERM);
    if (!expr) return NULL;
    if (is_name(c)) {
        struct gbnf_rule *rule = rule_here(g);
        expr->rule = rule ? (uint32_t)(rule - g->rules) : 0;
        return rule ? expr : NULL;
    }
    if (c == '"') return literal(g, &expr->term) ? expr : NULL;
    pattern_take(&g->p);
    if (c == '.') {
        expr->term = code_any_term(&g->builder->regular, SPELL_RAW);
        return expr;
    }
    struct code_set set;
    code_set_init(&set, g->builder->alloc);
    return take_term(g, &set, pattern_class(&g->p, at, &set, g->err), &expr->term) ? expr : NULL;
}

static struct gbnf_expr *piece(struct gbnf *g)
{
    struct pattern_count count;
    bool found;
    struct gbnf_expr *expr = atom(g);
    if (!expr) return NULL;
    skip(g, g->depth > 0);
    if (!pattern_quantifier(&g->p, &count, &found, g->err)) return NULL;
    if (!found) return expr;
    struct gbnf_expr *repeat = new_expr(g, GBNF_REPEAT);
    if (!repeat) return NULL;
    repeat->min = count.min;
    repeat->max = count.max;
    repeat->child = expr;
    size_t at = g->p.at;
    if (!pattern_quantifier(&g->p, &count, &found, g->err)) return NULL;
    if (found) pattern_invalid(&g->p, at, g->err, "a quantifier behind a quantifier");
    return found ? NULL : repeat;
}

static struct gbnf_expr *sequence(struct gbnf *g)
{
    struct gbnf_expr *seq = new_expr(g, GBNF_SEQ), **last = seq ? &seq->child : NULL;
    while (seq) {
        uint32_t c = pattern_peek(&g->p);
        if (c != '"' && c != '[' && c != '(' && c != '.' && !is_name(c)) break;
        *last = piece(g);
        if (!*last) return NULL;
        last = &(*last)->next;
        skip(g, g->depth > 0);
    }
    return seq;
}

/* True, and the reader is there, when the next line goes on with `|`. */
static bool goes_on(struct gbnf *g)
{
    size_t at = g->p.at;
    skip(g, true);
    if (pattern_peek(&g->p) == '|') return true;
    g->p.at = at;
    return false;
}

static struct gbnf_expr *alternatives(struct gbnf *g)
{
    struct gbnf_expr *any_of = new_expr(g, GBNF_ANY_OF), **last = any_of ? &any_of->child : NULL;
    while (any_of) {
        *last = sequence(g);
        if (!*last) return NULL;
        last = &(*last)->next;
        if (!goes_on(g)) break;
        pattern_take(&g->p);
        skip(g, true);
    }
    return any_of;
}

static bool rule(struct gbnf *g)
{
    size_t at = g->p.at;
    if (!is_name(pattern_peek(&g->p))) return pattern_invalid(&g->p, at, g->err, "a rule must begin with its name");
    struct gbnf_rule *rule = rule_here(g);
    if (!rule) return false;
    if (rule->body) return pattern_invalid(&g->p, at, g->err, "this rule is there already");
    rule->at = at;
    skip(g, false);
    if (!pattern_looks_at(&g->p, "::="))
        return pattern_invalid(&g->p, g->p.at, g->err, "::= must follow the name of a rule");
    g->p.at += 3;
    skip(g, true);
    struct gbnf_expr *body = alternatives(g);
    if (!body) return false;
    rule->body = body;
    uint32_t c = pattern_peek(&g->p);
    return c == PATTERN_END || c == '\n' || pattern_invalid(&g->p, g->p.at, g->err, "this is no part of a rule");
}

bool gbnf_parse(struct gbnf *g)
{
    skip(g, true);
    while (pattern_peek(&g->p) != PATTERN_END) {
        if (!rule(g)) return false;
        skip(g, true);
    }
    return true;
}
