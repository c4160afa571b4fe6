#ifndef GRAM_MATCHER_H
#define GRAM_MATCHER_H
/* Where one answer stands in its constraint: which tokens may come next.
 *
 * A position is a set of places in the grammar (at most MATCHER_PLACES_MAX), each with what must follow behind it. The
 * position moves byte by byte, so a token may end inside of a character or a word. From every position that can be
 * reached the answer can be completed, as long as each single byte is a token.
 *
 * While the model thinks, every token is allowed but those that end the answer and <tool_call>; the constraint begins
 * behind </think>.
 *
 * Owned by one thread at a time, the one that owns the mask cache. Constraints are shared and held. Copies for
 * speculation are matchers of their own that share the cache. */
#include "gram/mask_cache.h"

enum { MATCHER_PLACES_MAX = 256 };

struct matcher;

struct matcher_rules {
    struct constraint *constraint; /* held until matcher_free */
    struct mask_cache *cache;      /* outlives the matcher */
    const struct control_ids *ids; /* copied */
    bool starts_in_think;          /* the prompt ends in an open <think> */
};

struct matcher *matcher_new(struct alloc *alloc, const struct matcher_rules *rules, struct err *err) MUST_CHECK;
void matcher_free(struct matcher *matcher); /* NULL is fine */

/* Sets bit (id % 64) of mask[id / 64] for each id that may come next, and clears all others; token_trie_words() words,
 * the layout of sampler_input.allowed. Fails with ERR_NOMEM, or ERR_FAILED and the code grammar_limit. */
bool matcher_allowed(struct matcher *matcher, uint64_t *mask, struct err *err) MUST_CHECK;

/* Moves on by an id. *taken is false, and nothing has changed, when it is not allowed here. An id that ends the answer
 * is taken where the answer may end. */
bool matcher_advance(struct matcher *matcher, uint32_t id, bool *taken, struct err *err) MUST_CHECK;

/* What came so far is a whole answer: an end-of-answer id is allowed. */
bool matcher_accepts(const struct matcher *matcher);
/* Some token can follow. */
bool matcher_can_continue(const struct matcher *matcher);
/* It is whole and nothing can follow: generation ends at once, without an end-of-answer id. */
bool matcher_is_complete(const struct matcher *matcher);
bool matcher_is_thinking(const struct matcher *matcher);

/* *forced: exactly one id is allowed here, and it is *id. */
bool matcher_forced(struct matcher *matcher, uint32_t *id, bool *forced, struct err *err) MUST_CHECK;

/* Makes `to`, of the same constraint and cache, stand where `from` stands. On failure `to` is where it was. Takes no
 * memory once `to` has been as deep. */
bool matcher_copy(struct matcher *to, const struct matcher *from, struct err *err) MUST_CHECK;

#endif
