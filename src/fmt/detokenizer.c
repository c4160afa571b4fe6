#include "fmt/detokenizer.h"

#include "base/assert.h"
#include <string.h>

/* Shorter than it was is always possible. */
static void cut_back(struct buf *buf, size_t bytes)
{
    ASSERT(bytes <= buf->bytes);
    buf->bytes = bytes;
    if (buf->data) buf->data[bytes] = 0;
}

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer, bool skip_special)
{
    *detokenizer = (struct detokenizer){.tokenizer = tokenizer, .skip_special = skip_special};
}

bool detokenizer_add(struct detokenizer *detokenizer, uint32_t id, struct buf *out, struct err *err)
{
    struct utf8_stream next = detokenizer->stream;
    struct token token;
    size_t before = out->bytes;
    if (!tokenizer_token_bytes(detokenizer->tokenizer, id, &token, err)) return false;
    if (token.kind == TOKEN_SPECIAL && detokenizer->skip_special) return true;
    if (!utf8_stream_add(&next, out, token.bytes, token.n_bytes, err)) {
        cut_back(out, before);
        return false;
    }
    detokenizer->stream = next;
    return true;
}

bool detokenizer_end(struct detokenizer *detokenizer, struct buf *out, struct err *err)
{
    struct utf8_stream next = detokenizer->stream;
    if (!utf8_stream_end(&next, out, err)) return false;
    detokenizer->stream = next;
    return true;
}

bool detokenizer_bytes(const struct tokenizer *tokenizer, const uint32_t *ids, size_t n, bool skip_special,
                       struct buf *out, struct err *err)
{
    size_t before = out->bytes;
    for (size_t i = 0; i < n; i++) {
        struct token token;
        if (!tokenizer_token_bytes(tokenizer, ids[i], &token, err)) goto fail;
        if (token.kind == TOKEN_SPECIAL && skip_special) continue;
        if (!buf_add(out, token.bytes, token.n_bytes, err)) goto fail;
    }
    return true;
fail:
    cut_back(out, before);
    return false;
}

bool detokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t n, bool skip_special,
                        struct buf *out, struct err *err)
{
    struct buf raw;
    struct utf8_stream stream = {0};
    size_t before = out->bytes;
    buf_init(&raw, out->alloc, out->bytes_max - before); /* replacing never makes a text shorter */
    bool ok = detokenizer_bytes(tokenizer, ids, n, skip_special, &raw, err) &&
              utf8_stream_add(&stream, out, raw.data, raw.bytes, err) && utf8_stream_end(&stream, out, err);
    if (!ok) cut_back(out, before);
    buf_fini(&raw);
    return ok;
}
