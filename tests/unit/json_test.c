#include "base/utf8.h"
#include "fmt/json_doc.h"
#include "fmt/json_text.h"
#include "support/check.h"
#include "support/lines.h"

#include <json-c/json_tokener.h>
#include <stdlib.h>

static struct alloc heap;

static bool parse(struct json_object **doc, const char *text, size_t bytes, struct err *err)
{
    return json_doc_parse(doc, &heap, &json_rules_request, "text", text, bytes, err);
}

static void expect_text(struct json_object *value, enum json_style style, const char *want, size_t bytes)
{
    struct buf out;
    struct err err = {0};
    buf_init(&out, &heap, 1 << 20);
    assert_true(json_text_add(&out, value, style, &err));
    if (out.bytes != bytes || memcmp(out.data, want, bytes) != 0) print_error("want %s\n got %s\n", want, out.data);
    assert_int_equal(out.bytes, bytes);
    assert_memory_equal(out.data, want, bytes);
    buf_fini(&out);
}

static void as_python_writes_it(void *context, struct json_object *line, size_t number)
{
    (void)context;
    (void)number;
    size_t in_bytes, out_bytes;
    const char *in = fixture_text(line, "in", &in_bytes), *out = fixture_text(line, "out", &out_bytes);
    struct json_object *doc = NULL, *again = NULL;
    struct err err = {0};
    assert_true(parse(&doc, in, in_bytes, &err));
    expect_text(doc, JSON_PYTHON, out, out_bytes);
    assert_true(parse(&again, out, out_bytes, &err));
    assert_true(json_object_equal(doc, again));
    json_object_put(doc);
    json_object_put(again);
}

static void texts_come_out_as_from_python(void **state)
{
    (void)state;
    size_t n = fixture_lines(&heap, "tests/fixtures/json/dumps.jsonl", as_python_writes_it, NULL);
    assert_true(n > 150);
    assert_int_equal(heap.live, 0);
}

static void doubles_come_out_as_from_python(void **state)
{
    (void)state;
    size_t bytes, n = 0;
    char *text = fixture_read(&heap, "tests/fixtures/json/doubles.txt", &bytes);
    for (char *line = text, *end; line < text + bytes; line = end + 1, n++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        uint64_t bits = strtoull(line, NULL, 16);
        double value;
        memcpy(&value, &bits, sizeof value);
        char got[JSON_NUMBER_BYTES];
        json_text_number(got, value);
        assert_string_equal(got, line + 17);
    }
    assert_true(n > 1500);
    alloc_put(&heap, text);
}

static void compact_has_no_blanks(void **state)
{
    (void)state;
    struct json_object *doc = fixture_json(&heap, "{\"a\": [1, 2.0, \"x, y: z\"], \"b\": {}, \"c\": null}");
    const char *want = "{\"a\":[1,2.0,\"x, y: z\"],\"b\":{},\"c\":null}";
    expect_text(doc, JSON_COMPACT, want, strlen(want));
    json_object_put(doc);
}

#define N(literal) literal, sizeof literal - 1

/* Names of files are any bytes, and a document that holds one is JSON all the same. */
static void what_is_not_utf8_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        const char *want;
    } cases[] = {
        {N(""), "\"\""},
        {N("\xff"), "\"\uFFFD\""},
        {N("n\xff\xfe\"x"), "\"n\uFFFD\uFFFD\\\"x\""},
        {N("\xe2\x82"), "\"\uFFFD\""},
        {N("\xe2\x82\xac\xe2\x82."), "\"\u20AC\uFFFD.\""},
        {N("\xed\xa0\x80"), "\"\uFFFD\uFFFD\uFFFD\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf out;
        struct err err = {0};
        buf_init(&out, &heap, 100);
        assert_true(json_text_add_string(&out, cases[i].text, cases[i].bytes, &err));
        assert_string_equal(out.data, cases[i].want);
        buf_fini(&out);
    }
}

