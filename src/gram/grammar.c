#include "gram/grammar.h"

#include "base/assert.h"
#include "gram/grow.h"
#include <stdlib.h>
#include <string.h>

enum { LEFT_DEPTH_MAX = 1000 }; /* nodes that are entered inside of each other before any input is taken */

void grammar_fini(struct grammar *g)
{
    if (!g->alloc) return;
    for (uint32_t i = 0; i < g->n_dfas; i++) dfa_fini(&g->dfas[i]);
    alloc_put(g->alloc, g->nodes);
    alloc_put(g->alloc, g->parts);
    alloc_put(g->alloc, g->words);
    alloc_put(g->alloc, g->word_bytes);
    alloc_put(g->alloc, g->lists);
    alloc_put(g->alloc, g->members);
    alloc_put(g->alloc, g->member_lists);
    alloc_put(g->alloc, g->dfas);
    *g = (struct grammar){0};
}

static bool endless(struct err *err)
{
    return err_set(err, ERR_USER,
                   "unsupported_schema: a reference leads back to itself with nothing to write in between");
}

/* ---- links ---- */

static bool follow(const struct grammar *g, uint32_t *id, struct err *err)
{
    uint32_t steps = 0;
    while (*id != GRAM_NONE && g->nodes[*id].kind == NODE_LINK) {
        *id = g->nodes[*id].a;
        ASSERT(*id != GRAM_NONE);
        if (++steps > g->n_nodes) return endless(err);
    }
    return true;
}

/* From the last link to the first, so that the chains behind links are short when they are followed. */
static bool shorten_links(struct grammar *g, struct err *err)
{
    for (uint32_t i = g->n_nodes; i-- > 0;)
        if (g->nodes[i].kind == NODE_LINK && !follow(g, &g->nodes[i].a, err)) return false;
    return true;
}

static bool resolve_links(struct grammar *g, struct err *err)
{
    bool ok = shorten_links(g, err) && follow(g, &g->root, err);
    for (uint32_t i = 0; ok && i < g->n_parts; i++) ok = follow(g, &g->parts[i], err);
    for (uint32_t i = 0; ok && i < g->n_nodes; i++)
        if (g->nodes[i].kind == NODE_REPEAT || g->nodes[i].kind == NODE_NEST) ok = follow(g, &g->nodes[i].a, err);
    for (uint32_t i = 0; ok && i < g->n_words; i++) ok = follow(g, &g->words[i].then, err);
    for (uint32_t i = 0; ok && i < g->n_members; i++) ok = follow(g, &g->members[i].value, err);
    for (uint32_t i = 0; ok && i < g->n_member_lists; i++)
        ok = follow(g, &g->member_lists[i].extra_key, err) && follow(g, &g->member_lists[i].extra_value, err);
    return ok;
}

/* ---- unions of word lists ---- */

struct word_order {
    const char *bytes;
    struct gram_word word;
};

static int by_bytes(const void *left, const void *right)
{
    const struct word_order *a = left, *b = right;
    uint32_t n = a->word.bytes < b->word.bytes ? a->word.bytes : b->word.bytes;
    int order = n ? memcmp(a->bytes, b->bytes, n) : 0;
    return order ? order : (a->word.bytes > b->word.bytes) - (a->word.bytes < b->word.bytes);
}

/* The words of a list when nothing must follow any of them; else 0. */
static uint32_t plain_words(const struct grammar *g, uint32_t node)
{
    if (g->nodes[node].kind != NODE_WORDS) return 0;
    const struct gram_words *list = &g->lists[g->nodes[node].a];
    for (uint32_t i = 0; i < list->n; i++)
        if (g->words[list->first + i].then != GRAM_NONE) return 0;
    return list->n;
}

static bool add_list(struct grammar *g, struct word_order *order, uint32_t n, uint32_t *list, struct err *err)
{
    const struct grow grow = {g->alloc, "words", 1 << 22};
    struct gram_words joined = {.first = g->n_words};
    if (!grow_room(&grow, &g->words, &g->words_room, (uint64_t)g->n_words + n, sizeof *g->words, err) ||
        !grow_room(&grow, &g->lists, &g->lists_room, (uint64_t)g->n_lists + 1, sizeof *g->lists, err))
        return false;
    qsort(order, n, sizeof *order, by_bytes);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || by_bytes(&order[i - 1], &order[i]) != 0) g->words[g->n_words++] = order[i].word;
    joined.n = g->n_words - joined.first;
    *list = g->n_lists;
    g->lists[g->n_lists++] = joined;
    return true;
}

