#include "gram/gbnf_int.h"

#include <stdio.h>
#include <string.h>

static bool wrong_rule(struct gbnf *g, const struct gbnf_rule *rule, const char *what)
{
    return err_set(g->err, ERR_USER, "invalid_schema: grammar: byte %zu: rule %.*s %s", rule->at,
                   (int)(rule->name_bytes < 64 ? rule->name_bytes : 64), rule->name, what);
}

/* ---- facts about rules ---- */

static bool has_empty(const struct gbnf *g, const struct gbnf_expr *e)
{
    switch (e->kind) {
    case GBNF_TERM: return regular_has_empty(&g->builder->regular, e->term);
    case GBNF_REF: return g->rules[e->rule].has_empty;
    case GBNF_REPEAT: return e->min == 0 || has_empty(g, e->child);
    case GBNF_SEQ:
    case GBNF_ANY_OF: break;
    }
    for (const struct gbnf_expr *c = e->child; c; c = c->next)
        if (has_empty(g, c) != (e->kind == GBNF_SEQ)) return e->kind == GBNF_ANY_OF;
    return e->kind == GBNF_SEQ;
}

static bool can_end(const struct gbnf *g, const struct gbnf_expr *e)
{
    switch (e->kind) {
    case GBNF_TERM: return e->term != REGULAR_NOTHING;
    case GBNF_REF: return g->rules[e->rule].can_end;
    case GBNF_REPEAT: return e->min == 0 || can_end(g, e->child);
    case GBNF_SEQ:
    case GBNF_ANY_OF: break;
    }
    for (const struct gbnf_expr *c = e->child; c; c = c->next)
        if (can_end(g, c) != (e->kind == GBNF_SEQ)) return e->kind == GBNF_ANY_OF;
    return e->kind == GBNF_SEQ;
}

/* Until nothing changes. */
static void find_facts(struct gbnf *g)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < g->n_rules; i++) {
            struct gbnf_rule *rule = &g->rules[i];
            bool empty = rule->has_empty || has_empty(g, rule->body), ends = rule->can_end || can_end(g, rule->body);
            changed |= empty != rule->has_empty || ends != rule->can_end;
            rule->has_empty = empty;
            rule->can_end = ends;
        }
    }
}

/* ---- left recursion ---- */

struct left {
    uint64_t (*first)[GBNF_RULES_MAX / 64]; /* [n_rules] rules that a rule can begin with */
    uint8_t *state;                         /* [n_rules] 0 new, 1 on the path, 2 done */
    uint32_t *path, n_path;
};

/* Collects what an expression can begin with; true when it may match nothing. */
static bool collect(const struct gbnf *g, const struct gbnf_expr *e, uint64_t *first)
{
    if (e->kind == GBNF_REF) first[e->rule / 64] |= UINT64_C(1) << (e->rule % 64);
    for (const struct gbnf_expr *c = e->child; c; c = c->next)
        if (!collect(g, c, first) && e->kind == GBNF_SEQ) return false;
    return has_empty(g, e);
}

static bool name_cycle(struct gbnf *g, const struct left *left, uint32_t rule)
{
    char names[512];
    size_t n = 0;
    uint32_t i = 0;
    while (left->path[i] != rule) i++;
    for (; i <= left->n_path && n < sizeof names; i++) {
        const struct gbnf_rule *r = &g->rules[i < left->n_path ? left->path[i] : rule];
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", n ? " -> " : "",
                              (int)(r->name_bytes < 64 ? r->name_bytes : 64), r->name);
    }
    return err_set(g->err, ERR_USER, "unsupported_schema: grammar: left recursion: %s", names);
}

static bool visit(struct gbnf *g, struct left *left, uint32_t rule)
{
    left->state[rule] = 1;
    left->path[left->n_path++] = rule;
    for (uint32_t i = 0; i < g->n_rules; i++) {
        if (!(left->first[rule][i / 64] >> (i % 64) & 1) || left->state[i] == 2) continue;
        if (left->state[i] == 1) return name_cycle(g, left, i);
        if (!visit(g, left, i)) return false;
    }
    left->state[rule] = 2;
    left->n_path--;
    return true;
}

static bool check_left(struct gbnf *g)
{
    struct arena *scratch = &g->builder->scratch;
    struct left left = {
        .first = arena_get_array(scratch, g->n_rules, sizeof *left.first, g->err),
        .state = arena_get(scratch, g->n_rules, g->err),
        .path = arena_get_array(scratch, g->n_rules, sizeof *left.path, g->err),
    };
    if (!left.first || !left.state || !left.path) return false;
    for (uint32_t i = 0; i < g->n_rules; i++) (void)collect(g, g->rules[i].body, left.first[i]);
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (left.state[i] == 0 && !visit(g, &left, i)) return false;
    return true;
}

/* ---- to terms and nodes ---- */

static bool is_regular(const struct gbnf *g, const struct gbnf_expr *e)
{
    if (e->kind == GBNF_REF) return g->rules[e->rule].is_regular;
    for (const struct gbnf_expr *c = e->child; c; c = c->next)
        if (!is_regular(g, c)) return false;
    return true;
}

