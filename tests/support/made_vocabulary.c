#include "support/made_vocabulary.h"

#include "base/utf8.h"
#include "support/check.h"
#include "support/constrained.h"

enum { TOKEN_BYTES_MAX = 64, BYTES_MAX = MADE_VOCABULARY_TOKENS * TOKEN_BYTES_MAX };

static size_t put_word(struct numbers *numbers, char *out)
{
    static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz";
    size_t n = 0;
    if (numbers_below(numbers, 5) < 3) out[n++] = ' ';
    for (uint32_t i = 0, length = 1 + numbers_below(numbers, 10); i < length; i++) {
        uint32_t a = numbers_below(numbers, 26), b = numbers_below(numbers, 26);
        out[n++] = letters[a < b ? a : b]; /* frequent letters more often */
    }
    if (numbers_below(numbers, 6) == 0) out[out[0] == ' '] &= (char)~0x20;
    return n;
}

static size_t put_codes(struct numbers *numbers, char *out, uint32_t first, uint32_t n_codes, uint32_t most)
{
    size_t n = 0;
    for (uint32_t i = 0, length = 1 + numbers_below(numbers, most); i < length; i++)
        n += utf8_put(out + n, first + numbers_below(numbers, n_codes));
    return n;
}

static size_t put_marks(struct numbers *numbers, char *out)
{
    static const char marks[] = "\"{}[]():,;.=<>/\\'!?*&|-_+ \n\t#@$%";
    size_t n = 0;
    for (uint32_t i = 0, length = 2 + numbers_below(numbers, 4); i < length; i++)
        out[n++] = marks[numbers_below(numbers, sizeof marks - 1)];
    return n;
}

static size_t put_token(struct numbers *numbers, uint32_t id, char *out)
{
    if (id < 256) {
        out[0] = (char)id;
        return 1;
    }
    if (id < 256 + 1100) return (size_t)snprintf(out, 8, id < 356 ? "%02u" : "%03u", id < 356 ? id - 256 : id - 356);
    if (id < 1500) {
        size_t n = id - 1356 + 2 > 60 ? (id - 1356) % 58 + 2 : id - 1356 + 2;
        memset(out, id % 2 ? ' ' : '\t', n);
        return n;
    }
    uint32_t kind = numbers_below(numbers, 100);
    if (kind < 62) return put_word(numbers, out);
    if (kind < 84) return put_codes(numbers, out, 0x4E00, 5000, 4);
    if (kind < 92) return put_codes(numbers, out, 0x430, 32, 8);
    return put_marks(numbers, out);
}

void made_vocabulary_init(struct made_vocabulary *v, struct alloc *alloc)
{
    struct err err = {0};
    struct numbers numbers = {.key = 52};
    size_t at = 0;
    v->alloc = alloc;
    v->tokens = alloc_get_array(alloc, MADE_VOCABULARY_TOKENS, sizeof *v->tokens, &err);
    v->bytes = alloc_get(alloc, BYTES_MAX, &err);
    assert_non_null(v->tokens);
    assert_non_null(v->bytes);
    for (uint32_t id = 0; id < MADE_VOCABULARY_TOKENS; id++) {
        size_t n = put_token(&numbers, id, v->bytes + at);
        assert_in_range(n, 1, TOKEN_BYTES_MAX);
        v->tokens[id] = (struct token){v->bytes + at, (uint32_t)n, TOKEN_BASE};
        at += n;
    }
}

void made_vocabulary_fini(struct made_vocabulary *v)
{
    alloc_put(v->alloc, v->tokens);
    alloc_put(v->alloc, v->bytes);
}
