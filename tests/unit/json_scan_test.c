#include "fmt/json_doc.h"
#include "fmt/json_scan.h"
#include "support/check.h"

#include <stdlib.h>

static bool scans(const char *text, size_t bytes, struct err *err)
{
    struct json_scan scan;
    char *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, text, bytes);
    bool ok =
        json_scan_init(&scan, "t", exact, bytes, 0, err) && json_scan_skip(&scan, err) && json_scan_end(&scan, err);
    free(exact);
    return ok;
}

/* Two readers written apart must draw the same line between JSON and what is none. Escaped code points are left out:
 * the scanner refuses U+0000 and lone surrogates, the other lets a string value have them. */
static void draws_the_same_line_as_the_tree_reader(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "{\"a\": [1, -0.5e+3, true, false, null], \"b\": {\"c\": \"x\\n\\\"y\"}}",
        "[[[]], {}, [{}, \"\"], 0, -0, 10, 1e5, 1E-2, 0.0]",
        "\"text \xc3\xa9 \xf0\x9f\x98\x80\"",
        "  [1,2 ,3]\t\r\n ",
        "-12.75",
    };
    const char alphabet[] = "{}[]\",:\\ 0123456789.-+eEtrufalsn\n\t\x01\xc3\x7f/";
    uint64_t seed = 7;
    unsigned accepted = 0, rounds = 100000;
    for (unsigned round = 0; round < rounds; round++) {
        char text[128];
        const char *from = seeds[round % 5];
        size_t bytes = strlen(from);
        memcpy(text, from, bytes);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned edits = (unsigned)(seed >> 60) % 4;
        for (unsigned e = 0; e < edits; e++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % bytes] = alphabet[(seed >> 20) % (sizeof alphabet - 1)];
        }
        bool has_code_point = false;
        for (size_t i = 1; i < bytes; i++) has_code_point |= text[i - 1] == '\\' && text[i] == 'u';
        if (has_code_point) continue;
        struct alloc alloc = {0};
        struct json_object *doc = NULL;
        struct err scan_err = {0}, tree_err = {0};
        bool scanned = scans(text, bytes, &scan_err);
        bool read = json_doc_parse(&doc, &alloc, &json_rules_file, "t", text, bytes, &tree_err);
        if (strstr(tree_err.text, "too large for a 64-bit float")) continue; /* a limit of doubles, not of JSON */
        if (scanned != read) fail_msg("'%.*s': scan %s, tree %s", (int)bytes, text, scan_err.text, tree_err.text);
        if (read) json_object_put(doc);
        accepted += scanned;
    }
    printf("seed 7: %u texts, %u of them JSON\n", rounds, accepted);
    assert_true(accepted > rounds / 10);
    assert_true(accepted < rounds * 9 / 10);
}

static void strings_are_given_with_their_escapes_resolved(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value; /* value NULL: refused */
    } strings[] = {
        {"\"\"", ""},
        {"\"abc\"", "abc"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\"\\uDBFF\\uDFFF\"", "\xf4\x8f\xbf\xbf"},
        {"\"\\ud83d\"", NULL},
        {"\"\\ud83d\\u0041\"", NULL},
        {"\"\\ude00\"", NULL},
        {"\"\\u0000\"", NULL},
        {"\"\\u00g0\"", NULL},
        {"\"\\x41\"", NULL},
        {"\"0123456789012345678901234567890\"", "0123456789012345678901234567890"},
        {"\"01234567890123456789012345678901\"", NULL}, /* one more than fits */
        {"\"0123456789012345678901234567\xf0\x9f\x98\x80\"", NULL},
    };
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        struct json_scan scan;
        struct err err = {0};
        char value[32];
        size_t bytes = 99;
        assert_true(json_scan_init(&scan, "t", strings[i].text, strlen(strings[i].text), 0, &err));
        bool ok = json_scan_string(&scan, value, sizeof value, &bytes, &err);
        if (ok != (strings[i].value != NULL)) fail_msg("%s: %s", strings[i].text, ok ? "accepted" : err.text);
        if (!ok) continue;
        assert_string_equal(value, strings[i].value);
        assert_int_equal(bytes, strlen(value));
        assert_true(json_scan_end(&scan, &err));
    }
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    char text[200];
    struct err err = {0};
    for (size_t depth = 1; depth <= 80; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        assert_int_equal(scans(text, 2 * depth, &err), depth <= JSON_DEPTH_MAX);
    }
    assert_non_null(strstr(err.text, "t: byte 64: nested too deep"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_the_same_line_as_the_tree_reader),
        cmocka_unit_test(strings_are_given_with_their_escapes_resolved),
        cmocka_unit_test(nesting_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