/* A union of many constants is one list of words and not as many things to keep track of. */
static bool join_words(struct grammar *g, struct gram_node *node, struct err *err)
{
    uint32_t n = 0, n_lists = 0, kept = 0, list, first = GRAM_NONE;
    for (uint32_t i = 0; i < node->b; i++) {
        uint32_t words = plain_words(g, g->parts[node->a + i]);
        n += words;
        n_lists += words > 0;
    }
    if (n_lists < 2) return true;
    struct word_order *order = alloc_get_array(g->alloc, n, sizeof *order, err);
    if (!order) return false;
    n = 0;
    for (uint32_t i = 0; i < node->b; i++) {
        uint32_t part = g->parts[node->a + i];
        if (!plain_words(g, part)) {
            g->parts[node->a + kept++] = part;
            continue;
        }
        const struct gram_words words = g->lists[g->nodes[part].a];
        for (uint32_t k = 0; k < words.n; k++) {
            const struct gram_word word = g->words[words.first + k];
            order[n++] = (struct word_order){g->word_bytes + word.offset, word};
        }
        if (first == GRAM_NONE) first = kept++; /* the place for all of them */
    }
    bool ok = add_list(g, order, n, &list, err);
    alloc_put(g->alloc, order);
    if (!ok) return false;
    const struct grow grow = {g->alloc, "grammar nodes", 1 << 20};
    uint32_t at = (uint32_t)(node - g->nodes);
    if (!grow_room(&grow, &g->nodes, &g->nodes_room, (uint64_t)g->n_nodes + 1, sizeof *g->nodes, err)) return false;
    g->nodes[g->n_nodes] = (struct gram_node){.kind = NODE_WORDS, .a = list};
    g->parts[g->nodes[at].a + first] = g->n_nodes++;
    g->nodes[at].b = kept;
    return true;
}

/* ---- edges ---- */

static uint32_t member_at(const struct grammar *g, const struct gram_node *node, uint32_t i)
{
    const struct gram_members *list = &g->member_lists[node->a];
    if (i < list->n_members) return g->members[list->first + i].value;
    const uint32_t rest[] = {list->open,  list->blanks,    list->separator,
                             list->close, list->extra_key, list->extra_value};
    for (i -= list->n_members; i < 6; i++)
        if (rest[i] != GRAM_NONE) return rest[i];
    return GRAM_NONE;
}

/* Any node that this one refers to, by index; some may come twice. GRAM_NONE behind the last. */
static uint32_t child_at(const struct grammar *g, uint32_t id, uint32_t i)
{
    const struct gram_node *node = &g->nodes[id];
    switch ((enum gram_kind)node->kind) {
    case NODE_DFA:
    case NODE_COUNT:
    case NODE_TOKEN:
    case NODE_LINK: return GRAM_NONE;
    case NODE_WORDS:
        for (const struct gram_words *list = &g->lists[node->a]; i < list->n; i++)
            if (g->words[list->first + i].then != GRAM_NONE) return g->words[list->first + i].then;
        return GRAM_NONE;
    case NODE_SEQ:
    case NODE_UNION: return i < node->b ? g->parts[node->a + i] : GRAM_NONE;
    case NODE_REPEAT:
    case NODE_NEST: return i == 0 ? node->a : GRAM_NONE;
    case NODE_OBJECT:
    case NODE_ARGS: return member_at(g, node, i);
    }
    return GRAM_NONE;
}

/* Who refers to a node: from[first[n]..first[n + 1]). */
struct back_edges {
    uint32_t *first, *from;
};

static bool find_back_edges(struct back_edges *back, const struct grammar *g, struct err *err)
{
    uint64_t n_edges = 0;
    back->first = alloc_get_array(g->alloc, (uint64_t)g->n_nodes + 2, sizeof *back->first, err);
    if (!back->first) return false;
    for (uint32_t id = 0; id < g->n_nodes; id++)
        for (uint32_t i = 0, to; (to = child_at(g, id, i)) != GRAM_NONE; i++, n_edges++) back->first[to + 2]++;
    back->from = alloc_get_array(g->alloc, n_edges, sizeof *back->from, err);
    if (!back->from) return false;
    for (uint32_t id = 0; id < g->n_nodes; id++) back->first[id + 2] += back->first[id + 1];
    for (uint32_t id = 0; id < g->n_nodes; id++)
        for (uint32_t i = 0, to; (to = child_at(g, id, i)) != GRAM_NONE; i++) back->from[back->first[to + 1]++] = id;
    return true;
}

