#ifndef GRAM_BUILDER_H
#define GRAM_BUILDER_H
/* Makes a grammar, node by node.
 *
 * Errors are sticky, as in regular.h: after a failure every function returns 0, and build_finish tells. Owned by one
 * thread, for the length of one compilation. */
#include "base/arena.h"
#include "gram/grammar.h"

enum { BUILD_STATES_MAX = 100000, BUILD_NODES_MAX = 1 << 18, BUILD_SCRATCH_BYTES_MAX = 64 << 20 };

struct builder {
    struct alloc *alloc;
    struct arena scratch; /* gone with the builder */
    struct regular regular;
    struct grammar grammar;
    struct dfa_budget budget;
    uint32_t *term_of_dfa; /* [n_dfas], to find equal ones */
    uint32_t term_of_dfa_room;
    struct err err;
};

bool builder_init(struct builder *builder, struct alloc *alloc, struct err *err) MUST_CHECK;
void builder_fini(struct builder *builder); /* safe twice and on a zeroed struct */

/* False when anything that was built before failed, with the first failure. */
bool build_ok(struct builder *builder, struct err *err) MUST_CHECK;

uint32_t build_term(struct builder *builder, uint32_t term);
/* min to max units of `unit`, then `end` (REGULAR_EMPTY: nothing). A unit must not begin as `end` does, nor hold the
 * beginning of another unit where it ends. */
uint32_t build_count(struct builder *builder, uint32_t unit, uint32_t end, uint32_t min, uint32_t max);
uint32_t build_token(struct builder *builder, uint32_t id);
uint32_t build_seq(struct builder *builder, const uint32_t *nodes, uint32_t n);
uint32_t build_union(struct builder *builder, const uint32_t *nodes, uint32_t n);
uint32_t build_repeat(struct builder *builder, uint32_t node, uint32_t min, uint32_t max);
uint32_t build_nest(struct builder *builder, uint32_t node);

/* A node that is told later what it stands for. */
uint32_t build_link(struct builder *builder);
void build_link_to(struct builder *builder, uint32_t link, uint32_t node);

struct build_word {
    const char *bytes;
    size_t n;
    uint32_t label, then; /* then: GRAM_NONE when anything may follow */
};
/* Sorts the words; of equal ones one stays. The bytes are copied. */
uint32_t build_words(struct builder *builder, struct build_word *words, uint32_t n);

struct build_member {
    const char *key; /* as it is written */
    size_t n;
    uint32_t value;
    bool required;
};
/* `list` gives everything but words, first, n_members and n_required. Keys must differ. */
uint32_t build_members(struct builder *builder, enum gram_kind kind, const struct gram_members *list,
                       const struct build_member *members, uint32_t n);

/* The grammar with this root changes hands. Errors as in grammar_finish. */
bool build_finish(struct builder *builder, uint32_t root, struct grammar *out, struct err *err) MUST_CHECK;

#endif
