#ifndef GRAM_MASK_CACHE_H
#define GRAM_MASK_CACHE_H
/* Which tokens fit into one state of an automaton: found once, then remembered.
 *
 * Inside a string nearly every token fits, and looking at all of them takes a while; the answer depends on the
 * automaton and its state alone, not on what surrounds the string. So it is good for every automaton that is the same,
 * whatever constraint it belongs to: what one schema has found out about strings and numbers, the next one knows. A
 * cache is owned by one thread at a time, with all matchers that use it, so it needs no lock; constraints, which
 * threads share, stay untouched. Least recently used masks go first. */
#include "gram/constraint.h"
#include "gram/dfa.h"
#include "gram/token_trie.h"

struct mask_cache;

struct mask_key {
    struct constraint *constraint; /* whose automaton it is */
    const struct dfa *dfa;
    uint32_t state, parent; /* trie node: only tokens below it */
    uint16_t exit_kinds;    /* of the bytes (text_kinds.h) by which what follows the automaton goes on */
    bool has_units;
};

enum { MASK_NO_UNITS = UINT16_MAX };

struct mask_entry {
    const uint64_t *mask; /* [token_trie_words] tokens that end inside the automaton; where units are counted: at its
                             end, behind the last unit */
    /* Trie nodes below those at which the automaton is done, reached by bytes of the key's kinds and in their order.
     * What follows the automaton goes on there. */
    const uint32_t *exits; /* [n_exits] */
    uint32_t n_exits;
    const uint16_t *units;      /* [id_end] how many units each token begins, or MASK_NO_UNITS; NULL: not counted */
    const uint16_t *exit_units; /* for each exit */
    const uint64_t *counted;    /* the tokens that have units */
    uint16_t units_most;        /* that one of them has */
};

struct mask_cache *mask_cache_new(struct alloc *alloc, const struct token_trie *trie, uint64_t bytes_max,
                                  struct err *err) MUST_CHECK;
void mask_cache_free(struct mask_cache *cache); /* NULL is fine; no matcher may be using it */
const struct token_trie *mask_cache_trie(const struct mask_cache *cache);

/* False when it is not there. The entry is good until the next put. */
bool mask_cache_get(struct mask_cache *cache, const struct mask_key *key, struct mask_entry *entry);

/* Copies the entry and holds the constraint. One that is larger than the whole cache is not kept. */
bool mask_cache_put(struct mask_cache *cache, const struct mask_key *key, const struct mask_entry *entry,
                    struct err *err) MUST_CHECK;

uint64_t mask_cache_bytes(const struct mask_cache *cache);

#endif
