/* Regular expressions against PCRE2, on random patterns and random strings; what is refused, and where. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "gram/regex_text.h"

#include "base/buf.h"
#include "fmt/json_text.h"
#include "gram/dfa.h"
#include "support/check.h"
#include "support/constrained.h"
#include <pcre2.h>
#include <time.h>

/* ---- random patterns ---- */

struct text {
    char bytes[4096];
    size_t n;
};

static void put(struct text *t, const char *s)
{
    size_t n = strlen(s);
    assert_true(t->n + n < sizeof t->bytes);
    memcpy(t->bytes + t->n, s, n + 1);
    t->n += n;
}

static void put_pattern(struct numbers *k, struct text *t, int depth);

static void put_atom(struct numbers *k, struct text *t, int depth)
{
    static const char *const atoms[] = {
        "a",       "b",      "ab",       "é",      "日",    "\\.",     "\\n",    "\"",
        "\\\\",    ".",      "\\d",      "\\D",    "\\w",   "\\W",     "\\s",    "\\S",
        "[ab]",    "[^ab]",  "[a-f]",    "[^\\d]", "[é-ü]", "[\\w日]", "[a\\-]", "\\x41",
        "\\u00e9", "[^\\n]", "[\\s\\d]", "[😀-😃]",  "1",     "0",       "[^\"]",  "[\\u4e00-\\u9fff]",
        "/",       "-",      "[-a]",     "[a-]",   "[.]",   "[^a-zé]",
    };
    if (depth > 0 && numbers_below(k, 3) == 0) {
        put(t, numbers_below(k, 3) ? "(" : numbers_below(k, 2) ? "(?:" : "(?<n>");
        put_pattern(k, t, depth - 1);
        put(t, ")");
        return;
    }
    put(t, atoms[numbers_below(k, sizeof atoms / sizeof *atoms)]);
}

static void put_pattern(struct numbers *k, struct text *t, int depth)
{
    static const char *const quantifiers[] = {"*", "+", "?", "*?", "+?", "{2}", "{0,2}", "{1,}", "{1,3}?", "{0}"};
    for (uint32_t i = 0, n = 1 + numbers_below(k, 3); i < n; i++) {
        if (i) put(t, "|");
        for (uint32_t j = 0, m = numbers_below(k, 4); j < m; j++) {
            put_atom(k, t, depth);
            if (numbers_below(k, 3) == 0) put(t, quantifiers[numbers_below(k, 10)]);
        }
    }
}

static void put_string(struct numbers *k, struct text *t)
{
    static const char *const pieces[] = {"a",  "b",  "ab", "é", "ü", "日", "😀", "1", "0", " ",
                                         "\n", "\"", "\\", ".", "-", "/",  "A", "f", "_", "\t"};
    for (uint32_t i = 0, n = numbers_below(k, 7); i < n; i++) put(t, pieces[numbers_below(k, 20)]);
}

static pcre2_code *oracle(const char *pattern)
{
    int code;
    PCRE2_SIZE at;
    uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_DUPNAMES;
    return pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
}

static bool oracle_matches(const pcre2_code *re, const struct text *t)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
    int found = pcre2_match(re, (PCRE2_SPTR)t->bytes, t->n, 0, 0, data, NULL);
    pcre2_match_data_free(data);
    return found >= 0;
}

static bool compile(struct alloc *alloc, struct dfa *dfa, const struct regex_text *regex, uint32_t states,
                    struct err *err)
{
    struct regular regular;
    struct dfa_budget budget = {states, states, 1 << 23};
    uint32_t term;
    bool ok = regular_init(&regular, alloc, err) && regex_text_term(&regular, regex, &term, err) &&
              dfa_init(dfa, &regular, term, &budget, err);
    regular_fini(&regular);
    return ok;
}

static uint32_t state_behind(const struct dfa *dfa, const char *text, size_t n)
{
    uint32_t state = dfa->n_states > 1 ? DFA_START : DFA_DEAD;
    for (size_t i = 0; i < n && state != DFA_DEAD; i++) state = dfa_step(dfa, state, (unsigned char)text[i]);
    return state;
}

static bool dfa_matches(const struct dfa *dfa, const char *text, size_t n)
{
    uint32_t state = state_behind(dfa, text, n);
    return state != DFA_DEAD && (dfa->flags[state] & DFA_ACCEPTS);
}

struct totals {
    uint32_t patterns, strings, matched, refused;
};

