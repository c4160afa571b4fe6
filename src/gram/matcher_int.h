#ifndef GRAM_MATCHER_INT_H
#define GRAM_MATCHER_INT_H
/* How a position is kept, for the files of the matcher.
 *
 * A place is a leaf of the grammar with how far it has been read, and the stack of what follows behind it. Stacks share
 * their lower parts: a frame points to the one below, which always has a smaller number. Frames and places are two
 * arrays that a walk over the vocabulary fills like stacks, so that leaving a branch is setting back two numbers.
 *
 * Errors are sticky in matcher.err, as in regular.h. */
#include "gram/grammar.h"
#include "gram/matcher.h"

enum { MATCHER_FRAMES_MAX = 1 << 14, MATCHER_WALK_MAX = 1 << 22 };

enum frame_step {
    STEP_BOTTOM, /* nothing below: the answer may end */
    STEP_SEQ,    /* data: next part */
    STEP_REPEAT, /* data: turns begun */
    STEP_NEST,
    STEP_OPENED, /* object: behind its opening mark */
    STEP_KEYS,   /* object: a key follows; data: first member that may */
    STEP_EXTRA,  /* object: behind a key that is not declared */
    STEP_VALUE,  /* object: behind a value; data: first member that may follow */
    STEP_PAIRS,  /* arguments: data: member just written, or GRAM_NONE below the first */
    STEP_PAIR,   /* arguments: a key follows */
};

struct frame {
    uint32_t node, data, below;
    uint16_t step, nest; /* nest: levels of JSON around what this frame stands in */
};

struct place {
    uint32_t node;    /* a leaf, or the owner of a member list whose key is being read */
    uint32_t a, b, c; /* automaton: state, units; words: first, end, bytes read */
    uint32_t stack;
};

/* places[first..first + n) of a matcher. */
struct level {
    uint32_t first, n;
    uint32_t n_frames; /* when the level was made */
    uint32_t end;      /* trie node that is no longer below */
};

/* The same for a walk inside one automaton. */
struct leaf_level {
    uint32_t state, units, chars, end;
    bool may_leave; /* the automaton is done here */
};

struct matcher {
    struct alloc *alloc;
    const struct grammar *g;
    struct constraint *constraint;
    struct mask_cache *cache;
    const struct token_trie *trie;
    struct control_ids ids;
    struct frame *frames; /* [n_frames]; 0 is the bottom */
    uint32_t n_frames, frames_room;
    struct place *places; /* [n_places]; the position is the first n_now */
    uint32_t n_places, places_room;
    uint32_t n_now;
    bool accepts, thinks;
    uint32_t set_first; /* where the set that is being made begins */
    bool set_accepts;
    uint32_t *renumber; /* scratch for frames */
    uint32_t renumber_room;
    struct level *levels;           /* [depth_max + 1] */
    struct leaf_level *leaf_levels; /* [depth_max + 2] */
    uint64_t *leaf_mask;            /* [words] */
    uint64_t *forced_mask;          /* [words] */
    uint16_t *leaf_units;           /* [id_end] */
    uint64_t *counted;              /* [words] ids with units */
    uint16_t units_most;
    uint32_t *exits, *sorted_exits; /* a stack; that of the outermost walk in the order of bytes */
    uint16_t *exit_units, *sorted_units;
    uint32_t n_exits, exits_room, sorted_room, exit_units_room, sorted_units_room;
    struct err err;
};

/* Begins a set of places behind all that are there. */
void set_begin(struct matcher *m);

/* Adds the places where `node` begins, with `stack` behind it. What it matches without input is the caller's. */
void set_enter(struct matcher *m, uint32_t node, uint32_t stack);

/* Adds the places where what the frame says begins, and where what is below begins if that can be nothing. */
void set_resume(struct matcher *m, uint32_t stack);

/* Adds where a place goes by a byte. */
void set_step(struct matcher *m, const struct place *place, uint8_t byte);

/* One byte in an automaton, with units counted in *units; DFA_DEAD when it does not fit. */
static inline uint32_t leaf_step(const struct dfa *dfa, const struct gram_node *node, uint32_t state, uint32_t *units,
                                 uint8_t byte)
{
    uint32_t next = dfa_step(dfa, state, byte);
    if (node->kind == NODE_DFA || next == DFA_DEAD) return next;
    if (state == DFA_START) {
        bool ends = next != DFA_START && (dfa->flags[next] & DFA_ACCEPTS);
        if (ends ? *units < node->min : *units >= node->max) return DFA_DEAD;
    }
    /* Without an upper bound only the lower one matters, and so all numbers above it are one. */
    if (next == DFA_START && (node->max != REGULAR_MANY || *units < node->min)) ++*units;
    return next;
}

static inline bool leaf_accepts(const struct dfa *dfa, const struct gram_node *node, uint32_t state, uint32_t units)
{
    return (dfa->flags[state] & DFA_ACCEPTS) && (node->kind == NODE_DFA || state != DFA_START || units >= node->min);
}

static inline bool leaf_goes_on(const struct dfa *dfa, const struct gram_node *node, uint32_t state, uint32_t units)
{
    if (!(dfa->flags[state] & DFA_GOES_ON)) return false;
    if (node->kind == NODE_DFA || state != DFA_START) return true;
    return units < node->max || !(dfa->flags[DFA_START] & DFA_ACCEPTS); /* only what ends the units is left */
}

/* "grammar_limit: ..." */
void matcher_limit(struct matcher *m, const char *what);
bool matcher_room(struct matcher *m, void *block, uint32_t *room, uint64_t need, uint32_t element_bytes);

#endif