/* Of a regular expression. */
static uint32_t term_of(struct gbnf *g, const struct gbnf_expr *e)
{
    struct regular *r = &g->builder->regular;
    if (e->kind == GBNF_TERM) return e->term;
    if (e->kind == GBNF_REF) return g->rules[e->rule].term;
    if (e->kind == GBNF_REPEAT) return regular_repeat(r, term_of(g, e->child), e->min, e->max);
    uint32_t n = 0;
    for (const struct gbnf_expr *c = e->child; c; c = c->next) n++;
    uint32_t *terms = arena_get_array(&g->builder->scratch, n, sizeof *terms, &r->err);
    if (!terms) return REGULAR_NOTHING;
    n = 0;
    for (const struct gbnf_expr *c = e->child; c; c = c->next) terms[n++] = term_of(g, c);
    return e->kind == GBNF_SEQ ? regular_seq_of(r, terms, n) : regular_any_of(r, terms, n);
}

/* Rules whose references are all regular, until there are no more: those on a cycle never are. */
static void find_regular(struct gbnf *g)
{
    for (bool changed = g->inlines; changed;) {
        changed = false;
        for (uint32_t i = 0; i < g->n_rules; i++) {
            struct gbnf_rule *rule = &g->rules[i];
            if (rule->is_regular || !is_regular(g, rule->body)) continue;
            rule->term = term_of(g, rule->body);
            rule->is_regular = changed = true;
        }
    }
}

static uint32_t node_of(struct gbnf *g, const struct gbnf_expr *e);

/* Parts of a sequence or union, with neighbours that are regular joined into one automaton. */
static uint32_t list_node(struct gbnf *g, const struct gbnf_expr *e)
{
    struct builder *b = g->builder;
    struct regular *r = &b->regular;
    uint32_t n = 0, n_terms = 0, n_nodes = 0;
    for (const struct gbnf_expr *c = e->child; c; c = c->next) n++;
    uint32_t *terms = arena_get_array(&b->scratch, (uint64_t)n * 2 + 1, sizeof *terms, &r->err);
    if (!terms) return 0;
    uint32_t *nodes = terms + n;
    for (const struct gbnf_expr *c = e->child; c; c = c->next) {
        if (is_regular(g, c)) terms[n_terms++] = term_of(g, c);
        if (e->kind == GBNF_SEQ && n_terms > 0 && (!c->next || !is_regular(g, c->next))) {
            nodes[n_nodes++] = build_term(b, regular_seq_of(r, terms, n_terms));
            n_terms = 0;
        }
        if (!is_regular(g, c)) nodes[n_nodes++] = node_of(g, c);
    }
    if (n_terms > 0) nodes[n_nodes++] = build_term(b, regular_any_of(r, terms, n_terms));
    return e->kind == GBNF_SEQ ? build_seq(b, nodes, n_nodes) : build_union(b, nodes, n_nodes);
}

static uint32_t node_of(struct gbnf *g, const struct gbnf_expr *e)
{
    struct builder *b = g->builder;
    if (is_regular(g, e)) return build_term(b, term_of(g, e));
    if (e->kind == GBNF_REF) return g->rules[e->rule].node;
    if (e->kind == GBNF_REPEAT) return build_repeat(b, node_of(g, e->child), e->min, e->max);
    return list_node(g, e);
}

static bool check_rules(struct gbnf *g, uint32_t *root)
{
    *root = g->n_rules;
    for (uint32_t i = 0; i < g->n_rules; i++) {
        const struct gbnf_rule *rule = &g->rules[i];
        if (!rule->body) return wrong_rule(g, rule, "is used but not defined");
        if (rule->name_bytes == 4 && memcmp(rule->name, "root", 4) == 0) *root = i;
    }
    if (*root == g->n_rules) return err_set(g->err, ERR_USER, "invalid_schema: grammar: there is no rule named root");
    find_facts(g);
    for (uint32_t i = 0; i < g->n_rules; i++)
        if (!g->rules[i].can_end) return wrong_rule(g, &g->rules[i], "matches no text that ends");
    return check_left(g);
}

bool gbnf_node(struct builder *b, const struct gbnf_text *text, uint32_t *node, struct err *err)
{
    struct gbnf g = {.builder = b, .inlines = text->inlines, .err = err};
    uint32_t root;
    if (!pattern_reader_init(&g.p, "grammar", text->text, text->bytes, err)) return false;
    if (text->bytes > GBNF_BYTES_MAX)
        return pattern_unsupported(&g.p, GBNF_BYTES_MAX, err, "a grammar may have 262144 bytes at most");
    g.rules = arena_get_array(&b->scratch, GBNF_RULES_MAX, sizeof *g.rules, err);
    g.buckets = g.rules ? arena_get_array(&b->scratch, GBNF_BUCKETS, sizeof *g.buckets, err) : NULL;
    if (!g.buckets || !gbnf_parse(&g) || !check_rules(&g, &root)) return false;
    find_regular(&g);
    for (uint32_t i = 0; i < g.n_rules; i++)
        if (!g.rules[i].is_regular) g.rules[i].node = build_link(b);
    for (uint32_t i = 0; i < g.n_rules; i++)
        if (!g.rules[i].is_regular) build_link_to(b, g.rules[i].node, node_of(&g, g.rules[i].body));
    *node = g.rules[root].is_regular ? build_term(b, g.rules[root].term) : g.rules[root].node;
    return build_ok(b, err);
}
