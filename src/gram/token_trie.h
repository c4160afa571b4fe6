#ifndef GRAM_TOKEN_TRIE_H
#define GRAM_TOKEN_TRIE_H
/* The base tokens of a vocabulary by their bytes, so that all tokens with the same beginning are tried at once.
 *
 * Nodes are in depth-first order: the children of a node come right behind it, and node.end is the first node behind
 * all of them. Added tokens are not in it: they are never part of a constrained value.
 *
 * Never changes once made; shared by all threads. The tokens' bytes are borrowed and must live longer. Costs 12 bytes a
 * node, and 29 a token; a vocabulary of 150,000 tokens has some 400,000 nodes. */
#include "fmt/tokenizer.h"

struct token_trie_node {
    uint32_t end;   /* first node that is not below this one */
    uint32_t first; /* ids[first .. first of the next node) are the tokens that end here */
};

struct token_trie {
    struct alloc *alloc;
    struct token_trie_node *nodes; /* [n_nodes + 1]; 0 is the root, the last only ends the ids of the one before */
    uint8_t *bytes;                /* [n_nodes] on the way in */
    uint16_t *kinds_below;         /* [n_nodes] of text (text_kinds.h), in what tokens have behind this node */
    uint8_t *bytes_below;          /* [n_nodes] at most so many; UINT8_MAX: that many or more */
    uint32_t *ids;                 /* [n_ids] by bytes */
    uint8_t *chars;                /* [n_ids] characters that the token begins; UINT8_MAX: that many or more */
    struct token *tokens;          /* [id_end] base tokens only, others have no bytes; the bytes are borrowed */
    uint32_t n_nodes, n_ids;
    uint32_t id_end;    /* one more than the largest id, dead and added ones included */
    uint32_t depth_max; /* bytes of the longest token */
};

struct token_trie *token_trie_new(struct alloc *alloc, const struct tokenizer *tokenizer, struct err *err) MUST_CHECK;

/* The same from tokens by id, of which those of kind TOKEN_BASE count. */
struct token_trie *token_trie_of(struct alloc *alloc, const struct token *tokens, uint32_t n,
                                 struct err *err) MUST_CHECK;

void token_trie_free(struct token_trie *trie); /* NULL is fine */

/* 64-bit words of a mask. */
static inline uint32_t token_trie_words(const struct token_trie *trie)
{
    return (trie->id_end + 63) / 64;
}

#endif