/* Each pattern as a whole match, as a search, and as a search over the inside of a JSON string. */
static void check_pattern(struct alloc *alloc, struct numbers *k, const struct text *pattern, struct totals *totals)
{
    static struct text whole, string;
    struct dfa dfas[3];
    struct err err = {0};
    whole.n = 0;
    put(&whole, "\\A(?:");
    put(&whole, pattern->bytes);
    put(&whole, ")\\z");
    pcre2_code *codes[2] = {oracle(whole.bytes), oracle(pattern->bytes)};
    if (!codes[0] || !codes[1]) fail_msg("the oracle refuses %s", pattern->bytes);
    for (int i = 0; i < 3; i++) {
        struct regex_text regex = {"regex", pattern->bytes, pattern->n, i == 2 ? SPELL_JSON : SPELL_RAW, i > 0};
        if (compile(alloc, &dfas[i], &regex, 4000, &err)) continue;
        /* A few of them need an automaton larger than the test allows. */
        if (!strstr(err.text, "automaton states")) fail_msg("%s: %s", pattern->bytes, err.text);
        totals->refused++;
        while (i-- > 0) dfa_fini(&dfas[i]);
        pcre2_code_free(codes[0]);
        pcre2_code_free(codes[1]);
        return;
    }
    totals->patterns++;
    for (int s = 0; s < 25; s++) {
        struct buf json;
        string.n = 0;
        put_string(k, &string);
        string.bytes[string.n] = 0;
        buf_init(&json, alloc, 4096);
        assert_true(json_text_add_escaped(&json, string.bytes, string.n, &err));
        bool want = oracle_matches(codes[0], &string), found = oracle_matches(codes[1], &string);
        if (dfa_matches(&dfas[0], string.bytes, string.n) != want)
            fail_msg("/%s/ on \"%s\": whole match should be %d", pattern->bytes, string.bytes, want);
        if (dfa_matches(&dfas[1], string.bytes, string.n) != found)
            fail_msg("/%s/ on \"%s\": search should be %d", pattern->bytes, string.bytes, found);
        if (dfa_matches(&dfas[2], json.data, json.bytes) != found)
            fail_msg("/%s/ on the JSON of \"%s\": search should be %d", pattern->bytes, string.bytes, found);
        totals->strings++;
        totals->matched += want;
        buf_fini(&json);
    }
    for (int i = 0; i < 3; i++) dfa_fini(&dfas[i]);
    pcre2_code_free(codes[0]);
    pcre2_code_free(codes[1]);
}

static void random_patterns_match_what_pcre2_matches(void **state)
{
    (void)state;
    static struct text pattern;
    struct alloc alloc = {0};
    struct numbers k = {.key = 83};
    struct totals totals = {0};
    for (int i = 0; i < 800; i++) {
        pattern.n = 0;
        pattern.bytes[0] = 0;
        if (numbers_below(&k, 4) == 0) {
            put(&pattern, "^");
            for (uint32_t j = 0; j < 2; j++) put_atom(&k, &pattern, 1);
            put(&pattern, numbers_below(&k, 2) ? "$" : "|b$");
        } else {
            put_pattern(&k, &pattern, 2);
        }
        check_pattern(&alloc, &k, &pattern, &totals);
    }
    print_message("key %llu: %u patterns (and %u too large), %u strings, %u of them matched\n",
                  (unsigned long long)k.key, totals.patterns, totals.refused, totals.strings, totals.matched);
    assert_true(totals.refused < 40);
    assert_true(totals.matched > 2000);
    assert_true(totals.strings - totals.matched > 2000);
    assert_int_equal(alloc.live, 0);
}

/* ---- refusals ---- */

static void what_is_not_supported_is_refused_where_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
    } cases[] = {
        {"ab(?=c)", "unsupported_schema: regex: byte 2: look-around"},
        {"(?!a)", "unsupported_schema: regex: byte 0: look-around"},
        {"(?<=a)b", "unsupported_schema: regex: byte 0: look-around"},
        {"(?<!a)b", "unsupported_schema: regex: byte 0: look-around"},
        {"(a)\\1", "unsupported_schema: regex: byte 3: back references"},
        {"\\bword", "unsupported_schema: regex: byte 0: word boundaries"},
        {"(?i)a", "unsupported_schema: regex: byte 0: flags"},
        {"a*+", "unsupported_schema: regex: byte 1: possessive"},
        {"é\\p{L}", "unsupported_schema: regex: byte 2: Unicode property"},
        {"a{1001}", "unsupported_schema: regex: byte 1: a count may be 1000"},
        {"a{2,1}", "invalid_schema: regex: byte 1: a count runs backwards"},
        {"[z-a]", "invalid_schema: regex: byte 1: a range runs backwards"},
        {"[a", "invalid_schema: regex: byte 0: a class without"},
        {"(a", "invalid_schema: regex: byte 0: a group without"},
        {"a)", "invalid_schema: regex: byte 1: a closing parenthesis"},
        {"*a", "invalid_schema: regex: byte 0: a quantifier without"},
        {"a**", "invalid_schema: regex: byte 2: a quantifier behind"},
        {"a\\", "invalid_schema: regex: byte 1: a backslash at the end"},
        {"a^b", "unsupported_schema: regex: byte 1: ^ and $"},
        {"(a$)", "unsupported_schema: regex: byte 2: ^ and $"},
        {"[[:alpha:]]", "unsupported_schema: regex: byte 1: named classes"},
        {"[]", "unsupported_schema: regex: byte 0: an empty class"},
        {"\\ud800", "invalid_schema: regex: byte 0: a surrogate"},
        {"\\q", "unsupported_schema: regex: byte 0: this escape"},
        {"\xff", "invalid_schema: regex: byte 0: this is not UTF-8"},
    };
    struct alloc alloc = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dfa dfa;
        struct err err = {0};
        struct regex_text regex = {"regex", cases[i].pattern, strlen(cases[i].pattern), SPELL_RAW, false};
        if (compile(&alloc, &dfa, &regex, 100000, &err)) fail_msg("%s was taken", cases[i].pattern);
        assert_int_equal(err.kind, ERR_USER);
        if (strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].pattern, err.text, cases[i].text);
    }
    assert_int_equal(alloc.live, 0);
}

