/* The table of character classes against the list of ranges it was made from, read by another program. */
#include "fmt/unicode.h"

#include "support/check.h"
#include "support/lines.h"
#include <stdlib.h>

static unsigned char want[UNICODE_END];

/* Words of the file: a class name with the number of its code points, or a range. */
static void read_ranges(char *text, size_t counts[4])
{
    static const char *const names[] = {"", "letters", "numbers", "spaces"};
    unsigned class = 0;
    char *line_state, *word_state;
    for (char *line = strtok_r(text, "\n", &line_state); line; line = strtok_r(NULL, "\n", &line_state)) {
        if (line[0] == '#') continue;
        for (char *word = strtok_r(line, " ", &word_state); word; word = strtok_r(NULL, " ", &word_state)) {
            for (unsigned i = 1; i < 4; i++) {
                if (strcmp(word, names[i]) != 0) continue;
                class = i;
                counts[i] = strtoul(strtok_r(NULL, " ", &word_state), NULL, 10);
                word = NULL;
                break;
            }
            if (!word) break;
            char *end;
            unsigned long first = strtoul(word, &end, 16), last = *end == '-' ? strtoul(end + 1, &end, 16) : first;
            assert_int_equal(*end, 0);
            assert_true(class > 0 && first <= last && last < UNICODE_END);
            memset(want + first, (int)class, last - first + 1);
        }
    }
}

static void the_table_equals_the_ranges(void **state)
{
    (void)state;
    struct alloc heap = {0};
    size_t bytes, announced[4] = {0}, found[4] = {0};
    char *text = fixture_read(&heap, "scripts/unicode_ranges.txt", &bytes);
    read_ranges(text, announced);
    for (uint32_t code = 0; code < UNICODE_END; code++) {
        if (unicode_class(code) != want[code]) print_error("U+%04X\n", code);
        assert_int_equal(unicode_class(code), want[code]);
        found[want[code]]++;
    }
    assert_int_equal(found[UNICODE_LETTER], 141028);
    assert_int_equal(found[UNICODE_NUMBER], 1911);
    assert_int_equal(found[UNICODE_SPACE], 25);
    for (int class = 1; class < 4; class ++) assert_int_equal(found[class], announced[class]);
    alloc_put(&heap, text);
}

/* By hand: what is easy to get wrong. */
static void some_code_points_are_what_the_standard_says(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        enum unicode_class class;
    } some[] = {
        {'a', UNICODE_LETTER},     {'9', UNICODE_NUMBER},     {'_', UNICODE_OTHER},      {' ', UNICODE_SPACE},
        {0x0B, UNICODE_SPACE},     {0x1C, UNICODE_OTHER},     {0x85, UNICODE_SPACE},     {0xA0, UNICODE_SPACE},
        {0xAA, UNICODE_LETTER},    {0xB2, UNICODE_NUMBER},    {0xBD, UNICODE_NUMBER},    {0x120, UNICODE_LETTER},
        {0x301, UNICODE_OTHER},    {0x180E, UNICODE_OTHER},   {0x200A, UNICODE_SPACE},   {0x200B, UNICODE_OTHER},
        {0x2167, UNICODE_NUMBER},  {0x1C89, UNICODE_LETTER},  {0x2028, UNICODE_SPACE},   {0x3000, UNICODE_SPACE},
        {0x3007, UNICODE_NUMBER},  {0xFEFF, UNICODE_OTHER},   {0x10D40, UNICODE_NUMBER}, {0x1F600, UNICODE_OTHER},
        {0x2EBF0, UNICODE_LETTER}, {0x31350, UNICODE_LETTER}, {0x323B0, UNICODE_OTHER},  {0x10FFFF, UNICODE_OTHER},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        if (unicode_class(some[i].code) != some[i].class) print_error("U+%04X\n", some[i].code);
        assert_int_equal(unicode_class(some[i].code), some[i].class);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_equals_the_ranges),
        cmocka_unit_test(some_code_points_are_what_the_standard_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