static const struct {
    const char *text;
    size_t bytes, offset;
    const char *says;
} refused[] = {
    {N(""), 0, "ends where a value"},
    {N("  "), 2, "ends where a value"},
    {N("NaN"), 0, "not a JSON value"},
    {N("[Infinity]"), 1, "not a JSON value"},
    {N("-Infinity"), 1, "needs a digit"},
    {N("nul"), 0, "not a JSON value"},
    {N("True"), 0, "not a JSON value"},
    {N("1."), 2, "after its point"},
    {N(".5"), 0, "not a JSON value"},
    {N("01"), 0, "begin with 0"},
    {N("-01"), 1, "begin with 0"},
    {N("+1"), 0, "not a JSON value"},
    {N("1e"), 2, "in its exponent"},
    {N("1e+"), 3, "in its exponent"},
    {N("0x10"), 1, "follows the JSON value"},
    {N("1e999"), 0, "too large"},
    {N("[1] 2"), 4, "follows the JSON value"},
    {N("[1]\0"), 3, "follows the JSON value"},
    {N("\0"), 0, "not a JSON value"},
    {N("[1,]"), 3, "not a JSON value"},
    {N("[1 2]"), 3, "a comma or ]"},
    {N("[1"), 2, "a comma or ]"},
    {N("{\"a\":1,}"), 7, "quoted key"},
    {N("{a:1}"), 1, "quoted key"},
    {N("{\"a\" 1}"), 5, "colon"},
    {N("{\"a\":1 \"b\"}"), 7, "a comma or }"},
    {N("{\"a\\u0000b\":1}"), 1, "U+0000"},
    {N("'a'"), 0, "not a JSON value"},
    {N("\"abc"), 0, "no closing quote"},
    {N("\"a\\"), 3, "ends inside a string"},
    {N("\"a\nb\""), 2, "control character"},
    {N("\"a\0b\""), 2, "control character"},
    {N("\"\\x41\""), 1, "not an escape"},
    {N("\"\\u12\""), 5, "four hexadecimal"},
    {N("\"\\ud800\\u12\""), 11, "four hexadecimal"},
    {N("\"\xC3\""), 1, "UTF-8"},
    {N("\"a\xED\xA0\x80\""), 2, "UTF-8"},
    {N("\"\xC0\x80\""), 1, "UTF-8"},
    {N("\xEF\xBB\xBF{}"), 0, "not a JSON value"},
    {N("// x\n1"), 0, "not a JSON value"},
};

static void what_is_not_json_is_refused_at_its_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct json_object *doc = NULL;
        struct err err = {0};
        char where[64];
        snprintf(where, sizeof where, "text: byte %zu: ", refused[i].offset);
        bool ok = parse(&doc, refused[i].text, refused[i].bytes, &err);
        if (ok || !strstr(err.text, where) || !strstr(err.text, refused[i].says))
            print_error("%s: want %s%s, got %s\n", refused[i].text, where, refused[i].says, err.text);
        assert_false(ok);
        assert_null(doc);
        assert_int_equal(err.kind, ERR_USER);
        assert_ptr_equal(strstr(err.text, where), err.text);
        assert_non_null(strstr(err.text, refused[i].says));
    }
}

