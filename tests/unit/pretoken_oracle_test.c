/* Character classes and scanner against libraries that were written by others: utf8proc and PCRE2.
 *
 * Both know older versions of Unicode than the table. Where they differ the code points are listed here, so that a new
 * version of either, or a changed table, shows. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "fmt/pretoken.h"

#include "base/utf8.h"
#include "fmt/unicode.h"
#include "support/check.h"
#include "support/random_text.h"
#include <pcre2.h>
#include <utf8proc.h>

#define SEED 4711

typedef enum unicode_class class_fn(uint32_t code);

static enum unicode_class utf8proc_class(uint32_t code)
{
    static const uint32_t spaces[] = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (code == spaces[i]) return UNICODE_SPACE; /* it has no White_Space */
    if ((code >= 0x09 && code <= 0x0D) || (code >= 0x2000 && code <= 0x200A)) return UNICODE_SPACE;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return UNICODE_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return UNICODE_NUMBER;
    default: return UNICODE_OTHER;
    }
}

static pcre2_code *compile(const char *pattern)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    if (!code) print_error("PCRE2 error %d at %zu of %s\n", error, at, pattern);
    assert_non_null(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* only faster: not every machine can */
    return code;
}

static pcre2_code *class_codes[4];
static pcre2_match_data *matches;

static bool is_in(pcre2_code *code, const char *text, size_t bytes)
{
    return pcre2_match(code, (PCRE2_SPTR)text, bytes, 0, PCRE2_ANCHORED, matches, NULL) > 0;
}

static enum unicode_class pcre2_class(uint32_t code)
{
    char text[4];
    size_t bytes = utf8_put(text, code);
    for (int class = 1; class < 4; class ++)
        if (is_in(class_codes[class], text, bytes)) return (enum unicode_class) class;
    return UNICODE_OTHER;
}

struct known {
    uint32_t first, last;
};

static bool is_known(const struct known *known, size_t n, uint32_t code)
{
    for (size_t i = 0; i < n; i++)
        if (code >= known[i].first && code <= known[i].last) return true;
    return false;
}

/* What was assigned after Unicode 14 (PCRE2 10.42) or 15 (utf8proc 2.8), and U+180E, which has been no space since
 * Unicode 6.3 but still is one to PCRE2. */
static const struct known differences[] = {
    {0x180E, 0x180E},   {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3},
    {0x10D40, 0x10D65}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x1123F, 0x11240}, {0x11380, 0x11389},
    {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1},
    {0x113D3, 0x113D3}, {0x116D0, 0x116E3}, {0x11BC0, 0x11BE0}, {0x11BF0, 0x11BF9}, {0x11F02, 0x11F02},
    {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x11F50, 0x11F59}, {0x1342F, 0x1342F}, {0x13441, 0x13446},
    {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16130, 0x16139}, {0x16D40, 0x16D6C}, {0x16D70, 0x16D79},
    {0x18CFF, 0x18CFF}, {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3},
    {0x1DF25, 0x1DF2A}, {0x1E030, 0x1E06D}, {0x1E4D0, 0x1E4EB}, {0x1E4F0, 0x1E4F9}, {0x1E5D0, 0x1E5ED},
    {0x1E5F0, 0x1E5FA}, {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF},
};
#define N_DIFFERENCES (sizeof differences / sizeof *differences)

/* Newer libraries know more of what the list holds; nothing else may differ. */
static void compare_classes(const char *library, class_fn *class_of, size_t differences_max)
{
    size_t n = 0;
    for (uint32_t code = 0; code < UNICODE_END; code++) {
        if (code >= 0xD800 && code <= 0xDFFF) continue;
        if (class_of(code) == unicode_class(code)) continue;
        if (!is_known(differences, N_DIFFERENCES, code)) print_error("%s: U+%04X differs\n", library, code);
        assert_true(is_known(differences, N_DIFFERENCES, code));
        n++;
    }
    print_message("%s differs in %zu code points, all of them listed\n", library, n);
    assert_true(n <= differences_max);
}

static void classes_differ_only_where_listed(void **state)
{
    (void)state;
    compare_classes("utf8proc", utf8proc_class, 5004);
    compare_classes("PCRE2", pcre2_class, 9393);
}

static bool has_known(const char *text, size_t bytes)
{
    size_t used;
    uint32_t code;
    for (size_t at = 0; at < bytes; at += used) {
        utf8_next(text + at, bytes - at, &code, &used);
        if (is_known(differences, N_DIFFERENCES, code)) return true;
    }
    return false;
}

static void the_scanner_cuts_as_the_regex_does(void **state)
{
    (void)state;
    static const enum pretoken_family families[] = {PRETOKEN_GLM, PRETOKEN_QWEN};
    struct random random = {SEED};
    size_t n_pieces = 0, n_texts = 0;
    print_message("seed %d\n", SEED);
    for (size_t f = 0; f < 2; f++) {
        pcre2_code *code = compile(pretoken_pattern(families[f]));
        for (int round = 0; round < 20000; round++) {
            char text[400];
            size_t bytes = random_text(&random, text, sizeof text);
            if (has_known(text, bytes)) continue;
            n_texts++;
            for (size_t at = 0; at < bytes; n_pieces++) {
                assert_true(pcre2_match(code, (PCRE2_SPTR)text, bytes, at, PCRE2_ANCHORED, matches, NULL) > 0);
                size_t want = pcre2_get_ovector_pointer(matches)[1] - at;
                size_t got = pretoken_next(families[f], text + at, bytes - at);
                if (got != want) print_error("%.*s at %zu: %zu, not %zu\n", (int)bytes, text, at, got, want);
                assert_int_equal(got, want);
                at += got;
            }
        }
        pcre2_code_free(code);
    }
    print_message("%zu pieces of %zu texts\n", n_pieces, n_texts);
    assert_true(n_texts > 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_differ_only_where_listed),
        cmocka_unit_test(the_scanner_cuts_as_the_regex_does),
    };
    static const char *const patterns[] = {"", "\\p{L}", "\\p{N}", "\\s"};
    for (int class = 1; class < 4; class ++) class_codes[class] = compile(patterns[class]);
    matches = pcre2_match_data_create(16, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int class = 1; class < 4; class ++) pcre2_code_free(class_codes[class]);
    pcre2_match_data_free(matches);
    return failed;
}
