#include "gram/json_terms.h"

#include "base/assert.h"
#include "gram/code_set.h"

uint32_t json_blanks_term(struct regular *r, enum json_blanks blanks)
{
    if (blanks == JSON_BLANKS_FIXED) return REGULAR_EMPTY;
    struct byte_set indent = {{0}};
    byte_set_add(&indent, ' ', ' ');
    byte_set_add(&indent, '\t', '\t');
    uint32_t lines = regular_seq(r, regular_repeat(r, regular_text(r, "\n"), 1, 2),
                                 regular_repeat(r, regular_set(r, &indent), 0, 20));
    return regular_optional(r, regular_or(r, regular_text(r, " "), lines));
}

uint32_t json_mark_term(struct regular *r, enum json_blanks blanks, char mark)
{
    bool parts = mark == ',' || mark == ':';
    if (blanks == JSON_BLANKS_FIXED) return regular_bytes(r, (char[]){mark, ' '}, parts ? 2 : 1);
    uint32_t space = json_blanks_term(r, blanks), term = regular_bytes(r, &mark, 1);
    return regular_seq(r, space, parts ? regular_seq(r, term, space) : term);
}

static uint32_t hex_digit(struct regular *r, const char *ranges)
{
    struct byte_set set = {{0}};
    for (; *ranges; ranges += 2) byte_set_add(&set, (unsigned char)ranges[0], (unsigned char)ranges[1]);
    return regular_set(r, &set);
}

/* A high surrogate must be followed by a low one; a lone low one is nothing. */
static uint32_t unicode_escape(struct regular *r)
{
    uint32_t any = hex_digit(r, "09afAF"), d = hex_digit(r, "ddDD"), u = regular_text(r, "\\u");
    uint32_t two = regular_repeat(r, any, 2, 2), three = regular_repeat(r, any, 3, 3);
    uint32_t plain = regular_or(r, regular_seq(r, hex_digit(r, "09acACefEF"), three),
                                regular_seq_of(r, (uint32_t[]){d, hex_digit(r, "07"), two}, 3));
    uint32_t high = regular_seq_of(r, (uint32_t[]){d, hex_digit(r, "89abAB"), two}, 3);
    uint32_t low = regular_seq_of(r, (uint32_t[]){d, hex_digit(r, "cfCF"), two}, 3);
    return regular_seq(r, u, regular_or(r, plain, regular_seq_of(r, (uint32_t[]){high, u, low}, 3)));
}

uint32_t json_char_term(struct regular *r)
{
    struct byte_set shorts = {{0}};
    for (const char *c = "\"\\/bfnrt"; *c; c++) byte_set_add(&shorts, (unsigned char)*c, (unsigned char)*c);
    uint32_t raw = regular_any_of(r,
                                  (uint32_t[]){code_range_term(r, 0x20, '"' - 1, SPELL_RAW),
                                               code_range_term(r, '"' + 1, '\\' - 1, SPELL_RAW),
                                               code_range_term(r, '\\' + 1, 0x10FFFF, SPELL_RAW)},
                                  3);
    uint32_t escape = regular_seq(r, regular_text(r, "\\"), regular_set(r, &shorts));
    return regular_any_of(r, (uint32_t[]){raw, escape, unicode_escape(r)}, 3);
}

uint32_t json_string_term(struct regular *r)
{
    uint32_t quote = regular_text(r, "\"");
    return regular_seq_of(r, (uint32_t[]){quote, regular_many(r, json_char_term(r)), quote}, 3);
}

uint32_t json_key_term(struct regular *r)
{
    uint32_t quote = regular_text(r, "\"");
    uint32_t unit = regular_and(r, json_char_term(r), regular_not(r, regular_text(r, "\\u0000")));
    return regular_seq_of(r, (uint32_t[]){quote, regular_many(r, unit), quote}, 3);
}

uint32_t json_integer_term(struct regular *r)
{
    uint32_t digit = regular_range(r, '0', '9');
    uint32_t whole = regular_or(r, regular_text(r, "0"),
                                regular_seq(r, regular_range(r, '1', '9'), regular_repeat(r, digit, 0, 15)));
    return regular_seq(r, regular_optional(r, regular_text(r, "-")), whole);
}

uint32_t json_number_term(struct regular *r)
{
    struct byte_set e = {{0}};
    byte_set_add(&e, 'e', 'e');
    byte_set_add(&e, 'E', 'E');
    uint32_t digit = regular_range(r, '0', '9');
    uint32_t two = regular_repeat(r, digit, 2, 2), up_to_two = regular_repeat(r, digit, 1, 2);
    uint32_t fraction = regular_seq(r, regular_text(r, "."), regular_repeat(r, digit, 1, 16));
    uint32_t large = regular_any_of(
        r,
        (uint32_t[]){up_to_two, regular_seq(r, regular_range(r, '0', '1'), two),
                     regular_seq_of(r, (uint32_t[]){regular_text(r, "2"), regular_range(r, '0', '8'), digit}, 3)},
        3);
    uint32_t grows = regular_seq(r, regular_optional(r, regular_text(r, "+")), large);
    uint32_t shrinks = regular_seq(r, regular_text(r, "-"), regular_repeat(r, digit, 1, 3));
    uint32_t exponent = regular_seq(r, regular_set(r, &e), regular_or(r, grows, shrinks));
    return regular_seq_of(
        r, (uint32_t[]){json_integer_term(r), regular_optional(r, fraction), regular_optional(r, exponent)}, 3);
}
