#ifndef FMT_TOKENIZER_ENCODER_H
#define FMT_TOKENIZER_ENCODER_H
/* Text to token ids.
 *
 * An encoder is what one thread needs beside the shared tokenizer: scratch memory and a cache of pieces. Same text,
 * same ids, whatever was encoded before. The time is linear in the text, but for a single piece of n bytes (a word of a
 * megabyte), which takes n log n. */
#include "fmt/token_list.h"
#include "fmt/tokenizer.h"
#include <stdatomic.h>

struct encoder;

/* Which added tokens are cut out of the text. ENCODE_NONE is for text of clients: a marker in it stays text, and no
 * control id can come of it. ENCODE_ALL is what the reference library does. */
enum encode_mode { ENCODE_NONE, ENCODE_NON_SPECIAL, ENCODE_ALL };

/* Bytes of one piece, which needs about 28 times its size in memory. Longer ones are ERR_USER. */
#define ENCODER_PIECE_BYTES_MAX (16u << 20)

/* Keeps the tokenizer, which must live longer. `stop` may be NULL; once it is set, by any thread, encoding ends soon
 * with ERR_CANCELLED. */
struct encoder *encoder_new(struct alloc *alloc, const struct tokenizer *tokenizer, const atomic_bool *stop,
                            struct err *err) MUST_CHECK;
void encoder_free(struct encoder *encoder);

/* Appends the ids of a text. Nothing is added to it, no space in front and no template. A text that is not valid UTF-8
 * is ERR_USER with the offset; a list that would pass its ceiling is ERR_BUSY. On failure the list is as it was before.
 */
bool encoder_encode(struct encoder *encoder, const char *text, size_t bytes, enum encode_mode mode,
                    struct token_list *out, struct err *err) MUST_CHECK;

#endif