/* ---- has_empty and height ---- */

struct facts {
    bool has_empty;
    uint32_t height;
};

static struct facts words_facts(const struct grammar *g, const struct gram_words *list)
{
    struct facts facts = {false, GRAM_HEIGHT_NEVER};
    for (uint32_t i = 0; i < list->n; i++) {
        const struct gram_word *word = &g->words[list->first + i];
        const struct gram_node *then = word->then == GRAM_NONE ? NULL : &g->nodes[word->then];
        uint32_t height = then ? then->height : 0;
        if (height < facts.height) facts.height = height;
        if (word->bytes == 0 && (!then || then->has_empty)) facts.has_empty = true;
    }
    return facts;
}

static struct facts list_facts(const struct grammar *g, const struct gram_node *node)
{
    bool is_seq = node->kind == NODE_SEQ;
    struct facts facts = {is_seq, is_seq ? 0 : GRAM_HEIGHT_NEVER};
    for (uint32_t i = 0; i < node->b; i++) {
        const struct gram_node *part = &g->nodes[g->parts[node->a + i]];
        if (is_seq ? part->height > facts.height : part->height < facts.height) facts.height = part->height;
        facts.has_empty = is_seq ? facts.has_empty && part->has_empty : facts.has_empty || part->has_empty;
    }
    return facts;
}

static struct facts member_facts(const struct grammar *g, const struct gram_node *node)
{
    const struct gram_members *list = &g->member_lists[node->a];
    struct facts facts = {node->kind == NODE_ARGS && list->n_required == 0, 0};
    for (uint32_t i = 0; i < list->n_members; i++) {
        const struct gram_member *member = &g->members[list->first + i];
        uint32_t height = g->nodes[member->value].height;
        if (member->next_required == i && height > facts.height) facts.height = height;
    }
    if (node->kind == NODE_OBJECT) facts.height++;
    return facts;
}

static struct facts dfa_facts(const struct grammar *g, const struct gram_node *node)
{
    const struct dfa *dfa = &g->dfas[node->a];
    if (dfa->n_states <= 1) return (struct facts){false, GRAM_HEIGHT_NEVER};
    bool has_empty = dfa->flags[DFA_START] & DFA_ACCEPTS;
    return (struct facts){has_empty && (node->kind == NODE_DFA || node->min == 0), 0};
}

static struct facts facts_of(const struct grammar *g, const struct gram_node *node)
{
    switch ((enum gram_kind)node->kind) {
    case NODE_DFA:
    case NODE_COUNT: return dfa_facts(g, node);
    case NODE_WORDS: return words_facts(g, &g->lists[node->a]);
    case NODE_SEQ:
    case NODE_UNION: return list_facts(g, node);
    case NODE_REPEAT: {
        const struct gram_node *a = &g->nodes[node->a];
        bool has_empty = node->min == 0 || a->has_empty;
        return (struct facts){has_empty, has_empty ? 0 : a->height};
    }
    case NODE_NEST: return (struct facts){false, g->nodes[node->a].height + 1u};
    case NODE_OBJECT:
    case NODE_ARGS: return member_facts(g, node);
    case NODE_TOKEN:
    case NODE_LINK: break;
    }
    return (struct facts){false, 0};
}

/* Both facts only ever move one way, a height at most 64 times, so this ends. */
static void spread_facts(struct grammar *g, const struct back_edges *back, uint32_t *todo, uint8_t *waits)
{
    uint32_t n = g->n_nodes, first = 0, n_todo = n; /* a ring: each node waits once at most */
    for (uint32_t id = 0; id < n; id++) {
        g->nodes[id].height = GRAM_HEIGHT_NEVER;
        g->nodes[id].has_empty = false;
        todo[id] = n - 1 - id;
        waits[id] = 1;
    }
    while (n_todo > 0) {
        uint32_t id = todo[first];
        first = (first + 1) % n;
        n_todo--;
        waits[id] = 0;
        struct facts facts = facts_of(g, &g->nodes[id]);
        if (facts.height > GRAM_NEST_MAX) facts.height = GRAM_HEIGHT_NEVER;
        if (facts.height == g->nodes[id].height && facts.has_empty == g->nodes[id].has_empty) continue;
        g->nodes[id].height = (uint16_t)facts.height;
        g->nodes[id].has_empty = facts.has_empty;
        for (uint32_t i = back->first[id]; i < back->first[id + 1]; i++) {
            uint32_t from = back->from[i];
            if (waits[from]) continue;
            waits[from] = 1;
            todo[(first + n_todo++) % n] = from;
        }
    }
}

