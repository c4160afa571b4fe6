#ifndef FMT_TOKENIZER_H
#define FMT_TOKENIZER_H
/* A byte-level BPE tokenizer, read from a tokenizer.json.
 *
 * The file is untrusted and decides token ids, so everything in it that would change an id is either implemented or
 * refused with a line that names the file and the JSON path: another model type, a split pattern without a scanner, a
 * normalizer, byte fallback, added tokens with stripping or word borders.
 *
 * Immutable once made: any number of threads may share one. Encoding needs an encoder for each thread
 * (tokenizer_encoder.h); decoding is in detokenizer.h.
 *
 * Three kinds of ids. A base token is a byte string that merging can make. An added token is a literal text that is cut
 * out of the input before anything else, and whose `special` flag says whether decoding may leave it out. An id without
 * a token is dead: the model has a row for it, but it must never be sampled. */
#include "fmt/pretoken.h"
#include "plat/file.h"

struct tokenizer;

#define TOKENIZER_FILE_BYTES_MAX (UINT64_C(64) << 20)
#define TOKENIZER_ID_END (1u << 21)      /* ids lie below */
#define TOKENIZER_TOKEN_BYTES_MAX 65536u /* of a token string in the file */
#define TOKENIZER_ADDED_BYTES_MAX 256u   /* of the content of an added token: bounds the search at one position */
#define TOKENIZER_PREFIX_MAX 8u          /* ids that a template puts in front of raw text */

enum token_kind { TOKEN_DEAD, TOKEN_BASE, TOKEN_ADDED, TOKEN_SPECIAL };

/* Bytes of a token, not NUL-terminated; borrowed from the tokenizer. */
struct token {
    const char *bytes;
    uint32_t n_bytes;
    enum token_kind kind;
};

/* Reads a tokenizer.json. Errors: ERR_DATA, ERR_IO, ERR_NOMEM. */
struct tokenizer *tokenizer_new(struct alloc *alloc, struct file_system fs, const char *path,
                                struct err *err) MUST_CHECK;

/* The same from text; `name` is for messages. The text is not kept. */
struct tokenizer *tokenizer_parse(struct alloc *alloc, const char *name, const char *json, size_t bytes,
                                  struct err *err) MUST_CHECK;

/* NULL is fine. */
void tokenizer_free(struct tokenizer *tokenizer);

/* One more than the largest id that has a token. */
uint32_t tokenizer_id_end(const struct tokenizer *tokenizer);

/* Any id: one without a token, or out of range, is TOKEN_DEAD with no bytes. */
struct token tokenizer_token(const struct tokenizer *tokenizer, uint32_t id);

/* Raw bytes of a token, not the printable alphabet of the file. A dead id is ERR_USER. */
bool tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, struct token *token,
                           struct err *err) MUST_CHECK;

/* The added token whose content is exactly this text, such as "<|user|>"; false when there is none. */
bool tokenizer_id(const struct tokenizer *tokenizer, const char *content, uint32_t *id);

/* Writes the dead ids below n_rows (the rows of the model's head), ascending, as many as fit in room; returns how many
 * there are. */
uint32_t tokenizer_dead_ids(const struct tokenizer *tokenizer, uint32_t n_rows, uint32_t *ids, uint32_t room);

/* The ids that belong in front of a raw text, which the model never saw without them: what the file's own template puts
 * there, or else [gMASK] <sop> when both are added tokens. A rendered chat has them already. Returns how many; ids is
 * borrowed. */
uint32_t tokenizer_raw_prefix(const struct tokenizer *tokenizer, const uint32_t **ids);

/* True when the pieces of a split that are in the vocabulary are taken whole, merges or not. */
bool tokenizer_ignores_merges(const struct tokenizer *tokenizer);
enum pretoken_family tokenizer_family(const struct tokenizer *tokenizer);

#endif