static void large_patterns_end_in_time(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "((a{0,1000}){0,1000}){0,1000}",
        "(a|aa){1000}",
        "(.*a.*){12}",
        "(x+x+)+y",
        "[^a]{1000}[^b]{1000}",
        "(a?){1000}a{1000}",
        "(.{1,50}[ab].{1,50}){8}",
        "((((((((a*)*)*)*)*)*)*)*)*",
        ".*(a|b|c|d|e|f|g|h).{15}",
        ".*a.{18}",
    };
    static char many[8192];
    struct alloc alloc = {0};
    uint32_t n_refused = 0;
    double worst = 0; /* for people to read: a test must not depend on the machine */
    for (size_t i = 0; i <= sizeof patterns / sizeof *patterns; i++) {
        struct dfa dfa;
        struct err err = {0};
        const char *pattern = many;
        if (i == sizeof patterns / sizeof *patterns) {
            for (size_t k = 0; k + 2 < sizeof many; k += 2) memcpy(many + k, "a?", 3);
        } else {
            pattern = patterns[i];
        }
        struct regex_text regex = {"regex", pattern, strlen(pattern), SPELL_RAW, false};
        clock_t before = clock();
        bool ok = compile(&alloc, &dfa, &regex, 100000, &err);
        double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
        if (seconds > worst) worst = seconds;
        if (ok) {
            dfa_fini(&dfa);
            continue;
        }
        if (strncmp(err.text, "unsupported_schema: ", 20) != 0) fail_msg("%s", err.text);
        n_refused++;
    }
    print_message("%u of %zu were refused; the slowest took %.2f s of processor time\n", n_refused,
                  1 + sizeof patterns / sizeof *patterns, worst);
    assert_true(n_refused > 0);
    assert_int_equal(alloc.live, 0);
}

static void a_dfa_never_gets_stuck(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct err err = {0};
    struct dfa dfa;
    /* Behind "x" nothing can match, so no byte leads there. */
    struct regex_text regex = {"regex", "a(b|x[^\\s\\S])c", 14, SPELL_RAW, false};
    assert_true(compile(&alloc, &dfa, &regex, 100000, &err));
    uint32_t state_a = state_behind(&dfa, "a", 1);
    assert_int_not_equal(dfa_step(&dfa, state_a, 'b'), DFA_DEAD);
    assert_int_equal(dfa_step(&dfa, state_a, 'x'), DFA_DEAD);
    dfa_fini(&dfa);
    regex = (struct regex_text){"regex", "[^\\s\\S]", 7, SPELL_RAW, false};
    assert_true(compile(&alloc, &dfa, &regex, 100000, &err));
    assert_int_equal(dfa.n_states, 1);
    dfa_fini(&dfa);
    assert_int_equal(alloc.live, 0);
}

static void failures_are_told_and_leak_nothing(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct dfa dfa = {0};
        struct regex_text regex = {"regex", "([a-zé]|日本)+\\d{3}", strlen("([a-zé]|日本)+\\d{3}"), SPELL_JSON, true};
        bool ok = compile(&alloc, &dfa, &regex, 100000, &err);
        if (!ok && err.kind != ERR_NOMEM) fail_msg("allocation %llu: %s", (unsigned long long)k, err.text);
        dfa_fini(&dfa);
        assert_int_equal(alloc.live, 0);
        if (ok && alloc.calls < k) {
            print_message("%llu allocations failed in turn\n", (unsigned long long)k - 1);
            assert_true(k > 10);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_patterns_match_what_pcre2_matches),
        cmocka_unit_test(what_is_not_supported_is_refused_where_it_is),
        cmocka_unit_test(large_patterns_end_in_time),
        cmocka_unit_test(a_dfa_never_gets_stuck),
        cmocka_unit_test(failures_are_told_and_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
