#include "gram/dfa.h"

#include "gram/dfa_runs.h"
#include "gram/grow.h"
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

struct making {
    struct dfa *dfa;
    struct regular *regular;
    struct dfa_budget *budget;
    uint32_t *term_of;  /* [n_states] */
    uint32_t *state_of; /* [terms] 0: none yet */
    uint32_t terms_room, states_room, next_room;
};

enum { EDGES_MAX = 1 << 23, TERMS_MAX = 1 << 22, SMALL_EDGES = 1 << 16 };

/* The state of a term, made when it is new. */
static bool state_of(struct making *m, uint32_t term, uint32_t *state, struct err *err)
{
    const struct grow terms = {m->dfa->alloc, "terms", TERMS_MAX};
    const struct grow states = {m->dfa->alloc, "states", m->budget->states_max + 1};
    *state = DFA_DEAD;
    if (term == REGULAR_NOTHING) return true;
    if (!grow_room(&terms, &m->state_of, &m->terms_room, (uint64_t)term + 1, sizeof *m->state_of, err)) return false;
    *state = m->state_of[term];
    if (*state) return true;
    if (m->budget->states_left == 0)
        return err_set(err, ERR_USER, "unsupported_schema: the constraint needs more than %" PRIu32 " automaton states",
                       m->budget->states_max);
    uint32_t n = m->dfa->n_states;
    if (!grow_room(&states, &m->term_of, &m->states_room, (uint64_t)n + 1, sizeof *m->term_of, err)) return false;
    m->budget->states_left--;
    m->term_of[n] = term;
    m->state_of[term] = *state = n;
    m->dfa->n_states = n + 1;
    return true;
}

static bool make_states(struct making *m, uint32_t term, struct err *err)
{
    struct dfa *dfa = m->dfa;
    const struct grow edges = {dfa->alloc, "automaton edges", EDGES_MAX};
    uint8_t byte_of[256];
    uint32_t state;
    for (unsigned byte = 256; byte-- > 0;) byte_of[dfa->class_of[byte]] = (uint8_t)byte;
    dfa->n_states = 1;
    if (!state_of(m, term, &state, err)) return false;
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        uint64_t first = (uint64_t)s * dfa->n_classes;
        if (m->budget->edges_left < dfa->n_classes)
            return err_set(err, ERR_USER, "unsupported_schema: the constraint needs too large an automaton");
        m->budget->edges_left -= dfa->n_classes;
        if (!grow_room(&edges, &dfa->next, &m->next_room, first + dfa->n_classes, sizeof *dfa->next, err)) return false;
        for (uint32_t c = 0; c < dfa->n_classes; c++) {
            uint32_t to = s == DFA_DEAD ? REGULAR_NOTHING : regular_derive(m->regular, m->term_of[s], byte_of[c]);
            if (!regular_ok(m->regular, err) || !state_of(m, to, &state, err)) return false;
            dfa->next[first + c] = state;
        }
    }
    return true;
}

/* Marks what can reach an accepting state, backwards, and cuts off the rest. */
static bool cut_dead(struct making *m, struct err *err)
{
    struct dfa *dfa = m->dfa;
    uint32_t n = dfa->n_states, n_todo = 0;
    uint64_t n_edges = (uint64_t)n * dfa->n_classes;
    uint32_t *first = alloc_get_array(dfa->alloc, (uint64_t)n + 2, sizeof *first, err);
    uint32_t *from = alloc_get_array(dfa->alloc, n_edges, sizeof *from, err);
    uint32_t *todo = alloc_get_array(dfa->alloc, n, sizeof *todo, err);
    dfa->flags = alloc_get(dfa->alloc, n, err);
    bool ok = first && from && todo && dfa->flags;
    if (ok) {
        for (uint64_t e = 0; e < n_edges; e++) first[dfa->next[e] + 2]++;
        for (uint32_t s = 0; s < n; s++) first[s + 2] += first[s + 1];
        for (uint64_t e = 0; e < n_edges; e++) from[first[dfa->next[e] + 1]++] = (uint32_t)(e / dfa->n_classes);
        uint8_t live = 4;
        for (uint32_t s = 1; s < n; s++)
            if (regular_has_empty(m->regular, m->term_of[s])) {
                dfa->flags[s] = DFA_ACCEPTS | live;
                todo[n_todo++] = s;
            }
        while (n_todo > 0) {
            uint32_t to = todo[--n_todo];
            for (uint32_t i = first[to]; i < first[to + 1]; i++) {
                if (dfa->flags[from[i]]) continue;
                dfa->flags[from[i]] = live;
                todo[n_todo++] = from[i];
            }
        }
        for (uint64_t e = 0; e < n_edges; e++) {
            if (!dfa->flags[dfa->next[e]]) dfa->next[e] = DFA_DEAD;
            if (dfa->next[e] != DFA_DEAD) dfa->flags[e / dfa->n_classes] |= DFA_GOES_ON;
        }
        for (uint32_t s = 0; s < n; s++) dfa->flags[s] &= DFA_ACCEPTS | DFA_GOES_ON;
        if (n > 1 && !dfa->flags[DFA_START]) dfa->n_states = 1;
    }
    alloc_put(dfa->alloc, first);
    alloc_put(dfa->alloc, from);
    alloc_put(dfa->alloc, todo);
    return ok;
}

static uint64_t digest_of(const struct dfa *dfa)
{
    uint64_t h = XXH3_64bits_withSeed(dfa->class_of, sizeof dfa->class_of, dfa->n_states);
    h = XXH3_64bits_withSeed(dfa->flags, dfa->n_states, h);
    return XXH3_64bits_withSeed(dfa->next, (size_t)dfa->n_states * dfa->n_classes * sizeof *dfa->next, h);
}

bool dfa_is_same(const struct dfa *a, const struct dfa *b)
{
    if (a == b) return true;
    size_t n_edges = (size_t)a->n_states * a->n_classes;
    return a->digest == b->digest && n_edges <= SMALL_EDGES && a->n_states == b->n_states &&
           a->n_classes == b->n_classes && memcmp(a->class_of, b->class_of, sizeof a->class_of) == 0 &&
           memcmp(a->flags, b->flags, a->n_states) == 0 && memcmp(a->next, b->next, n_edges * sizeof *a->next) == 0;
}

bool dfa_init(struct dfa *dfa, struct regular *regular, uint32_t term, struct dfa_budget *budget, struct err *err)
{
    *dfa = (struct dfa){.alloc = regular->alloc};
    struct making m = {.dfa = dfa, .regular = regular, .budget = budget};
    dfa->n_classes = regular_classes(regular, term, dfa->class_of);
    bool ok = regular_ok(regular, err) && make_states(&m, term, err) && cut_dead(&m, err) && dfa_runs_make(dfa, err);
    if (ok) dfa->digest = digest_of(dfa);
    alloc_put(dfa->alloc, m.term_of);
    alloc_put(dfa->alloc, m.state_of);
    if (!ok) dfa_fini(dfa);
    return ok;
}

void dfa_fini(struct dfa *dfa)
{
    if (!dfa->alloc) return;
    alloc_put(dfa->alloc, dfa->next);
    alloc_put(dfa->alloc, dfa->flags);
    alloc_put(dfa->alloc, dfa->runs);
    *dfa = (struct dfa){0};
}
