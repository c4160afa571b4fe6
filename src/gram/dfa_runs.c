#include "gram/dfa_runs.h"

#include "base/assert.h"
#include "gram/text_kinds.h"

static_assert(TEXT_KINDS <= 16, "a bit for each in dfa_run.kinds");

enum { NOT_SEEN = UINT32_MAX };

/* Where all bytes of low..high lead to; DFA_DEAD when that is not one state. */
static uint32_t only_target(const struct dfa *dfa, uint32_t state, unsigned low, unsigned high)
{
    uint32_t to = dfa_step(dfa, state, low);
    for (unsigned byte = low + 1; byte <= high && to != DFA_DEAD; byte++)
        if (dfa_step(dfa, state, byte) != to) to = DFA_DEAD;
    return to;
}

/* Where all whole characters beyond ASCII lead to, with no match that ends inside one. */
static uint32_t character_target(const struct dfa *dfa, uint32_t state)
{
    uint32_t target = NOT_SEEN;
    for (size_t i = 0; i < TEXT_SEQUENCES; i++) {
        const struct text_sequence *s = &text_sequences[i];
        uint32_t to = only_target(dfa, state, s->lead_low, s->lead_high);
        bool ends_inside = dfa->flags[to] & DFA_ACCEPTS;
        if (to != DFA_DEAD) to = only_target(dfa, to, s->second_low, s->second_high);
        for (int more = 0; more < s->more && to != DFA_DEAD; more++) {
            ends_inside = ends_inside || (dfa->flags[to] & DFA_ACCEPTS);
            to = only_target(dfa, to, 0x80, 0xBF);
        }
        if (to == DFA_DEAD || ends_inside || (target != NOT_SEEN && to != target)) return DFA_DEAD;
        target = to;
    }
    return target;
}

/* Where each kind leads to; DFA_DEAD when that is not one state. */
static void find_targets(const struct dfa *dfa, uint32_t state, const uint16_t *kinds_of_class,
                         uint32_t target[TEXT_KINDS])
{
    for (int kind = 0; kind < TEXT_KINDS; kind++) target[kind] = NOT_SEEN;
    for (uint32_t c = 0; c < dfa->n_classes; c++) {
        uint32_t to = dfa->next[(size_t)state * dfa->n_classes + c];
        for (uint32_t kinds = kinds_of_class[c]; kinds; kinds &= kinds - 1) {
            int kind = __builtin_ctz(kinds);
            if (target[kind] == NOT_SEEN)
                target[kind] = to;
            else if (target[kind] != to)
                target[kind] = DFA_DEAD;
        }
    }
    target[KIND_CHARACTER] = target[KIND_G_Z] == DFA_DEAD ? DFA_DEAD : character_target(dfa, state);
    target[KIND_BROKEN] = DFA_DEAD;
}

/* The state that most kinds lead to, and which kinds these are. */
static uint32_t best_target(const uint32_t target[TEXT_KINDS], uint16_t *kinds)
{
    uint32_t best = DFA_DEAD;
    *kinds = 0;
    for (int kind = 0; kind < TEXT_KINDS; kind++) {
        uint16_t same = 0;
        if (target[kind] == DFA_DEAD) continue;
        for (int other = 0; other < TEXT_KINDS; other++) same |= (uint16_t)((target[other] == target[kind]) << other);
        if (__builtin_popcount(same) <= __builtin_popcount(*kinds)) continue;
        *kinds = same;
        best = target[kind];
    }
    return best;
}

static uint8_t one_more(uint8_t bytes)
{
    return bytes >= DFA_RUN_ENDLESS - 1 ? bytes : (uint8_t)(bytes + 1);
}

bool dfa_runs_make(struct dfa *dfa, struct err *err)
{
    uint16_t kinds_of_class[256] = {0};
    uint32_t target[TEXT_KINDS];
    for (unsigned byte = 0; byte < 0x80; byte++)
        kinds_of_class[dfa->class_of[byte]] |= (uint16_t)(1u << text_kind_of((uint8_t)byte));
    dfa->runs = alloc_get_array(dfa->alloc, dfa->n_states, sizeof *dfa->runs, err);
    if (!dfa->runs) return false;
    /* From the last state down, because automata are numbered in the order in which their states were found, and so
     * most edges lead to a larger number. A run does not follow the others. */
    for (uint32_t s = dfa->n_states; s-- > 1;) {
        struct dfa_run *run = &dfa->runs[s];
        find_targets(dfa, s, kinds_of_class, target);
        uint32_t to = best_target(target, &run->kinds);
        bool accepts = dfa->flags[s] & DFA_ACCEPTS;
        if (to == DFA_DEAD) continue;
        bool goes_on = to > s && (run->kinds & ~dfa->runs[to].kinds) == 0;
        run->bytes = to == s ? DFA_RUN_ENDLESS : goes_on ? one_more(dfa->runs[to].bytes) : 1;
        run->bytes_inside = to == s ? DFA_RUN_ENDLESS : goes_on ? one_more(dfa->runs[to].bytes_inside) : 1;
        if (accepts) run->bytes_inside = 0;
    }
    return true;
}
