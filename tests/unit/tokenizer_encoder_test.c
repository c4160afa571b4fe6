/* What must hold for any text, on random text of every plane. Also a benchmark:
 *
 *     build/tests/tokenizer_encoder_test --bench TOKENIZER.json TEXT */
#include "fmt/tokenizer_encoder.h"

#include "base/utf8.h"
#include "fmt/tokenizer_int.h"
#include "support/check.h"
#include "support/random_text.h"
#include "support/tokenizers.h"
#include <stdlib.h>
#include <time.h>

#define SEED 20261130

static struct alloc heap;

/* One tokenizer with what is needed to try it. */
struct rig {
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct token_list ids, more;
    struct buf text;
};

static void rig_init(struct rig *rig, const char *path)
{
    struct err err = {0};
    *rig = (struct rig){.tokenizer = tokenizer_fixture(&heap, path)};
    rig->encoder = encoder_new(&heap, rig->tokenizer, NULL, &err);
    assert_non_null(rig->encoder);
    token_list_init(&rig->ids, &heap, 32 << 20);
    token_list_init(&rig->more, &heap, 32 << 20);
    buf_init(&rig->text, &heap, 64 << 20);
}

static void rig_fini(struct rig *rig)
{
    token_list_fini(&rig->ids);
    token_list_fini(&rig->more);
    buf_fini(&rig->text);
    encoder_free(rig->encoder);
    tokenizer_free(rig->tokenizer);
    assert_int_equal(heap.live, 0);
}

static const char *const files[] = {TOKENIZER_IGNORE, TOKENIZER_MERGE};

static bool same_ids(const struct token_list *a, const struct token_list *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0);
}

static void expect_text(struct rig *rig, const char *want, size_t bytes)
{
    struct err err = {0};
    buf_clear(&rig->text);
    assert_true(detokenizer_decode(rig->tokenizer, rig->ids.ids, rig->ids.n, false, &rig->text, &err));
    assert_int_equal(rig->text.bytes, bytes);
    if (bytes) assert_memory_equal(rig->text.data, want, bytes);
}

static void any_text_comes_back(void **state)
{
    (void)state;
    static const enum encode_mode modes[] = {ENCODE_NONE, ENCODE_NON_SPECIAL, ENCODE_ALL};
    struct random random = {SEED};
    print_message("seed %d\n", SEED);
    for (size_t f = 0; f < 2; f++) {
        struct rig rig;
        char text[700];
        rig_init(&rig, files[f]);
        for (int round = 0; round < 6000; round++) {
            size_t bytes = random_text(&random, text, sizeof text);
            encode_text(rig.encoder, text, bytes, modes[round % 3], &rig.ids);
            expect_text(&rig, text, bytes);
        }
        rig_fini(&rig);
    }
}

static void every_code_point_comes_back(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, TOKENIZER_MERGE);
    for (uint32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 7) {
        char text[8] = " ";
        if (code >= 0xD800 && code <= 0xDFFF) continue;
        size_t bytes = 1 + utf8_put(text + 1, code);
        encode_text(rig.encoder, text, bytes, ENCODE_ALL, &rig.ids);
        expect_text(&rig, text, bytes);
    }
    rig_fini(&rig);
}

/* What a text gives does not depend on what was encoded before it, and a cut where an added token stands changes
 * nothing. */
static void joined_runs_are_the_whole(void **state)
{
    (void)state;
    struct random random = {SEED + 1};
    struct err err = {0};
    for (size_t f = 0; f < 2; f++) {
        struct rig rig;
        char left[300], right[300], whole[700];
        uint32_t user;
        rig_init(&rig, files[f]);
        assert_true(tokenizer_id(rig.tokenizer, "<|user|>", &user));
        for (int round = 0; round < 3000; round++) {
            size_t n_left = random_text(&random, left, sizeof left),
                   n_right = random_text(&random, right, sizeof right);
            memcpy(whole, left, n_left);
            memcpy(whole + n_left, "<|user|>", 8);
            memcpy(whole + n_left + 8, right, n_right);
            encode_text(rig.encoder, whole, n_left + 8 + n_right, ENCODE_ALL, &rig.ids);
            rig.more.n = 0;
            assert_true(encoder_encode(rig.encoder, left, n_left, ENCODE_ALL, &rig.more, &err));
            assert_true(token_list_add(&rig.more, &user, 1, &err));
            assert_true(encoder_encode(rig.encoder, right, n_right, ENCODE_ALL, &rig.more, &err));
            assert_true(same_ids(&rig.ids, &rig.more));
        }
        rig_fini(&rig);
    }
}

