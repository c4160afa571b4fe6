/* Grammar texts: what they match, what is refused and how it is named. */
#include "gram/gbnf.h"

#include "base/buf.h"
#include "support/check.h"
#include "support/constrained.h"

struct texts {
    const char *grammar;
    const char *good[8], *bad[8];
};

static void grammars_match_what_they_say(void **state)
{
    (void)state;
    static const struct texts all[] = {
        {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"y", "yesno", ""}},
        {"root::=a b?#c\na::=\"x\"{2,3}\nb ::= [^x-z\\n]+ # end", {"xx", "xxxab", "xxa"}, {"x", "xxxx", "xxz", "xx\n"}},
        {"root ::= (\n  \"a\"\n  | \"b\"\n)+\n", {"a", "ab"}, {"", "c"}},
        {"root ::= \"a\"\n     | \"b\" |\n \"c\"", {"a", "b", "c"}, {"ab"}},
        {"root ::=\n \"a\" . \"z\"", {"aéz", "a\nz", "a😀z"}, {"az", "aaaz", "a\xffz"}},
        {"root ::= \"\\\"\\n\\x41\\u00e9\\\\\"", {"\"\nA\xc3\xa9\\"}, {"\"nA"}},
        {"root ::= [a-c\\]\\-]{2,} [\\d]", {"a]5", "-b0"}, {"a5", "d]5"}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", ")(", "(()"}},
        {"root ::= value\nvalue ::= list | [0-9]+\nlist ::= \"[\" (value (\",\" value)*)? \"]\"",
         {"1", "[]", "[1,[2,[]],33]"},
         {"[", "[1,]", "1,2", "[[]"}},
        {"root ::= item{3}\nitem ::= \"a\" | \"(\" root \")\"",
         {"aaa", "a(aaa)a", "(aaa)(aaa)(aaa)"},
         {"aa", "(aa)aa"}},
        {"root ::= item{1,2} \".\"\nitem ::= \"a\" item? \"b\"", {"ab.", "aabb.", "abab."}, {".", "ababab.", "aab."}},
        {"root ::= (x y)* x\nx ::= \"a\" | root2\ny ::= \"a\"?\nroot2 ::= \"<\" root \">\"",
         {"a", "aa", "aaaa", "<aa>a"},
         {"", "<>"}},
        {"root ::= \"\"* \"a\"{0} (\"\" | \"\")+ \"x\"", {"x"}, {"ax", ""}},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct err err = {0};
        struct constraint *constraint = constrained_kind(&c, CONSTRAINT_GBNF, all[i].grammar, &err);
        if (!constraint) fail_msg("%s: %s", all[i].grammar, err.text);
        for (int k = 0; k < 8 && all[i].good[k]; k++)
            if (!constrained_takes(&c, constraint, all[i].good[k], strlen(all[i].good[k])))
                fail_msg("%s should take \"%s\"", all[i].grammar, all[i].good[k]);
        for (int k = 0; k < 8 && all[i].bad[k]; k++)
            if (constrained_takes(&c, constraint, all[i].bad[k], strlen(all[i].bad[k])))
                fail_msg("%s should not take \"%s\"", all[i].grammar, all[i].bad[k]);
        constraint_drop(constraint);
    }
    constrained_fini(&c);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *text;
    } cases[] = {
        {"", "invalid_schema: grammar: there is no rule named root"},
        {"a ::= \"x\"", "invalid_schema: grammar: there is no rule named root"},
        {"root ::= a b\na ::= \"x\"", "invalid_schema: grammar: byte 11: rule b is used but not defined"},
        {"root ::= root \"a\" | \"b\"", "unsupported_schema: grammar: left recursion: root -> root"},
        {"root ::= \"x\" a\na ::= b? c\nb ::= \"y\"\nc ::= d\nd ::= a \"z\" | \"q\"",
         "unsupported_schema: grammar: left recursion: a -> c -> d -> a"},
        {"root ::= \"\" (\"x\"* root) | \"y\"", "unsupported_schema: grammar: left recursion: root -> root"},
        {"root ::= a\na ::= \"x\" a", "invalid_schema: grammar: byte 0: rule root matches no text that ends"},
        {"root ::= \"x\"\nb ::= [^\\s\\S]", "invalid_schema: grammar: byte 13: rule b matches no text that ends"},
        {"root ::= \"x\"\nroot ::= \"y\"", "invalid_schema: grammar: byte 13: this rule is there already"},
        {"root ::= \"x", "invalid_schema: grammar: byte 9: a literal without"},
        {"root ::= [a", "invalid_schema: grammar: byte 9: a class without"},
        {"root ::= (a", "invalid_schema: grammar: byte 9: a group without"},
        {"root := \"x\"", "invalid_schema: grammar: byte 5: ::= must follow"},
        {"root ::= \"x\" )", "invalid_schema: grammar: byte 13: this is no part of a rule"},
        {"root ::= \"x\"**", "invalid_schema: grammar: byte 13: a quantifier behind"},
        {"root ::= \"x\"{5,2}", "invalid_schema: grammar: byte 12: a count runs backwards"},
        {"root ::= \"x\"{1001}", "unsupported_schema: grammar: byte 12: a count may be 1000"},
        {"root ::= \"\\d\"", "invalid_schema: grammar: byte 10: a class is no part of a literal"},
        {"%lark\nstart: \"a\"", "invalid_schema: grammar: byte 0: a rule must begin with its name"},
        {"root ::= \"\xff\"", "invalid_schema: grammar: byte 10: this is not UTF-8"},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        if (constrained_kind(&c, CONSTRAINT_GBNF, cases[i].grammar, &err)) fail_msg("%s was taken", cases[i].grammar);
        assert_int_equal(err.kind, ERR_USER);
        if (strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].grammar, err.text, cases[i].text);
    }
    constrained_fini(&c);
}

