#include "base/utf8.h"
#include "support/check.h"

static void every_code_point_goes_there_and_back(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code == 0xD800) code = 0xE000;
        char text[4];
        uint32_t back;
        size_t used, length = utf8_put(text, code);
        assert_int_equal(utf8_next(text, length, &back, &used), UTF8_VALID);
        assert_int_equal(back, code);
        assert_int_equal(used, length);
        for (size_t cut = 1; cut < length; cut++) {
            assert_int_equal(utf8_next(text, cut, &back, &used), UTF8_CUT);
            assert_int_equal(used, cut);
        }
    }
}

/* Text, and what a reader sees: one U+FFFD ('?' here) for each maximal subpart. */
static const struct {
    const char *bytes, *seen;
} replaced[] = {
    {"abc", "abc"},
    {"\xC0\x80", "??"},                /* overlong NUL */
    {"\xE0\x80\x80", "???"},           /* overlong */
    {"\xED\xA0\x80", "???"},           /* a surrogate */
    {"\xF4\x90\x80\x80", "????"},      /* above U+10FFFF */
    {"\xF8\x88\x80\x80\x80", "?????"}, /* five bytes */
    {"\xE2\x82", "?"},                 /* cut: one subpart */
    {"\xF0\x9F\x98", "?"},
    {"\xF0\x9F\x98x", "?x"},
    {"\xE2\x82\xE2\x82\xAC", "?\xE2\x82\xAC"},
    {"\xF0\x80\x41", "??A"},
    {"\x80\xBF", "??"},
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"}, /* the example of the Unicode standard */
};

static void expect_seen(const struct buf *out, const char *seen)
{
    size_t at = 0;
    for (; *seen; seen++) {
        if (*seen == '?') {
            assert_true(at + 3 <= out->bytes);
            assert_memory_equal(out->data + at, "\xEF\xBF\xBD", 3);
            at += 3;
        } else {
            assert_true(at < out->bytes);
            assert_int_equal(out->data[at++], *seen);
        }
    }
    assert_int_equal(at, out->bytes);
}

static void bad_bytes_are_replaced_however_the_text_is_cut(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        size_t bytes = strlen(replaced[i].bytes);
        for (uint32_t cuts = 0; cuts < 1u << (bytes - 1); cuts++) {
            struct utf8_stream stream = {0};
            struct err err = {0};
            struct buf out;
            buf_init(&out, &alloc, 100);
            size_t start = 0;
            for (size_t at = 1; at <= bytes; at++) {
                if (at < bytes && !(cuts >> (at - 1) & 1)) continue;
                assert_true(utf8_stream_add(&stream, &out, replaced[i].bytes + start, at - start, &err));
                start = at;
            }
            assert_true(utf8_stream_end(&stream, &out, &err));
            expect_seen(&out, replaced[i].seen);
            buf_fini(&out);
        }
        size_t offset = 0;
        bool valid = strchr(replaced[i].seen, '?') == NULL;
        assert_int_equal(utf8_check(replaced[i].bytes, bytes, &offset), valid);
    }
    assert_int_equal(alloc.live, 0);
}

static void white_space_is_that_of_python(void **state)
{
    (void)state;
    /* ''.join(c for c in map(chr, range(0x110000)) if c.isspace()) has 29 members, from U+0009 to U+3000. */
    uint32_t n = 0, last = 0;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (!utf8_is_space(code)) continue;
        n++;
        last = code;
    }
    assert_int_equal(n, 29);
    assert_int_equal(last, 0x3000);
    assert_false(utf8_is_space(0x200B));
    assert_false(utf8_is_space(0xFEFF));
    assert_false(utf8_is_space(0x180E));

    const char *text = " \t\xC2\xA0\xE3\x80\x80 a \xE2\x80\x8B b\x1F\xC2\x85\n\xE2\x80\xA8";
    size_t bytes = strlen(text);
    text = utf8_strip(text, &bytes);
    assert_int_equal(bytes, strlen("a \xE2\x80\x8B b"));
    assert_memory_equal(text, "a \xE2\x80\x8B b", bytes);
    bytes = 3;
    utf8_strip(" \n ", &bytes);
    assert_int_equal(bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_goes_there_and_back),
        cmocka_unit_test(bad_bytes_are_replaced_however_the_text_is_cut),
        cmocka_unit_test(white_space_is_that_of_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