static bool is_added(const struct tokenizer *tokenizer, uint32_t id)
{
    enum token_kind kind = tokenizer_token(tokenizer, id).kind;
    return kind == TOKEN_ADDED || kind == TOKEN_SPECIAL;
}

/* A message may quote any marker: it must not become one. */
static void modes_cut_what_they_say(void **state)
{
    (void)state;
    static const char text[] = "a<|user|><think>b</think> [gMASK]<sop>/nothink<|endoftext|><tool_call>";
    for (size_t f = 0; f < 2; f++) {
        struct rig rig;
        size_t n_special = 0, n_added = 0;
        rig_init(&rig, files[f]);
        encode_text(rig.encoder, text, strlen(text), ENCODE_NONE, &rig.ids);
        for (size_t i = 0; i < rig.ids.n; i++) assert_false(is_added(rig.tokenizer, rig.ids.ids[i]));
        expect_text(&rig, text, strlen(text));

        encode_text(rig.encoder, text, strlen(text), ENCODE_NON_SPECIAL, &rig.ids);
        for (size_t i = 0; i < rig.ids.n; i++) {
            assert_int_not_equal(tokenizer_token(rig.tokenizer, rig.ids.ids[i]).kind, TOKEN_SPECIAL);
            n_added += is_added(rig.tokenizer, rig.ids.ids[i]);
        }
        assert_int_equal(n_added, 4);

        encode_text(rig.encoder, text, strlen(text), ENCODE_ALL, &rig.ids);
        for (size_t i = 0; i < rig.ids.n; i++)
            n_special += tokenizer_token(rig.tokenizer, rig.ids.ids[i]).kind == TOKEN_SPECIAL;
        assert_int_equal(n_special, 4);
        rig_fini(&rig);
    }
}

/* The longest of several contents that begin at one place, and the first place. */
static void added_tokens_match_leftmost_and_longest(void **state)
{
    (void)state;
    struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE);
    struct json_object *added = json_object_object_get(root, "added_tokens");
    static const char *const contents[] = {"qz", "qzxj", "zx", "qzxjQZX", "\u4f60\u597d", "\u4f60"};
    static const struct {
        const char *text, *pieces;
    } cases[] = {
        {"qzx", "qz x"},
        {"qzxjQ", "qzxj Q"},
        {"qzxjQZ", "qzxj Q Z"},
        {"xzxj", "x zx j"},
        {"qzqzxjQZX", "qz qzxjQZX"},
        {"qqz", "q qz"},
        {"\u4f60x", "\u4f60 x"},
        {"\u4f60\u597dx", "\u4f60\u597d x"},
        {"zxzx", "zx zx"},
    };
    struct err err = {0};
    for (size_t i = 0; i < 6; i++)
        json_object_object_add(json_object_array_get_idx(added, i), "content", json_object_new_string(contents[i]));
    struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
    assert_non_null(tokenizer);
    struct encoder *encoder = encoder_new(&heap, tokenizer, NULL, &err);
    assert_non_null(encoder);
    struct token_list ids;
    token_list_init(&ids, &heap, 100);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *piece = cases[c].pieces;
        encode_text(encoder, cases[c].text, strlen(cases[c].text), ENCODE_ALL, &ids);
        for (size_t i = 0; i < ids.n; i++) {
            struct token token = tokenizer_token(tokenizer, ids.ids[i]);
            size_t n = strcspn(piece, " ");
            assert_int_equal(token.n_bytes, n);
            assert_memory_equal(token.bytes, piece, n);
            piece += n + (piece[n] == ' ');
        }
        assert_int_equal(*piece, 0);
    }
    token_list_fini(&ids);
    encoder_free(encoder);
    tokenizer_free(tokenizer);
    json_object_put(root);
    assert_int_equal(heap.live, 0);
}

