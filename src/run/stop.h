#ifndef RUN_STOP_H
#define RUN_STOP_H
/* Why an answer ends, and the automaton that finds stop strings in it.
 *
 * A match is complete at the first byte where some stop string is a suffix of the text so far; if several are, the
 * longest is it. Only bytes count, never the borders of tokens. The automaton is that of Aho and Corasick: a state
 * stands for the longest suffix of the text that begins some stop string, which is exactly what a stream has to hold
 * back.
 *
 * A struct stop_set does not change after init and may be used from any thread; a state is a number. */
#include "base/alloc.h"
#include "run/sampling.h"

enum stop_reason {
    STOP_NONE, /* it goes on */
    STOP_EOS,  /* an end-of-turn id; neither emitted nor counted */
    STOP_ID,   /* one of the client's stop_token_ids; the same */
    STOP_STRING,
    STOP_GRAMMAR, /* complete, and nothing may follow */
    STOP_TOOL,    /* the first complete call, with parallel calls off */
    STOP_LENGTH,  /* token limit or context */
    STOP_CANCELLED,
    STOP_ERROR,
};

/* The internal name: eos, stop (three of them), tool, length, cancelled, error; "none" while it goes on. */
const char *stop_reason_name(enum stop_reason reason);

/* STOP_EOS, STOP_ID or STOP_NONE for an id that was picked and not yet emitted. */
enum stop_reason stop_on_id(uint32_t id, const uint32_t *eos, uint32_t n_eos, const struct sampling *sampling);

enum { STOP_NO_STRING = UINT8_MAX };

struct stop_node {
    uint16_t child, sibling; /* first child; next child of the same parent; 0: none */
    uint16_t fail;           /* the longest proper suffix that is a state too */
    uint16_t depth;          /* bytes from the root */
    uint8_t byte;            /* on the way in */
    uint8_t string;          /* a stop string that begins with these bytes */
    uint8_t match;           /* the longest stop string that is a suffix; STOP_NO_STRING */
};

struct stop_set {
    struct alloc *alloc;
    const struct stop_string *strings; /* [n_strings], borrowed */
    struct stop_node *nodes;           /* [n_nodes]; 0 is the root, where every text begins */
    uint32_t n_nodes;
};

/* Up to 16 strings of 1 to 1024 bytes, as sampling_put_stop checks them; they must outlive the set. None is fine. */
bool stop_set_init(struct stop_set *set, struct alloc *alloc, const struct stop_string *strings, size_t n,
                   struct err *err) MUST_CHECK;
void stop_set_fini(struct stop_set *set); /* safe twice and on a zeroed struct */

/* The state after one more byte. */
uint32_t stop_set_step(const struct stop_set *set, uint32_t state, uint8_t byte);

#endif
