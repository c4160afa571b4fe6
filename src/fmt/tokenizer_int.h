#ifndef FMT_TOKENIZER_INT_H
#define FMT_TOKENIZER_INT_H
/* The parts of a tokenizer, for its own files and its tests. All of it is in one arena and never changes after loading.
 */
#include "base/arena.h"
#include "fmt/tokenizer.h"

#define NO_ID UINT32_MAX

/* --- tokenizer_table.c: base tokens by bytes, merges by pair of ids. Open addressing, at most half full. A file that
 * was made so that entries pile up in one place is refused while it is loaded, so that a lookup is always short. */
struct vocab_slot {
    uint32_t tag; /* of the hash, so that most misses never look at the bytes */
    uint32_t id;  /* NO_ID: empty */
};

struct merge_slot {
    uint32_t left, right;
    uint32_t rank; /* NO_RANK: empty */
    uint32_t product;
};
#define NO_RANK UINT32_MAX

struct span {
    uint32_t offset, bytes;
};

struct vocab_table {
    struct vocab_slot *slots; /* [mask + 1] */
    uint32_t mask;
    const struct span *spans; /* [id] */
    const char *bytes;
};

struct merge_table {
    struct merge_slot *slots; /* [mask + 1] */
    uint32_t mask;
};

uint64_t vocab_hash(const char *bytes, size_t n);
bool vocab_table_init(struct vocab_table *table, struct arena *arena, uint32_t n, struct err *err) MUST_CHECK;
bool vocab_table_add(struct vocab_table *table, uint32_t id, struct err *err) MUST_CHECK;
uint32_t vocab_table_find(const struct vocab_table *table, uint64_t hash, const char *bytes, size_t n);

bool merge_table_init(struct merge_table *table, struct arena *arena, uint32_t n, struct err *err) MUST_CHECK;
/* A pair that is there already takes the new rank: of two equal merges the reference keeps the last. */
bool merge_table_add(struct merge_table *table, struct merge_slot merge, struct err *err) MUST_CHECK;
/* NULL when the pair does not merge. */
const struct merge_slot *merge_table_find(const struct merge_table *table, uint32_t left, uint32_t right);

/* --- tokenizer_trie.c: the contents of the added tokens. */
struct trie_node {
    uint32_t child, sibling; /* 0: none; node 0 is the root, which is neither */
    uint32_t id;             /* of the content that ends here, or NO_ID */
    unsigned char byte;
    bool special;
};

struct trie {
    struct trie_node *nodes;
    uint32_t n_nodes, room;
    uint32_t first[256]; /* the root's child by byte, 0: no content begins so */
};

bool trie_init(struct trie *trie, struct arena *arena, uint64_t content_bytes, struct err *err) MUST_CHECK;
/* False when the content is there already. */
bool trie_add(struct trie *trie, const char *content, size_t bytes, uint32_t id, bool special) MUST_CHECK;
/* NO_ID when this is not the content of an added token. */
uint32_t trie_find(const struct trie *trie, const char *content, size_t bytes);
/* The longest content at the start of the text, special ones only when asked for: its id and bytes, or NO_ID. */
uint32_t trie_match(const struct trie *trie, bool with_special, const char *text, size_t bytes, size_t *matched);

/* --- tokenizer.c */
struct tokenizer {
    struct alloc *alloc;
    struct arena arena;
    enum pretoken_family family;
    bool ignore_merges;
    uint32_t id_end;
    struct span *spans;   /* [id_end] into bytes */
    unsigned char *kinds; /* [id_end] enum token_kind */
    char *bytes;
    uint32_t byte_ids[256]; /* the base token of each single byte */
    struct vocab_table vocab;
    struct merge_table merges;
    struct trie added;
    uint32_t prefix[TOKENIZER_PREFIX_MAX], n_prefix;
};

/* --- tokenizer_bpe.c: merges the bytes of one piece, always the pair of the lowest rank and of equal ranks the
 * leftmost, until none is left. Both give the same ids. */
#define BPE_SMALL_BYTES_MAX 64u

struct bpe_symbol {
    uint32_t id; /* NO_ID: merged into the symbol before */
    uint32_t before, next;
};

struct bpe_scratch {
    struct alloc *alloc;
    struct bpe_symbol *symbols;
    uint64_t *heap;
    uint32_t room; /* bytes of a piece that fit */
};

/* Quadratic, for pieces of up to BPE_SMALL_BYTES_MAX bytes. ids has room for n; returns how many. */
uint32_t bpe_small(const struct tokenizer *tokenizer, const char *piece, uint32_t n, uint32_t *ids);

/* n log n, any piece. Leaves the result in scratch->symbols, to be walked from 0 along next to NO_ID. */
bool bpe_large(const struct tokenizer *tokenizer, struct bpe_scratch *scratch, const char *piece, uint32_t n,
               struct err *err) MUST_CHECK;
void bpe_scratch_fini(struct bpe_scratch *scratch);

/* --- tokenizer_refuse.c: what is said of a file that cannot be used. */
struct json_object;

/* ERR_DATA with the JSON path of what is wrong; always false. */
bool load_refuse(struct err *err, const char *path, const char *format, ...) PRINTF_LIKE(3, 4);

/* A short printable form of text from the file, for messages. */
struct quoted {
    char text[64];
};
struct quoted load_quote(const char *text, size_t bytes);
struct quoted load_quote_json(struct json_object *value);

/* --- tokenizer_rules.c: the rules around the vocabulary, for tokenizer_load.c. */
bool load_pre_tokenizer(struct tokenizer *tokenizer, struct json_object *root, struct err *err) MUST_CHECK;
bool load_post_processor(struct tokenizer *tokenizer, struct json_object *root, struct err *err) MUST_CHECK;
bool load_check_normalizer(struct json_object *root, struct err *err) MUST_CHECK;
bool load_check_decoder(struct json_object *root, struct err *err) MUST_CHECK;

#endif
