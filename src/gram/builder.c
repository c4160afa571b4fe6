#include "gram/builder.h"

#include "base/assert.h"
#include "gram/grow.h"
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES_MAX = 64 << 20 };

bool builder_init(struct builder *b, struct alloc *alloc, struct err *err)
{
    *b = (struct builder){.alloc = alloc, .grammar.alloc = alloc};
    arena_init(&b->scratch, alloc, BUILD_SCRATCH_BYTES_MAX);
    b->budget = (struct dfa_budget){BUILD_STATES_MAX, BUILD_STATES_MAX, 1 << 23};
    if (regular_init(&b->regular, alloc, err)) return true;
    builder_fini(b);
    return false;
}

void builder_fini(struct builder *b)
{
    if (!b->alloc) return;
    arena_fini(&b->scratch);
    regular_fini(&b->regular);
    grammar_fini(&b->grammar);
    alloc_put(b->alloc, b->term_of_dfa);
    *b = (struct builder){0};
}

/* What was built is no node: the caller may go on, and build_ok tells. The first failure stays. */
static uint32_t build_fail(struct builder *b, const struct err *err)
{
    if (b->err.kind == ERR_NONE) b->err = *err;
    return 0;
}

bool build_ok(struct builder *b, struct err *err)
{
    if (b->err.kind == ERR_NONE) return regular_ok(&b->regular, err);
    if (err) *err = b->err;
    return false;
}

/* Room for `more` elements; the failure is kept in the builder. */
static bool room(struct builder *b, const char *what, uint32_t max, void *block, uint32_t *have, uint64_t need,
                 uint32_t element_bytes)
{
    const struct grow grow = {b->alloc, what, max};
    return b->err.kind == ERR_NONE && grow_room(&grow, block, have, need, element_bytes, &b->err);
}

static uint32_t add_node(struct builder *b, struct gram_node node)
{
    struct grammar *g = &b->grammar;
    if (!room(b, "grammar nodes", BUILD_NODES_MAX, &g->nodes, &g->nodes_room, (uint64_t)g->n_nodes + 1, sizeof node))
        return 0;
    g->nodes[g->n_nodes] = node;
    return g->n_nodes++;
}

/* The number of the automaton of a term. */
static uint32_t add_dfa(struct builder *b, uint32_t term)
{
    struct grammar *g = &b->grammar;
    struct err err = {0};
    if (!build_ok(b, &err)) return build_fail(b, &err);
    for (uint32_t i = 0; i < g->n_dfas; i++)
        if (b->term_of_dfa[i] == term) return i;
    if (!room(b, "automata", BUILD_NODES_MAX, &g->dfas, &g->dfas_room, (uint64_t)g->n_dfas + 1, sizeof *g->dfas) ||
        !room(b, "automata", BUILD_NODES_MAX, &b->term_of_dfa, &b->term_of_dfa_room, (uint64_t)g->n_dfas + 1,
              sizeof *b->term_of_dfa))
        return 0;
    if (!dfa_init(&g->dfas[g->n_dfas], &b->regular, term, &b->budget, &err)) return build_fail(b, &err);
    b->term_of_dfa[g->n_dfas] = term;
    return g->n_dfas++;
}

uint32_t build_term(struct builder *b, uint32_t term)
{
    if (term == REGULAR_EMPTY) return build_seq(b, NULL, 0);
    if (term == REGULAR_NOTHING) return build_union(b, NULL, 0);
    uint32_t dfa = add_dfa(b, term);
    return add_node(b, (struct gram_node){.kind = NODE_DFA, .a = dfa});
}

uint32_t build_count(struct builder *b, uint32_t unit, uint32_t end, uint32_t min, uint32_t max)
{
    ASSERT(min <= max);
    uint32_t dfa = add_dfa(b, regular_seq(&b->regular, regular_many(&b->regular, unit), end));
    return add_node(b, (struct gram_node){.kind = NODE_COUNT, .a = dfa, .min = min, .max = max});
}

uint32_t build_token(struct builder *b, uint32_t id)
{
    return add_node(b, (struct gram_node){.kind = NODE_TOKEN, .a = id});
}

static uint32_t add_list(struct builder *b, enum gram_kind kind, const uint32_t *nodes, uint32_t n)
{
    struct grammar *g = &b->grammar;
    if (!room(b, "parts of nodes", BUILD_NODES_MAX * 8, &g->parts, &g->parts_room, (uint64_t)g->n_parts + n,
              sizeof *nodes))
        return 0;
    for (uint32_t i = 0; i < n; i++) g->parts[g->n_parts + i] = nodes[i];
    g->n_parts += n;
    return add_node(b, (struct gram_node){.kind = (uint8_t)kind, .a = g->n_parts - n, .b = n});
}

uint32_t build_seq(struct builder *b, const uint32_t *nodes, uint32_t n)
{
    return n == 1 ? nodes[0] : add_list(b, NODE_SEQ, nodes, n);
}

uint32_t build_union(struct builder *b, const uint32_t *nodes, uint32_t n)
{
    return n == 1 ? nodes[0] : add_list(b, NODE_UNION, nodes, n);
}

