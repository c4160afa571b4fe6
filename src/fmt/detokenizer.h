#ifndef FMT_DETOKENIZER_H
#define FMT_DETOKENIZER_H
/* Token ids to text, all at once or as they come.
 *
 * A token may hold part of a code point. The stream holds back what is a valid start of one (at most three bytes) until
 * the rest comes, so that each piece it gives is valid UTF-8; bytes that can no longer become a code point are U+FFFD,
 * one for each maximal subpart. All pieces together are exactly what decoding at once gives. Nothing is trimmed or
 * cleaned.
 *
 * A struct detokenizer is plain values: it owns nothing, may be copied (to try a draft and go back), and belongs to one
 * thread at a time. The tokenizer must live longer. */
#include "base/utf8.h"
#include "fmt/tokenizer.h"

struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special; /* leave out tokens whose special flag is set */
    struct utf8_stream stream;
};

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer, bool skip_special);

/* Appends the text that this id completes, maybe none. An id without a token is ERR_USER and changes nothing. */
bool detokenizer_add(struct detokenizer *detokenizer, uint32_t id, struct buf *out, struct err *err) MUST_CHECK;

/* At the end: what is still held becomes one U+FFFD. The detokenizer is then as it was after init. */
bool detokenizer_end(struct detokenizer *detokenizer, struct buf *out, struct err *err) MUST_CHECK;

/* The text of all ids at once. On failure `out` is as it was before. */
bool detokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t n, bool skip_special,
                        struct buf *out, struct err *err) MUST_CHECK;

/* The raw bytes of all ids, without any replacement: not always valid UTF-8. */
bool detokenizer_bytes(const struct tokenizer *tokenizer, const uint32_t *ids, size_t n, bool skip_special,
                       struct buf *out, struct err *err) MUST_CHECK;

#endif