/* The definition: look at all pairs, merge the first of the lowest rank, begin again. */
static uint32_t merge_by_definition(const struct tokenizer *tokenizer, const char *piece, uint32_t n, uint32_t *ids)
{
    for (uint32_t i = 0; i < n; i++) ids[i] = tokenizer->byte_ids[(unsigned char)piece[i]];
    for (;;) {
        const struct merge_slot *best = NULL;
        uint32_t at = 0;
        for (uint32_t i = 0; i + 1 < n; i++) {
            const struct merge_slot *merge = merge_table_find(&tokenizer->merges, ids[i], ids[i + 1]);
            if (!merge || (best && merge->rank >= best->rank)) continue;
            best = merge;
            at = i;
        }
        if (!best) return n;
        ids[at] = best->product;
        for (uint32_t i = at + 1; i + 1 < n; i++) ids[i] = ids[i + 1];
        n--;
    }
}

static uint32_t random_piece(struct random *random, const struct tokenizer *tokenizer, char *piece, uint32_t room)
{
    uint32_t n = 0, want = 1 + random_below(random, room);
    while (n < want) { /* of tokens, so that much merges, with bytes between them */
        struct token token = tokenizer_token(tokenizer, random_below(random, tokenizer_id_end(tokenizer)));
        if (random_below(random, 3) == 0) piece[n++] = (char)random_below(random, 256);
        for (uint32_t i = 0; i < token.n_bytes && n < want; i++) piece[n++] = token.bytes[i];
    }
    return want;
}

static void all_ways_of_merging_agree(void **state)
{
    (void)state;
    struct random random = {SEED + 2};
    struct err err = {0};
    for (size_t f = 0; f < 2; f++) {
        struct tokenizer *tokenizer = tokenizer_fixture(&heap, files[f]);
        struct bpe_scratch scratch = {.alloc = &heap};
        uint32_t want[400], small[BPE_SMALL_BYTES_MAX];
        char piece[400 + 1];
        size_t n_merged = 0;
        for (int round = 0; round < 6000; round++) {
            uint32_t room = round % 4 ? BPE_SMALL_BYTES_MAX : 400;
            uint32_t n = random_piece(&random, tokenizer, piece, room), got = 0;
            uint32_t n_want = merge_by_definition(tokenizer, piece, n, want);
            n_merged += n - n_want;
            assert_true(bpe_large(tokenizer, &scratch, piece, n, &err));
            for (uint32_t at = 0; at != NO_ID; at = scratch.symbols[at].next, got++) {
                assert_true(got < n_want);
                assert_int_equal(scratch.symbols[at].id, want[got]);
            }
            assert_int_equal(got, n_want);
            if (n > BPE_SMALL_BYTES_MAX) continue;
            assert_int_equal(bpe_small(tokenizer, piece, n, small), n_want);
            assert_memory_equal(small, want, n_want * sizeof *want);
        }
        print_message("%s: %zu merges\n", files[f], n_merged);
        assert_true(n_merged > 100000);
        bpe_scratch_fini(&scratch);
        tokenizer_free(tokenizer);
    }
    assert_int_equal(heap.live, 0);
}

/* A file where this fails has a wrong split pattern, wrong classes or a wrong ignore_merges. */
static void every_base_token_encodes_to_itself(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, TOKENIZER_IGNORE);
    uint32_t n_tried = 0;
    for (uint32_t id = 0; id < tokenizer_id_end(rig.tokenizer); id++) {
        struct token token = tokenizer_token(rig.tokenizer, id);
        size_t bad;
        if (token.kind != TOKEN_BASE || !utf8_check(token.bytes, token.n_bytes, &bad)) continue;
        encode_text(rig.encoder, token.bytes, token.n_bytes, ENCODE_ALL, &rig.ids);
        if (rig.ids.n != 1) print_error("id %u gives %zu ids\n", id, rig.ids.n);
        assert_int_equal(rig.ids.n, 1);
        assert_int_equal(rig.ids.ids[0], id);
        n_tried++;
    }
    print_message("%u base tokens\n", n_tried);
    assert_true(n_tried > 3800);
    rig_fini(&rig);
}

