/* Ids to text: all at once, as they come, and against a decoder of the test's own. */
#include "fmt/detokenizer.h"

#include "base/utf8.h"
#include "support/check.h"
#include "support/random_text.h"
#include "support/tokenizers.h"

#define SEED 8123

static struct alloc heap;

/* Decodes by the standard's own table of well-formed sequences (Unicode, table 3-7), in the plainest way. */
static size_t sequence(const unsigned char *s, size_t n, bool *whole)
{
    static const struct {
        unsigned char min[4], max[4];
        size_t length;
    } rows[] = {
        {{0x00}, {0x7F}, 1},
        {{0xC2, 0x80}, {0xDF, 0xBF}, 2},
        {{0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}, 3},
        {{0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}, 3},
        {{0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}, 3},
        {{0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}, 3},
        {{0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}, 4},
        {{0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}, 4},
        {{0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}, 4},
    };
    size_t longest = 1;
    *whole = false;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        size_t i = 0;
        while (i < n && i < rows[r].length && s[i] >= rows[r].min[i] && s[i] <= rows[r].max[i]) i++;
        if (i == rows[r].length) *whole = true;
        if (i > longest) longest = i;
    }
    return longest;
}

static void decode_plainly(const struct tokenizer *tokenizer, const uint32_t *ids, size_t n, struct buf *out)
{
    unsigned char raw[16384];
    size_t n_raw = 0;
    struct err err = {0};
    for (size_t i = 0; i < n; i++) {
        struct token token = tokenizer_token(tokenizer, ids[i]);
        assert_true(n_raw + token.n_bytes <= sizeof raw);
        memcpy(raw + n_raw, token.bytes, token.n_bytes);
        n_raw += token.n_bytes;
    }
    for (size_t at = 0; at < n_raw;) {
        bool whole;
        size_t used = sequence(raw + at, n_raw - at, &whole);
        assert_true(whole ? buf_add(out, raw + at, used, &err) : buf_add_text(out, "\xEF\xBF\xBD", &err));
        at += used;
    }
}

static void expect_same(const struct buf *a, const struct buf *b)
{
    assert_int_equal(a->bytes, b->bytes);
    if (a->bytes) assert_memory_equal(a->data, b->data, a->bytes);
}

/* Half of the ids are single bytes, so that broken code points of all kinds come up. */
static uint32_t random_id(struct random *random, const struct tokenizer *tokenizer, const uint32_t byte_ids[256])
{
    if (random_below(random, 2)) return random_below(random, tokenizer_id_end(tokenizer));
    uint32_t byte = random_below(random, 3) ? 0x80 + random_below(random, 0x80) : random_below(random, 256);
    return byte_ids[byte];
}

static void find_byte_ids(const struct tokenizer *tokenizer, uint32_t byte_ids[256])
{
    for (uint32_t id = 0; id < tokenizer_id_end(tokenizer); id++) {
        struct token token = tokenizer_token(tokenizer, id);
        if (token.kind == TOKEN_BASE && token.n_bytes == 1) byte_ids[(unsigned char)token.bytes[0]] = id;
    }
}

static void streams_equal_the_whole_and_never_show_half_a_code_point(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct random random = {SEED};
    struct buf plain, whole, stream, piece;
    struct err err = {0};
    uint32_t byte_ids[256] = {0};
    size_t n_replaced = 0;
    print_message("seed %d\n", SEED);
    find_byte_ids(tokenizer, byte_ids);
    buf_init(&plain, &heap, 1 << 20);
    buf_init(&whole, &heap, 1 << 20);
    buf_init(&stream, &heap, 1 << 20);
    buf_init(&piece, &heap, 1 << 20);
    for (int round = 0; round < 5000; round++) {
        uint32_t ids[40];
        size_t n = random_below(&random, 40), bad;
        struct detokenizer detokenizer;
        detokenizer_init(&detokenizer, tokenizer, false);
        buf_clear(&plain);
        buf_clear(&whole);
        buf_clear(&stream);
        for (size_t i = 0; i < n; i++) {
            ids[i] = random_id(&random, tokenizer, byte_ids);
            buf_clear(&piece);
            assert_true(detokenizer_add(&detokenizer, ids[i], &piece, &err));
            assert_true(utf8_check(piece.data, piece.bytes, &bad));
            assert_true(buf_add(&stream, piece.data, piece.bytes, &err));
            assert_true(detokenizer.stream.n_held <= 3);
        }
        assert_true(detokenizer_end(&detokenizer, &stream, &err));
        assert_true(detokenizer_decode(tokenizer, ids, n, false, &whole, &err));
        decode_plainly(tokenizer, ids, n, &plain);
        expect_same(&whole, &plain);
        expect_same(&stream, &plain);
        n_replaced += plain.data && strstr(plain.data, "\xEF\xBF\xBD");
    }
    print_message("%zu of 5000 texts had U+FFFD\n", n_replaced);
    assert_true(n_replaced > 1000);
    buf_fini(&plain);
    buf_fini(&whole);
    buf_fini(&stream);
    buf_fini(&piece);
    tokenizer_free(tokenizer);
    assert_int_equal(heap.live, 0);
}

