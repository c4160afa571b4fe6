/* Each alternative of the split pattern, by hand. */
#include "fmt/pretoken.h"

#include "support/check.h"

/* Pieces joined by '^', which no text here holds. */
static const char *const glm[] = {
    "Hello^ world",
    "hello^ ^ world",
    " ^ leading",
    "trailing^  ",
    "\n\n^ ^ x",
    "\r\n\r\n",
    "a^\n\n^b",
    "\t^\tx",
    " \n",
    "  \n  \n^ x",
    "  \n  \n^ ^ x",
    "123^456^7",
    "3^.^141^59",
    "don^'t^ I^'LL^ we^'Ve",
    "'S",
    "'s^'t^'re^'ve^'m^'ll^'d",
    "'s^S",
    "'LL^ama",
    "'hello",
    "'rx",
    "'l",
    "'",
    "''^s",
    "\u2019s",
    "it^'\u017f",
    "'\u017f^hello",
    "\thello",
    " ^ ^1",
    "123^45^ ^67",
    " !!!^b",
    "!!\n\n\n^b",
    "a^\r\n  \r\n^ ^ b",
    "x^\uff11\uff12\uff13",
    "(foo^)bar",
    "foo^_bar^-baz",
    "x^!?\r\n^Y",
    "\u4e2d\u6587^123",
    "e^\u0301",
    "\u00a0x",
    "a^\xc2\x85^ b",
    "a^\302\205b",
    "\u3000^\u3000x",
    "\u200b",
    "a^\u200bb",
    "\u00bd\u2153\u00b2",
    "\u0663\u0664\u0665^\u0666",
    "{\"^a^\":^ [^1^,^ ^2^]}",
    "   ^ def^ f^(self^):\n^       ^ return^ ^1^\n",
    "\u0120",
    "\u0120x",
    "\U0001f600\u200d\U0001f469",
    "\n^x",
    "\r^x",
    ".\r\n\r^ x",
    " ^\t^1",
    "\t^!",
    " ^\t^!",
    "\t^ !",
    "  \u3000",
    " ^\u3000^1",
};

static void expect_pieces(enum pretoken_family family, const char *pieces)
{
    char text[256];
    size_t n = 0, at = 0;
    for (const char *c = pieces; *c; c++)
        if (*c != '^') text[n++] = *c;
    for (const char *piece = pieces; *piece;) {
        size_t want = strcspn(piece, "^"), got = pretoken_next(family, text + at, n - at);
        if (got != want) print_error("%s: a piece of %zu bytes at %zu instead of %zu\n", pieces, got, at, want);
        assert_int_equal(got, want);
        at += got;
        piece += want + (piece[want] == '^');
    }
    assert_int_equal(at, n);
}

static void text_is_cut_as_the_pattern_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof glm / sizeof *glm; i++) expect_pieces(PRETOKEN_GLM, glm[i]);
    expect_pieces(PRETOKEN_QWEN, "1^2^3^4^ ^5^x");
    expect_pieces(PRETOKEN_QWEN, "\u0663^\u0664^'s");
}

static void only_whole_patterns_are_known(void **state)
{
    (void)state;
    static const enum pretoken_family families[] = {PRETOKEN_GLM, PRETOKEN_QWEN};
    static const char glm_pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                                      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    assert_string_equal(pretoken_pattern(PRETOKEN_GLM), glm_pattern);
    for (size_t i = 0; i < 2; i++) {
        const char *pattern = pretoken_pattern(families[i]);
        enum pretoken_family found;
        size_t n = strlen(pattern);
        assert_true(pretoken_family_find(pattern, n, &found));
        assert_int_equal(found, families[i]);
        assert_false(pretoken_family_find(pattern, n - 1, &found));
        char longer[300];
        snprintf(longer, sizeof longer, "%s ", pattern);
        assert_false(pretoken_family_find(longer, n + 1, &found));
        longer[3] ^= 1;
        assert_false(pretoken_family_find(longer, n, &found));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut_as_the_pattern_says),
        cmocka_unit_test(only_whole_patterns_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