static void bad_text_and_ceilings_change_nothing(void **state)
{
    (void)state;
    struct rig rig;
    struct err err = {0};
    rig_init(&rig, TOKENIZER_MERGE);
    encode_text(rig.encoder, "before", 6, ENCODE_ALL, &rig.ids);
    size_t n = rig.ids.n;
    assert_false(encoder_encode(rig.encoder, "abc \xff", 5, ENCODE_ALL, &rig.ids, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_string_equal(err.text, "the text is not valid UTF-8 at byte 4 (0xff)");
    assert_false(encoder_encode(rig.encoder, "\xe4\xbd", 2, ENCODE_ALL, &rig.ids, &err));
    assert_false(encoder_encode(rig.encoder, "\xed\xa0\x80", 3, ENCODE_ALL, &rig.ids, &err));
    assert_int_equal(rig.ids.n, n);
    assert_true(encoder_encode(rig.encoder, "", 0, ENCODE_ALL, &rig.ids, &err));
    assert_true(encoder_encode(rig.encoder, "\0\0", 2, ENCODE_ALL, &rig.ids, &err)); /* NUL is a code point */
    assert_int_equal(rig.ids.n, n + 2);

    struct token_list five;
    token_list_init(&five, &heap, 5);
    assert_true(encoder_encode(rig.encoder, "1 2", 3, ENCODE_ALL, &five, &err));
    assert_int_equal(five.n, 3);
    assert_false(encoder_encode(rig.encoder, "1 2", 3, ENCODE_ALL, &five, &err));
    assert_int_equal(err.kind, ERR_BUSY);
    assert_int_equal(five.n, 3);
    assert_true(encoder_encode(rig.encoder, "12", 2, ENCODE_ALL, &five, &err));
    token_list_fini(&five);
    rig_fini(&rig);
}

static void a_set_flag_stops_encoding(void **state)
{
    (void)state;
    struct err err = {0};
    atomic_bool stop = false;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct encoder *encoder = encoder_new(&heap, tokenizer, &stop, &err);
    assert_non_null(encoder);
    struct token_list ids;
    token_list_init(&ids, &heap, 1000);
    assert_true(encoder_encode(encoder, "some text", 9, ENCODE_ALL, &ids, &err));
    size_t n = ids.n;
    atomic_store(&stop, true);
    assert_false(encoder_encode(encoder, "some text", 9, ENCODE_ALL, &ids, &err));
    assert_int_equal(err.kind, ERR_CANCELLED);
    assert_int_equal(ids.n, n);
    token_list_fini(&ids);
    encoder_free(encoder);
    tokenizer_free(tokenizer);
}

static void every_failed_allocation_is_an_error_without_a_leak(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    char word[300];
    memset(word, 'z', sizeof word);
    uint64_t k = 1;
    for (;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct token_list ids;
        token_list_init(&ids, &alloc, 1000);
        struct encoder *encoder = encoder_new(&alloc, tokenizer, NULL, &err);
        bool ok = encoder && encoder_encode(encoder, word, sizeof word, ENCODE_ALL, &ids, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (!ok) assert_int_equal(ids.n, 0);
        encoder_free(encoder);
        token_list_fini(&ids);
        assert_int_equal(alloc.live, 0);
        if (ok && alloc.calls < k) break;
    }
    print_message("%llu allocations failed one by one\n", (unsigned long long)k - 1);
    assert_true(k > 5);
    tokenizer_free(tokenizer);
    assert_int_equal(heap.live, 0);
}

/* Processor time, so that a busy machine does not matter much. */
static double seconds_to_encode(struct rig *rig, const char *text, size_t bytes)
{
    clock_t start = clock();
    encode_text(rig->encoder, text, bytes, ENCODE_ALL, &rig->ids);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* Sixteen times the text may take some more than sixteen times the time, but nothing like its square, 256 times. */
static void expect_near_linear(struct rig *rig, const char *what, const char *unit, size_t bytes)
{
    char *text = alloc_get(&heap, bytes, NULL);
    assert_non_null(text);
    size_t n_unit = strlen(unit);
    for (size_t i = 0; i < bytes; i++) text[i] = unit[i % n_unit];
    double small = seconds_to_encode(rig, text, bytes / 16 / n_unit * n_unit);
    double large = seconds_to_encode(rig, text, bytes / n_unit * n_unit);
    print_message("%s: %zu bytes in %.0f ms, sixteenth in %.1f ms, %zu ids\n", what, bytes, large * 1e3, small * 1e3,
                  rig->ids.n);
    assert_true(large < 100 * (small + 1e-3));
    expect_text(rig, text, bytes / n_unit * n_unit);
    alloc_put(&heap, text);
}

static void long_texts_and_long_words_take_linear_time(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, TOKENIZER_MERGE);
    expect_near_linear(&rig, "one letter", "a", 1 << 20);
    expect_near_linear(&rig, "one word", "thequickbrownfoxjumpsoverthelazydog", 1 << 20);
    expect_near_linear(&rig, "spaces", " ", 1 << 20);
    expect_near_linear(&rig, "lines", " \n", 1 << 20);
    expect_near_linear(&rig, "parts of markers", "<|begin_of_<|", 1 << 20);
    expect_near_linear(&rig, "letters of three bytes", "\u4f60\u597d", 1 << 20);
    expect_near_linear(&rig, "prose", "The quick brown fox doesn't jump over 1234567 dogs.\n\n", 10 << 20);
    rig_fini(&rig);
}

/* Processor time: what one core can do, whoever else is busy on the machine. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int bench(const char *path, const char *text_path)
{
    struct err err = {0};
    size_t bytes;
    double start = now();
    struct tokenizer *tokenizer = tokenizer_new(&heap, file_system_real(), path, &err);
    double loaded = now();
    char *text = tokenizer ? file_read_all(&heap, file_system_real(), text_path, 1 << 30, &bytes, &err) : NULL;
    struct encoder *encoder = text ? encoder_new(&heap, tokenizer, NULL, &err) : NULL;
    if (!encoder) {
        print_error("%s\n", err.text);
        return 1;
    }
    print_message("load_cpu_ms=%.0f live_bytes=%llu\n", (loaded - start) * 1e3,
                  (unsigned long long)heap.live_bytes - bytes);
    struct token_list ids;
    token_list_init(&ids, &heap, SIZE_MAX / 8);
    double times[7];
    for (int i = 0; i < 7; i++) {
        ids.n = 0;
        start = now();
        if (!encoder_encode(encoder, text, bytes, ENCODE_ALL, &ids, &err)) print_error("%s\n", err.text);
        times[i] = now() - start;
        print_message("encode bytes=%zu ids=%zu cpu_ms=%.1f mb_per_s=%.1f\n", bytes, ids.n, times[i] * 1e3,
                      (double)bytes / times[i] / 1e6);
    }
    struct buf out;
    buf_init(&out, &heap, SIZE_MAX / 4);
    start = now();
    if (!detokenizer_decode(tokenizer, ids.ids, ids.n, false, &out, &err)) print_error("%s\n", err.text);
    print_message("decode mb_per_s=%.1f\n", (double)bytes / (now() - start) / 1e6);
    int failed = out.bytes != bytes || memcmp(out.data, text, bytes) != 0;
    buf_fini(&out);
    token_list_fini(&ids);
    encoder_free(encoder);
    alloc_put(&heap, text);
    tokenizer_free(tokenizer);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--bench") == 0) return bench(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_text_comes_back),
        cmocka_unit_test(every_code_point_comes_back),
        cmocka_unit_test(joined_runs_are_the_whole),
        cmocka_unit_test(modes_cut_what_they_say),
        cmocka_unit_test(added_tokens_match_leftmost_and_longest),
        cmocka_unit_test(all_ways_of_merging_agree),
        cmocka_unit_test(every_base_token_encodes_to_itself),
        cmocka_unit_test(bad_text_and_ceilings_change_nothing),
        cmocka_unit_test(a_set_flag_stops_encoding),
        cmocka_unit_test(every_failed_allocation_is_an_error_without_a_leak),
        cmocka_unit_test(long_texts_and_long_words_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