uint32_t build_repeat(struct builder *b, uint32_t node, uint32_t min, uint32_t max)
{
    ASSERT(min <= max);
    if (min == 1 && max == 1) return node;
    if (max == 0) return build_seq(b, NULL, 0);
    return add_node(b, (struct gram_node){.kind = NODE_REPEAT, .a = node, .min = min, .max = max});
}

uint32_t build_nest(struct builder *b, uint32_t node)
{
    return add_node(b, (struct gram_node){.kind = NODE_NEST, .a = node});
}

uint32_t build_link(struct builder *b)
{
    return add_node(b, (struct gram_node){.kind = NODE_LINK, .a = GRAM_NONE});
}

void build_link_to(struct builder *b, uint32_t link, uint32_t node)
{
    if (b->err.kind != ERR_NONE) return;
    ASSERT(b->grammar.nodes[link].kind == NODE_LINK);
    b->grammar.nodes[link].a = node;
}

/* ---- words ---- */

static int by_bytes(const void *left, const void *right)
{
    const struct build_word *a = left, *b = right;
    size_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->bytes, b->bytes, n) : 0;
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static bool add_word(struct builder *b, const struct build_word *word)
{
    struct grammar *g = &b->grammar;
    if (!room(b, "words", BUILD_NODES_MAX * 4, &g->words, &g->words_room, (uint64_t)g->n_words + 1, sizeof *g->words) ||
        !room(b, "bytes of words", WORD_BYTES_MAX, &g->word_bytes, &g->word_bytes_room,
              (uint64_t)g->n_word_bytes + word->n, 1))
        return false;
    if (word->n) memcpy(g->word_bytes + g->n_word_bytes, word->bytes, word->n);
    g->words[g->n_words++] = (struct gram_word){g->n_word_bytes, (uint32_t)word->n, word->label, word->then};
    g->n_word_bytes += (uint32_t)word->n;
    return true;
}

static uint32_t add_words(struct builder *b, struct build_word *words, uint32_t n)
{
    struct grammar *g = &b->grammar;
    struct gram_words list = {.first = g->n_words};
    if (!room(b, "word lists", BUILD_NODES_MAX, &g->lists, &g->lists_room, (uint64_t)g->n_lists + 1, sizeof list))
        return 0;
    if (n > 1) qsort(words, n, sizeof *words, by_bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && by_bytes(&words[i - 1], &words[i]) == 0) continue;
        if (!add_word(b, &words[i])) return 0;
    }
    list.n = g->n_words - list.first;
    g->lists[g->n_lists] = list;
    return g->n_lists++;
}

uint32_t build_words(struct builder *b, struct build_word *words, uint32_t n)
{
    uint32_t list = add_words(b, words, n);
    return add_node(b, (struct gram_node){.kind = NODE_WORDS, .a = list});
}

/* ---- members ---- */

static bool add_members(struct builder *b, struct gram_members *list, const struct build_member *members, uint32_t n)
{
    struct grammar *g = &b->grammar;
    list->first = g->n_members;
    list->n_members = n;
    list->n_required = 0;
    if (!room(b, "members", BUILD_NODES_MAX * 4, &g->members, &g->members_room, (uint64_t)g->n_members + n + 1,
              sizeof *g->members))
        return false;
    struct gram_member *out = g->members + g->n_members;
    g->n_members += n + 1;
    out[n] = (struct gram_member){.next_required = n};
    for (uint32_t i = n; i-- > 0;) {
        out[i] = (struct gram_member){.value = members[i].value,
                                      .next_required = members[i].required ? i : out[i + 1].next_required};
        list->n_required += members[i].required;
    }
    const struct gram_words words = g->lists[list->words];
    ASSERT(words.n == n);
    for (uint32_t k = 0; k < words.n; k++) out[g->words[words.first + k].label].place = k;
    return true;
}

uint32_t build_members(struct builder *b, enum gram_kind kind, const struct gram_members *list,
                       const struct build_member *members, uint32_t n)
{
    struct grammar *g = &b->grammar;
    struct gram_members all = *list;
    struct build_word *words = arena_get_array(&b->scratch, n, sizeof *words, &b->err);
    if (b->err.kind != ERR_NONE) return 0;
    for (uint32_t i = 0; i < n; i++) words[i] = (struct build_word){members[i].key, members[i].n, i, GRAM_NONE};
    all.words = add_words(b, words, n);
    if (!room(b, "member lists", BUILD_NODES_MAX, &g->member_lists, &g->member_lists_room,
              (uint64_t)g->n_member_lists + 1, sizeof all) ||
        !add_members(b, &all, members, n))
        return 0;
    g->member_lists[g->n_member_lists++] = all;
    return add_node(b, (struct gram_node){.kind = (uint8_t)kind, .a = g->n_member_lists - 1});
}

bool build_finish(struct builder *b, uint32_t root, struct grammar *out, struct err *err)
{
    if (!build_ok(b, err)) return false;
    b->grammar.root = root;
    if (!grammar_finish(&b->grammar, err)) return false;
    *out = b->grammar;
    b->grammar = (struct grammar){.alloc = b->alloc};
    return true;
}