/* An emoji of four tokens appears at once, and what was cut off at the end is one U+FFFD. */
static void code_points_appear_when_they_are_whole(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct detokenizer detokenizer;
    struct buf out;
    struct err err = {0};
    uint32_t byte_ids[256] = {0};
    static const unsigned char bytes[] = {0xF0, 0x9F, 0x98, 0x80};
    find_byte_ids(tokenizer, byte_ids);
    buf_init(&out, &heap, 100);
    detokenizer_init(&detokenizer, tokenizer, false);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(out.bytes, 0);
        assert_true(detokenizer_add(&detokenizer, byte_ids[bytes[i]], &out, &err));
    }
    assert_string_equal(out.data, "\U0001F600");
    for (size_t i = 0; i < 3; i++) assert_true(detokenizer_add(&detokenizer, byte_ids[bytes[i]], &out, &err));
    assert_true(detokenizer_add(&detokenizer, byte_ids['x'], &out, &err)); /* shows that what was held is broken */
    assert_string_equal(out.data, "\U0001F600\uFFFDx");
    assert_true(detokenizer_add(&detokenizer, byte_ids[0xE4], &out, &err));
    assert_string_equal(out.data, "\U0001F600\uFFFDx");
    assert_true(detokenizer_end(&detokenizer, &out, &err));
    assert_string_equal(out.data, "\U0001F600\uFFFDx\uFFFD");
    assert_true(detokenizer_end(&detokenizer, &out, &err));
    assert_string_equal(out.data, "\U0001F600\uFFFDx\uFFFD");
    buf_fini(&out);
    tokenizer_free(tokenizer);
}

static void only_special_tokens_are_skipped(void **state)
{
    (void)state;
    static const char *const names[] = {"<|user|>", "<think>", "</think>", "<|endoftext|>", "<tool_call>"};
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct buf with, without;
    struct err err = {0};
    uint32_t ids[5];
    for (size_t i = 0; i < 5; i++) assert_true(tokenizer_id(tokenizer, names[i], &ids[i]));
    buf_init(&with, &heap, 100);
    buf_init(&without, &heap, 100);
    assert_true(detokenizer_decode(tokenizer, ids, 5, false, &with, &err));
    assert_true(detokenizer_decode(tokenizer, ids, 5, true, &without, &err));
    assert_string_equal(with.data, "<|user|><think></think><|endoftext|><tool_call>");
    assert_string_equal(without.data, "<think></think><tool_call>");
    buf_fini(&with);
    buf_fini(&without);
    tokenizer_free(tokenizer);
}

static void what_fails_changes_nothing(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct detokenizer detokenizer;
    struct buf out;
    struct err err = {0};
    uint32_t byte_ids[256] = {0}, user;
    find_byte_ids(tokenizer, byte_ids);
    assert_true(tokenizer_id(tokenizer, "<|user|>", &user));
    buf_init(&out, &heap, 10);
    detokenizer_init(&detokenizer, tokenizer, false);
    assert_true(detokenizer_add(&detokenizer, user, &out, &err));
    assert_true(detokenizer_add(&detokenizer, byte_ids[0xE4], &out, &err));
    assert_false(detokenizer_add(&detokenizer, tokenizer_id_end(tokenizer), &out, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_false(detokenizer_add(&detokenizer, user, &out, &err)); /* U+FFFD and eight bytes do not fit */
    assert_int_equal(err.kind, ERR_BUSY);
    assert_string_equal(out.data, "<|user|>");
    assert_int_equal(detokenizer.stream.n_held, 1);
    assert_false(detokenizer_end(&detokenizer, &out, &err));
    assert_int_equal(detokenizer.stream.n_held, 1);
    uint32_t ids[] = {byte_ids['a'], user};
    assert_false(detokenizer_decode(tokenizer, ids, 2, false, &out, &err));
    assert_false(detokenizer_bytes(tokenizer, ids, 2, false, &out, &err));
    assert_string_equal(out.data, "<|user|>");
    buf_fini(&out);
    tokenizer_free(tokenizer);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_equal_the_whole_and_never_show_half_a_code_point),
        cmocka_unit_test(code_points_appear_when_they_are_whole),
        cmocka_unit_test(only_special_tokens_are_skipped),
        cmocka_unit_test(what_fails_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
