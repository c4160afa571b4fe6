#ifndef GRAM_GRAMMAR_H
#define GRAM_GRAMMAR_H
/* A compiled grammar: nodes that say which bytes and control tokens may follow each other.
 *
 * The leaves take input: an automaton (regular parts), a list of words, a control token. The others combine: sequences,
 * unions, repetitions, and the two kinds of member lists that a plain grammar would have to spell out for every subset
 * of what is optional. Nodes refer to each other by number and may refer back: that is the recursion.
 *
 * Never changes once made (builder.h makes it), so any number of threads may read it.
 *
 * Always true: every node matches some input of finite nesting (height), unless it is NODE_NEVER in effect (height is
 * GRAM_HEIGHT_NEVER), and then it is only reachable where something else can be chosen; no node reaches itself without
 * taking input in between. */
#include "gram/dfa.h"

enum gram_kind {
    NODE_DFA,    /* a: automaton */
    NODE_COUNT,  /* a: automaton that is back at its start after each unit; min to max units */
    NODE_WORDS,  /* a: word list */
    NODE_TOKEN,  /* a: id of a control token */
    NODE_SEQ,    /* a: first in parts, b: how many */
    NODE_UNION,  /* the same; none: never matches */
    NODE_REPEAT, /* a: node, min, max (REGULAR_MANY) */
    NODE_NEST,   /* a: node, one level of JSON nesting deeper */
    NODE_OBJECT, /* a: member list; JSON object, declared members in order */
    NODE_ARGS,   /* a: member list; pairs of a tool call, in any order, each at most once */
    NODE_LINK,   /* a: node; only while a grammar is made */
};

enum { GRAM_NONE = UINT32_MAX, GRAM_NEST_MAX = 64, GRAM_HEIGHT_NEVER = UINT16_MAX };

struct gram_node {
    uint32_t a, b, min, max;
    uint16_t height; /* least nesting of what it matches */
    uint8_t kind;
    bool has_empty; /* may match without taking anything */
};

struct gram_word {
    uint32_t offset, bytes; /* in word_bytes */
    uint32_t label;         /* of a key: which member */
    uint32_t then;          /* node that must follow this word, or GRAM_NONE */
};

struct gram_words {
    uint32_t first, n; /* in words, sorted by bytes, no two equal */
};

struct gram_member {
    uint32_t value;         /* node: everything behind the key */
    uint32_t place;         /* of its key among the sorted words */
    uint32_t next_required; /* the first required member from this one on; n_members when none */
};

struct gram_members {
    uint32_t words;            /* keys as they are written; label is the member */
    uint32_t first, n_members; /* in members; one more behind the last ends the next_required chain */
    uint32_t n_required;
    uint32_t open, blanks, separator, close; /* nodes; of arguments: open is the token in front of a key */
    uint32_t extra_key, extra_value;         /* members that are not declared, or GRAM_NONE */
};

struct grammar {
    struct alloc *alloc;
    struct gram_node *nodes;
    uint32_t n_nodes, nodes_room;
    uint32_t *parts;
    uint32_t n_parts, parts_room;
    struct gram_word *words;
    uint32_t n_words, words_room;
    char *word_bytes;
    uint32_t n_word_bytes, word_bytes_room;
    struct gram_words *lists;
    uint32_t n_lists, lists_room;
    struct gram_member *members;
    uint32_t n_members, members_room;
    struct gram_members *member_lists;
    uint32_t n_member_lists, member_lists_room;
    struct dfa *dfas;
    uint32_t n_dfas, dfas_room;
    uint32_t root;
};

void grammar_fini(struct grammar *grammar); /* safe twice and on a zeroed struct */

/* Reads off what the nodes say about each other: resolves links, joins word lists, fills in has_empty and height.
 * Errors are ERR_USER: a node that reaches itself without taking input, a root that nothing can match. */
bool grammar_finish(struct grammar *grammar, struct err *err) MUST_CHECK;

#endif
