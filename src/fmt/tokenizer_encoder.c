#include "fmt/tokenizer_encoder.h"

#include "base/assert.h"
#include "base/utf8.h"
#include "fmt/tokenizer_int.h"
#include <string.h>

/* Pieces that are not in the vocabulary and were merged before. One place for each hash, the newest wins: prose repeats
 * itself within a page, and a lookup costs one cache line. */
#define CACHE_SLOTS 4096u /* a power of two */
#define CACHE_PIECE_BYTES 26u
#define CACHE_IDS 9u

struct cache_slot {
    uint32_t ids[CACHE_IDS];
    unsigned char n_ids, n_bytes; /* n_ids 0: empty */
    char piece[CACHE_PIECE_BYTES];
};
static_assert(sizeof(struct cache_slot) == 64, "a slot is a cache line");
static_assert(CACHE_PIECE_BYTES <= BPE_SMALL_BYTES_MAX, "what is cached is merged the short way");

/* The flag is looked at once in so many bytes of text. */
#define STOP_BYTES (64u << 10)

/* Scratch of a larger piece than this is given back when the text is done. */
#define SCRATCH_BYTES_KEPT (64u << 10)

struct encoder {
    struct alloc *alloc;
    const struct tokenizer *tokenizer;
    const atomic_bool *stop; /* set by any thread; NULL: never */
    struct bpe_scratch scratch;
    struct cache_slot *cache; /* [CACHE_SLOTS] */
    size_t until_look;        /* bytes until the flag is looked at again */
};

struct encoder *encoder_new(struct alloc *alloc, const struct tokenizer *tokenizer, const atomic_bool *stop,
                            struct err *err)
{
    struct encoder *encoder = alloc_get(alloc, sizeof *encoder, err);
    if (!encoder) return NULL;
    *encoder = (struct encoder){.alloc = alloc, .tokenizer = tokenizer, .stop = stop, .scratch.alloc = alloc};
    encoder->cache = alloc_get_array(alloc, CACHE_SLOTS, sizeof *encoder->cache, err);
    if (encoder->cache) return encoder;
    encoder_free(encoder);
    return NULL;
}

void encoder_free(struct encoder *encoder)
{
    if (!encoder) return;
    bpe_scratch_fini(&encoder->scratch);
    alloc_put(encoder->alloc, encoder->cache);
    alloc_put(encoder->alloc, encoder);
}

static bool encode_large(struct encoder *encoder, const char *piece, size_t n, struct token_list *out, struct err *err)
{
    if (n > ENCODER_PIECE_BYTES_MAX)
        return err_set(err, ERR_USER, "%zu bytes of text without a break, more than the limit of %u", n,
                       ENCODER_PIECE_BYTES_MAX);
    if (!bpe_large(encoder->tokenizer, &encoder->scratch, piece, (uint32_t)n, err)) return false;
    const struct bpe_symbol *symbols = encoder->scratch.symbols;
    for (uint32_t at = 0; at != NO_ID; at = symbols[at].next)
        if (!token_list_add(out, &symbols[at].id, 1, err)) return false;
    return true;
}

static bool encode_small(struct encoder *encoder, uint64_t hash, const char *piece, uint32_t n, struct token_list *out,
                         struct err *err)
{
    uint32_t ids[BPE_SMALL_BYTES_MAX];
    struct cache_slot *slot = &encoder->cache[hash % CACHE_SLOTS];
    if (slot->n_ids && slot->n_bytes == n && memcmp(slot->piece, piece, n) == 0)
        return token_list_add(out, slot->ids, slot->n_ids, err);
    uint32_t n_ids = bpe_small(encoder->tokenizer, piece, n, ids);
    if (n <= CACHE_PIECE_BYTES && n_ids <= CACHE_IDS) {
        memcpy(slot->ids, ids, n_ids * sizeof *ids);
        memcpy(slot->piece, piece, n);
        slot->n_ids = (unsigned char)n_ids;
        slot->n_bytes = (unsigned char)n;
    }
    return token_list_add(out, ids, n_ids, err);
}

static bool encode_piece(struct encoder *encoder, const char *piece, size_t n, struct token_list *out, struct err *err)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (n == 1) return token_list_add(out, &tokenizer->byte_ids[(unsigned char)*piece], 1, err);
    uint64_t hash = vocab_hash(piece, n);
    if (tokenizer->ignore_merges) {
        uint32_t id = vocab_table_find(&tokenizer->vocab, hash, piece, n);
        if (id != NO_ID) return token_list_add(out, &id, 1, err);
    }
    if (n > BPE_SMALL_BYTES_MAX) return encode_large(encoder, piece, n, out, err);
    return encode_small(encoder, hash, piece, (uint32_t)n, out, err);
}

static bool keep_on(struct encoder *encoder, size_t bytes, struct err *err)
{
    if (bytes < encoder->until_look) {
        encoder->until_look -= bytes;
        return true;
    }
    encoder->until_look = STOP_BYTES;
    if (!encoder->stop || !atomic_load(encoder->stop)) return true;
    return err_set(err, ERR_CANCELLED, "encoding of the text was cancelled");
}

/* Text between added tokens. */
static bool encode_run(struct encoder *encoder, const char *text, size_t bytes, struct token_list *out, struct err *err)
{
    while (bytes > 0) {
        size_t n = pretoken_next(encoder->tokenizer->family, text, bytes);
        ASSERT_SLOW(n > 0 && n <= bytes);
        if (!encode_piece(encoder, text, n, out, err)) return false;
        if (!keep_on(encoder, n, err)) return false;
        text += n;
        bytes -= n;
    }
    return true;
}

/* The next added token: where it begins, its bytes and id. False when the rest of the text holds none. */
struct match {
    size_t at, bytes;
    uint32_t id;
};

static bool find_added(const struct trie *trie, bool with_special, const char *text, size_t bytes, struct match *match)
{
    for (size_t at = 0; at < bytes; at++) {
        if (!trie->first[(unsigned char)text[at]]) continue;
        match->id = trie_match(trie, with_special, text + at, bytes - at, &match->bytes);
        if (match->id == NO_ID) continue;
        match->at = at;
        return true;
    }
    return false;
}

static bool encode_text(struct encoder *encoder, const char *text, size_t bytes, enum encode_mode mode,
                        struct token_list *out, struct err *err)
{
    struct match match;
    while (mode != ENCODE_NONE && find_added(&encoder->tokenizer->added, mode == ENCODE_ALL, text, bytes, &match)) {
        if (!encode_run(encoder, text, match.at, out, err)) return false;
        if (!token_list_add(out, &match.id, 1, err)) return false;
        if (!keep_on(encoder, match.bytes, err)) return false;
        text += match.at + match.bytes;
        bytes -= match.at + match.bytes;
    }
    return encode_run(encoder, text, bytes, out, err);
}

bool encoder_encode(struct encoder *encoder, const char *text, size_t bytes, enum encode_mode mode,
                    struct token_list *out, struct err *err)
{
    size_t bad, n_before = out->n;
    if (!utf8_check(text, bytes, &bad))
        return err_set(err, ERR_USER, "the text is not valid UTF-8 at byte %zu (0x%02x)", bad,
                       (unsigned char)text[bad]);
    encoder->until_look = 0; /* a flag that is set already stops even a short text */
    bool ok = encode_text(encoder, text, bytes, mode, out, err);
    if (!ok) out->n = n_before;
    if (encoder->scratch.room > SCRATCH_BYTES_KEPT) bpe_scratch_fini(&encoder->scratch);
    return ok;
}