static void limits_hold(void **state)
{
    (void)state;
    char deep[2 * (JSON_DOC_DEPTH_MAX + 1)];
    struct json_object *doc = NULL;
    struct err err = {0};
    memset(deep, '[', sizeof deep / 2);
    memset(deep + sizeof deep / 2, ']', sizeof deep / 2);
    assert_true(parse(&doc, deep + 1, sizeof deep - 2, &err));
    json_object_put(doc);
    assert_false(parse(&doc, deep, sizeof deep, &err));
    assert_string_equal(err.text, "text: byte 128: more than 128 levels of nesting");

    struct json_rules rules = {.kind = ERR_DATA, .bytes_max = 10, .values_max = 4};
    assert_true(json_doc_parse(&doc, &heap, &rules, "file", "[1,2,3]   ", 10, &err));
    json_object_put(doc);
    assert_false(json_doc_parse(&doc, &heap, &rules, "file", "[1,2,3]    ", 11, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_string_equal(err.text, "file: 11 bytes of JSON, at most 10 are read");
    assert_false(json_doc_parse(&doc, &heap, &rules, "file", "[1,2,3,4]", 9, &err));
    assert_string_equal(err.text, "file: byte 7: more than 4 values");

    char digits[JSON_DIGITS_MAX + 1];
    memset(digits, '7', sizeof digits);
    assert_true(parse(&doc, digits, JSON_DIGITS_MAX, &err));
    expect_text(doc, JSON_COMPACT, digits, JSON_DIGITS_MAX);
    json_object_put(doc);
    assert_false(parse(&doc, digits, JSON_DIGITS_MAX + 1, &err));
}

static void surrogates_that_are_alone_are_replaced(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"\\ud83d\\ude00\"", "\xF0\x9F\x98\x80"},
        {"\"\\uD83D\"", "\xEF\xBF\xBD"},
        {"\"\\ud83dx\"", "\xEF\xBF\xBDx"},
        {"\"\\ude00\\ud83d\"", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\"\\ud83d\\u0041\"", "\xEF\xBF\xBD"
                               "A"},
        {"\"\\ud83d\\n\"", "\xEF\xBF\xBD\n"},
        {"\"\\ud83d\\ud83d\\ude00\"", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_object *doc = fixture_json(&heap, cases[i][0]);
        assert_string_equal(json_object_get_string(doc), cases[i][1]);
        json_object_put(doc);
    }
}

static void every_surrogate_pair_is_its_code_point(void **state)
{
    (void)state;
    for (uint32_t code = 0x10000; code <= 0x10FFFF; code += 0x3D) {
        char text[20], want[5] = {0};
        snprintf(text, sizeof text, "\"\\u%04x\\u%04X\"", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
        struct json_object *doc = fixture_json(&heap, text);
        utf8_put(want, code);
        assert_string_equal(json_object_get_string(doc), want);
        json_object_put(doc);
    }
}

/* What json-c takes and we do not must be refused for one of these reasons. */
static bool json_c_is_too_lenient(const char *refusal)
{
    static const char *const reasons[] = {"after its point",   "begin with 0", "too large",
                                          "control character", "U+0000",       "UTF-8"};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strstr(refusal, reasons[i])) return true;
    return false;
}

static void mutants_agree_with_json_c(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "{\"a\":[1,-20,3e5],\"b\":{\"c\":\"d\\n\\u00e4\\u20ac\"},\"e\":null}",
        "[true,false,null,[],{},\"\",0,1234567890,{\"x\":{\"y\":[{}]}}]",
        "\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80 \\\" \\\\ \\/\"",
    };
    static const char alphabet[] = "{}[]\",:0123456789-+eE\\unltrfasd \xC3\xA4\x80\xF0";
    uint64_t seed = 20260901, random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    uint32_t both = 0, neither = 0;
    for (int round = 0; round < 60000; round++) {
        char text[128] = {0};
        const char *from = seeds[round % 3];
        size_t bytes = strlen(from);
        memcpy(text, from, bytes);
        for (int change = 0; change < 1 + round % 3; change++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t at = (random >> 33) % bytes;
            char c = alphabet[(random >> 20) % (sizeof alphabet - 1)];
            if (random >> 63)
                text[at] = c;
            else
                memmove(text + at, text + at + 1, bytes-- - at);
        }
        struct err err = {0};
        struct json_object *ours = NULL, *theirs;
        bool ok = parse(&ours, text, bytes, &err);
        struct json_tokener *tokener = json_tokener_new_ex(JSON_DOC_DEPTH_MAX);
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        theirs = json_tokener_parse_ex(tokener, text, (int)bytes + 1);
        bool theirs_ok = json_tokener_get_error(tokener) == json_tokener_success;
        if (ok != theirs_ok && !(theirs_ok && json_c_is_too_lenient(err.text)))
            print_error("%s\nours %d (%s), json-c %d\n", text, ok, err.text, theirs_ok);
        assert_true(ok == theirs_ok || (theirs_ok && json_c_is_too_lenient(err.text)));
        if (ok && !json_object_equal(ours, theirs))
            print_error("%s is not %s\n", text, json_object_to_json_string(theirs));
        if (ok) assert_true(json_object_equal(ours, theirs));
        both += ok;
        neither += !ok;
        json_object_put(ours);
        json_object_put(theirs);
        json_tokener_free(tokener);
    }
    print_message("%u accepted by both, %u refused\n", both, neither);
    assert_true(both > 1000);
    assert_true(neither > 1000);
    assert_int_equal(heap.live, 0);
}

static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    const char *text =
        "{\"key\": [\"a text that is long enough to make the scratch grow beyond its first piece\", 1.5]}";
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct json_object *doc = NULL;
        struct buf out;
        buf_init(&out, &alloc, 1 << 20);
        bool ok = json_doc_parse(&doc, &alloc, &json_rules_request, "text", text, strlen(text), &err) &&
                  json_text_add(&out, doc, JSON_PYTHON, &err);
        json_object_put(doc);
        buf_fini(&out);
        assert_int_equal(alloc.live, 0);
        if (ok) {
            assert_true(k > 3);
            break;
        }
        assert_int_equal(err.kind, ERR_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_out_as_from_python),
        cmocka_unit_test(doubles_come_out_as_from_python),
        cmocka_unit_test(compact_has_no_blanks),
        cmocka_unit_test(what_is_not_utf8_is_replaced),
        cmocka_unit_test(what_is_not_json_is_refused_at_its_byte),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(surrogates_that_are_alone_are_replaced),
        cmocka_unit_test(every_surrogate_pair_is_its_code_point),
        cmocka_unit_test(mutants_agree_with_json_c),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