static bool find_facts(struct grammar *g, struct err *err)
{
    struct back_edges back = {0};
    uint32_t *todo = alloc_get_array(g->alloc, g->n_nodes, sizeof *todo, err);
    uint8_t *waits = todo ? alloc_get(g->alloc, g->n_nodes, err) : NULL;
    bool ok = waits && find_back_edges(&back, g, err);
    if (ok) spread_facts(g, &back, todo, waits);
    alloc_put(g->alloc, todo);
    alloc_put(g->alloc, waits);
    alloc_put(g->alloc, back.first);
    alloc_put(g->alloc, back.from);
    return ok;
}

/* ---- what is entered before any input is taken ---- */

/* The i-th node that this one can begin with; GRAM_NONE behind the last. */
static uint32_t left_at(const struct grammar *g, uint32_t id, uint32_t i)
{
    const struct gram_node *node = &g->nodes[id];
    if (node->kind == NODE_UNION || node->kind == NODE_REPEAT || node->kind == NODE_NEST) return child_at(g, id, i);
    if (node->kind != NODE_SEQ || i >= node->b) return GRAM_NONE;
    return i == 0 || g->nodes[g->parts[node->a + i - 1]].has_empty ? g->parts[node->a + i] : GRAM_NONE;
}

struct visit {
    uint32_t id, next;
};

/* Depth first with a stack of its own. depth: 0 new, UINT32_MAX on the stack, else how deep it goes from there. */
static bool check_left_from(const struct grammar *g, uint32_t root, struct visit *stack, uint32_t *depth,
                            struct err *err)
{
    uint32_t n = 0;
    if (depth[root]) return true;
    stack[n++] = (struct visit){root, 0};
    depth[root] = UINT32_MAX;
    while (n > 0) {
        struct visit *top = &stack[n - 1];
        uint32_t child = left_at(g, top->id, top->next);
        if (child != GRAM_NONE) {
            top->next++;
            if (depth[child] == UINT32_MAX) return endless(err);
            if (depth[child]) continue;
            depth[child] = UINT32_MAX;
            stack[n++] = (struct visit){child, 0};
            continue;
        }
        uint32_t deepest = 0;
        for (uint32_t i = 0; (child = left_at(g, top->id, i)) != GRAM_NONE; i++)
            if (depth[child] > deepest) deepest = depth[child];
        depth[top->id] = deepest + 1;
        if (deepest >= LEFT_DEPTH_MAX)
            return err_set(err, ERR_USER, "unsupported_schema: more than %d references lead directly to each other",
                           LEFT_DEPTH_MAX);
        n--;
    }
    return true;
}

static bool check_left(const struct grammar *g, struct err *err)
{
    struct visit *stack = alloc_get_array(g->alloc, g->n_nodes, sizeof *stack, err);
    uint32_t *depth = stack ? alloc_get_array(g->alloc, g->n_nodes, sizeof *depth, err) : NULL;
    bool ok = depth != NULL;
    for (uint32_t id = 0; ok && id < g->n_nodes; id++) ok = check_left_from(g, id, stack, depth, err);
    alloc_put(g->alloc, stack);
    alloc_put(g->alloc, depth);
    return ok;
}

bool grammar_finish(struct grammar *g, struct err *err)
{
    if (!resolve_links(g, err)) return false;
    for (uint32_t i = 0, n = g->n_nodes; i < n; i++)
        if (g->nodes[i].kind == NODE_UNION && !join_words(g, &g->nodes[i], err)) return false;
    if (!find_facts(g, err) || !check_left(g, err)) return false;
    bool ends = g->nodes[g->root].height != GRAM_HEIGHT_NEVER;
    for (uint32_t i = 0; i < g->n_words; i++)
        if (g->words[i].then != GRAM_NONE && g->nodes[g->words[i].then].height == GRAM_HEIGHT_NEVER) ends = false;
    if (ends) return true;
    return err_set(err, ERR_USER, "unsupported_schema: nothing that ends can satisfy the constraint");
}