/* The corpus of the fuzzer begins with a grammar that many people use. */
static void a_json_grammar_takes_json(void **state)
{
    (void)state;
    static const char *const good[] = {"{}", "{\"a\": [1, -2.5e+3, \"\\u00e9\\n\", true, {\"b\":null}]}\n  "};
    static const char *const bad[] = {"[]", "{\"a\"}", "{\"a\":01}", "{\"a\":[1,]}", "{\"a\":\"\n\"}"};
    struct constrained c;
    struct err err = {0};
    char text[4096];
    FILE *file = fopen("tests/fuzz/corpus/gbnf/json.gbnf", "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    constrained_init(&c);
    struct constraint *constraint = constrained_kind(&c, CONSTRAINT_GBNF, text, &err);
    if (!constraint) fail_msg("%s", err.text);
    for (size_t i = 0; i < 2; i++) assert_true(constrained_takes(&c, constraint, good[i], strlen(good[i])));
    for (size_t i = 0; i < 5; i++) assert_false(constrained_takes(&c, constraint, bad[i], strlen(bad[i])));
    constraint_drop(constraint);
    constrained_fini(&c);
}

static void check_refused(struct constrained *c, const struct buf *text, const char *why)
{
    struct err err = {0};
    assert_null(constrained_kind(c, CONSTRAINT_GBNF, text->data, &err));
    assert_int_equal(err.kind, ERR_USER);
    if (!strstr(err.text, why)) fail_msg("\"%s\", expected \"%s\"", err.text, why);
}

static void limits_hold(void **state)
{
    (void)state;
    struct constrained c;
    struct err err = {0};
    struct buf text;
    constrained_init(&c);
    for (int n = 1024; n <= 1025; n++) {
        buf_init(&text, &c.alloc, 1 << 20);
        assert_true(buf_add_text(&text, "root ::= r1", &err));
        for (int i = 1; i < n - 1; i++) assert_true(buf_printf(&text, &err, "\nr%d ::= \"a\" r%d", i, i + 1));
        assert_true(buf_printf(&text, &err, "\nr%d ::= \"b\"", n - 1));
        if (n == 1025) {
            check_refused(&c, &text, "more than 1024 rules");
        } else {
            struct constraint *constraint = constrained_kind(&c, CONSTRAINT_GBNF, text.data, &err);
            if (!constraint) fail_msg("%s", err.text);
            constraint_drop(constraint);
        }
        buf_fini(&text);
    }
    buf_init(&text, &c.alloc, 1 << 20);
    assert_true(buf_add_text(&text, "root ::= ", &err));
    for (int i = 0; i < 65; i++) assert_true(buf_add_char(&text, '(', &err));
    assert_true(buf_add_text(&text, "\"a\"", &err));
    for (int i = 0; i < 65; i++) assert_true(buf_add_char(&text, ')', &err));
    check_refused(&c, &text, "groups nest deeper than 64");
    buf_clear(&text);
    assert_true(buf_add_text(&text, "root ::= \"a\" #", &err));
    while (text.bytes <= GBNF_BYTES_MAX) assert_true(buf_add_text(&text, "0123456789abcdef", &err));
    check_refused(&c, &text, "262144 bytes at most");
    buf_fini(&text);

    /* Too large for one automaton, small as rules. */
    const char *const joined = "root ::= a{1000}\na ::= b{100} \"\\n\"\nb ::= [ab] | \"cd\"";
    struct constraint *constraint = constrained_kind(&c, CONSTRAINT_GBNF, joined, &err);
    if (!constraint) fail_msg("%s", err.text);
    constraint_drop(constraint);
    constrained_fini(&c);
}

/* Joining rules into automata must not change what they match. */
static void rules_match_the_same_joined_or_not(void **state)
{
    (void)state;
    static const char *const grammars[] = {
        "root ::= a (\",\" a)* b?\na ::= [x-z]{1,3} | \"(\" b \")\"\nb ::= \"x\"+ | \"\"",
        "root ::= s \"!\"\ns ::= w (\" \" w)*\nw ::= l+ | \"\\\"\" l* \"\\\"\"\nl ::= [a-z] | \"é\"",
        "root ::= n | \"(\" root \"+\" root \")\"\nn ::= d+ (\".\" d+)?\nd ::= [0-3]",
    };
    static const char alphabet[] = "xyz(),a\" !.0+1";
    struct constrained c;
    struct numbers k = {.key = 17};
    uint32_t n_taken = 0, n_tried = 0;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        struct constraint *constraint[2];
        struct err err = {0};
        struct buf text;
        buf_init(&text, &c.alloc, 1 << 16);
        constraint[0] = constrained_kind(&c, CONSTRAINT_GBNF, grammars[i], &err);
        /* A root that refers to itself in a place that no text reaches keeps its rule from being joined; so does every
         * rule that is made to refer to a rule like that. */
        for (const char *at = grammars[i]; *at; at++) {
            if (at[0] == '\n' || at[1] == 0) {
                if (at[1] == 0) assert_true(buf_add_char(&text, *at, &err));
                assert_true(buf_add_text(&text, " | \"\\x01\" loop", &err));
                if (at[1] == 0) break;
            }
            assert_true(buf_add_char(&text, *at, &err));
        }
        assert_true(buf_add_text(&text, "\nloop ::= \"\\x01\" loop | \"\\x02\"", &err));
        constraint[1] = constrained_kind(&c, CONSTRAINT_GBNF, text.data, &err);
        if (!constraint[0] || !constraint[1]) fail_msg("%s\n%s", err.text, text.data);
        for (int round = 0; round < 3000; round++) {
            char word[16];
            size_t n = numbers_below(&k, 9);
            for (size_t b = 0; b < n; b++) word[b] = alphabet[numbers_below(&k, sizeof alphabet - 1)];
            bool takes = constrained_takes(&c, constraint[0], word, n);
            assert_int_equal(takes, constrained_takes(&c, constraint[1], word, n));
            n_taken += takes;
            n_tried++;
        }
        constraint_drop(constraint[0]);
        constraint_drop(constraint[1]);
        buf_fini(&text);
    }
    print_message("key %llu: %u texts, %u taken\n", (unsigned long long)k.key, n_tried, n_taken);
    assert_true(n_taken > 50);
    constrained_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammars_match_what_they_say),       cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_json_grammar_takes_json),          cmocka_unit_test(limits_hold),
        cmocka_unit_test(rules_match_the_same_joined_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
