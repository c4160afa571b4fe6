#include "gram/json_terms.h"

#include "gram/dfa.h"
#include "gram/regex_text.h"

/* Whether anything at all is in the language of a term. */
static bool is_nothing(struct regular *r, uint32_t term, bool *answer, struct err *err)
{
    struct dfa dfa;
    struct dfa_budget budget = {4096, 4096, 1 << 20};
    if (!regular_ok(r, err) || !dfa_init(&dfa, r, term, &budget, err)) return false;
    *answer = dfa.n_states == 1;
    dfa_fini(&dfa);
    return true;
}

static uint32_t many_of(struct regular *r, const char *bytes)
{
    struct byte_set set = {{0}};
    for (; *bytes; bytes++) byte_set_add(&set, (unsigned char)*bytes, (unsigned char)*bytes);
    return regular_many(r, regular_set(r, &set));
}

bool json_spacing_read(struct json_spacing *spacing, struct regular *r, const char *pattern, size_t bytes,
                       struct err *err)
{
    const struct regex_text regex = {"whitespace_pattern", pattern, bytes, SPELL_RAW, false};
    uint32_t term;
    bool is_white, is_empty;
    spacing->blanks = JSON_BLANKS_PATTERN;
    if (!regex_text_term(r, &regex, &term, err)) return false;
    if (!is_nothing(r, regular_and(r, term, regular_not(r, many_of(r, " \t\n\v\f\r"))), &is_white, err)) return false;
    if (!is_white)
        return err_set(err, ERR_USER, "invalid_schema: whitespace_pattern: it matches more than white space");
    spacing->pattern = regular_and(r, term, many_of(r, " \t\n\r"));
    if (!is_nothing(r, spacing->pattern, &is_empty, err)) return false;
    return !is_empty || err_set(err, ERR_USER, "invalid_schema: whitespace_pattern: it matches no white space of JSON");
}

uint32_t json_blanks_term(struct regular *r, struct json_spacing spacing)
{
    if (spacing.blanks == JSON_BLANKS_FIXED) return REGULAR_EMPTY;
    if (spacing.blanks == JSON_BLANKS_PATTERN) return spacing.pattern;
    struct byte_set indent = {{0}};
    byte_set_add(&indent, ' ', ' ');
    byte_set_add(&indent, '\t', '\t');
    uint32_t lines = regular_seq(r, regular_repeat(r, regular_text(r, "\n"), 1, 2),
                                 regular_repeat(r, regular_set(r, &indent), 0, 20));
    return regular_optional(r, regular_or(r, regular_text(r, " "), lines));
}

uint32_t json_mark_term(struct regular *r, struct json_spacing spacing, char mark)
{
    bool parts = mark == ',' || mark == ':';
    if (spacing.blanks == JSON_BLANKS_FIXED) return regular_bytes(r, (char[]){mark, ' '}, parts ? 2 : 1);
    uint32_t space = json_blanks_term(r, spacing), term = regular_bytes(r, &mark, 1);
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
