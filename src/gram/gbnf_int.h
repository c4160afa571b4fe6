#ifndef GRAM_GBNF_INT_H
#define GRAM_GBNF_INT_H
/* A grammar text as a tree, between its two files. All of it is in the arena of the builder. */
#include "gram/gbnf.h"
#include "gram/pattern_reader.h"

enum gbnf_kind { GBNF_TERM, GBNF_REF, GBNF_SEQ, GBNF_ANY_OF, GBNF_REPEAT };

struct gbnf_expr {
    enum gbnf_kind kind;
    uint32_t term;           /* regular term */
    uint32_t rule;           /* reference */
    uint32_t min, max;       /* repetition */
    struct gbnf_expr *child; /* the first of several, or what is repeated */
    struct gbnf_expr *next;  /* sibling */
};

struct gbnf_rule {
    const char *name;
    uint32_t name_bytes;
    size_t at;               /* where it was first seen */
    struct gbnf_expr *body;  /* NULL: only referred to so far */
    uint32_t bucket_next;    /* of the hash table of names */
    bool has_empty, can_end; /* may match nothing; matches some string */
    bool is_regular;
    uint32_t term; /* when it is regular */
    uint32_t node;
};

struct gbnf {
    struct builder *builder;
    struct pattern_reader p;
    struct gbnf_rule *rules; /* [GBNF_RULES_MAX] */
    uint32_t n_rules;
    uint32_t *buckets; /* [GBNF_BUCKETS] rule + 1 */
    uint32_t depth;    /* groups that are open */
    bool inlines;
    struct err *err;
};

enum { GBNF_BUCKETS = 1024 };

bool gbnf_parse(struct gbnf *g) MUST_CHECK;

#endif
