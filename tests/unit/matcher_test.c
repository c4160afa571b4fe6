/* Positions in a constraint: known texts, masks against brute force, ends, thoughts, copies, limits, threads, lost
 * memory. */
#include "gram/matcher.h"

#include "base/buf.h"
#include "support/check.h"
#include "support/constrained.h"
#include <pthread.h>
#include <stdlib.h>

static struct constraint *must(struct constraint *constraint, const struct err *err)
{
    if (!constraint) fail_msg("%s", err->text);
    return constraint;
}

static struct constraint *kind(struct constrained *c, enum constraint_kind of, const char *text)
{
    struct err err = {0};
    return must(constrained_kind(c, of, text, &err), &err);
}

static struct constraint *schema(struct constrained *c, const char *text)
{
    struct err err = {0};
    return must(constrained_schema(c, text, &err), &err);
}

static struct constraint *any_json(struct constrained *c, enum json_blanks blanks)
{
    struct err err = {0};
    struct constraint *constraint;
    struct constraint_request request = {.kind = CONSTRAINT_SCHEMA, .value = json_of("{}"), .blanks = blanks};
    assert_true(constraint_new(&constraint, &c->alloc, &request, &c->ids, &err));
    json_object_put(request.value);
    return constraint;
}

static void check_texts(struct constrained *c, struct constraint *constraint, const char *const *texts, bool want)
{
    for (; *texts; texts++)
        if (constrained_takes(c, constraint, *texts, strlen(*texts)) != want)
            fail_msg("%s should %sbe taken", *texts, want ? "" : "not ");
    constraint_drop(constraint);
}

/* ---- known texts ---- */

static void json_text_is_what_the_grammar_says(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0",
        "-0",
        "12",
        "1234567890123456",
        "0.5",
        "-1.0e5",
        "1E-999",
        "1e+289",
        "0.1234567890123456",
        "true",
        "false",
        "null",
        "\"\"",
        "\"é日😀\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\"",
        "[]",
        "[ ]",
        "[\n]",
        "{}",
        "{ }",
        "[1,2]",
        "[1, 2]",
        "[ 1 , 2 ]",
        "[\n\n    1\n]",
        "{\"a\":1}",
        "{\n\t\"a\" : {\"\": []}\n}",
        "{\"\\u0061\":1}",
        NULL,
    };
    static const char *const bad[] = {
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "12345678901234567",
        "0.12345678901234567",
        "1e290",
        "1e1000",
        "tru",
        "True",
        "\"",
        "\"\n\"",
        "\"\\x\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\ud83d\\u0041\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        " 1",
        "1 ",
        "[1,]",
        "[,1]",
        "[1  ,2]",
        "[\n\n\n1]",
        "{a:1}",
        "{\"a\"}",
        "{\"a\":1,}",
        "[\n                     1]",
        "{\"\\u0000\":1}",
        "",
        NULL,
    };
    static const char *const fixed_good[] = {"[1, 2]", "{\"a\": [], \"b\": {}}", NULL};
    static const char *const fixed_bad[] = {"[1,2]", "[ 1, 2]", "[1 , 2]", "{\"a\":1}", "{ }", "[\n]", NULL};
    struct constrained c;
    constrained_init(&c);
    check_texts(&c, any_json(&c, JSON_BLANKS_ANY), good, true);
    check_texts(&c, any_json(&c, JSON_BLANKS_ANY), bad, false);
    check_texts(&c, any_json(&c, JSON_BLANKS_FIXED), fixed_good, true);
    check_texts(&c, any_json(&c, JSON_BLANKS_FIXED), fixed_bad, false);
    static const char *const objects[] = {"{}", "{\"a\": [1, {}]}", NULL}, *const others[] = {"[]", "1", "null", NULL};
    check_texts(&c, kind(&c, CONSTRAINT_JSON_OBJECT, NULL), objects, true);
    check_texts(&c, kind(&c, CONSTRAINT_JSON_OBJECT, NULL), others, false);
    constrained_fini(&c);
}

static void nesting_has_a_floor_that_can_always_be_left(void **state)
{
    (void)state;
    static const char *const recursive =
        "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"array\",\"items\":{\"$ref\":"
        "\"#/$defs/n\"}}},\"required\":[\"c\"]}},\"$ref\":\"#/$defs/n\"}";
    struct constrained c;
    char text[1024];
    constrained_init(&c);
    for (int depth = 62; depth <= 66; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct constraint *constraint = any_json(&c, JSON_BLANKS_ANY);
        assert_int_equal(constrained_takes(&c, constraint, text, 2 * (size_t)depth), depth <= 64);
        constraint_drop(constraint);
    }
    /* An object needs a list inside, so at the 64th level no object may begin, and the list can only close. */
    struct matcher *m = constrained_start(&c, schema(&c, recursive));
    size_t levels = 0;
    while (matcher_feed(m, "{\"c\":[", 6) == 6) levels += 2;
    assert_int_equal(levels, 64);
    assert_int_equal(matcher_feed(m, "]}", 2), 2);
    while (!matcher_accepts(m)) assert_int_equal(matcher_feed(m, "]}", 2), 2);
    assert_true(matcher_is_complete(m));
    matcher_free(m);
    constrained_fini(&c);
}

static void choices_and_patterns_take_what_they_list(void **state)
{
    (void)state;
    static const char *const choice_good[] = {"yes", "yes, sir", "no", "é", "", NULL};
    static const char *const choice_bad[] = {"y", "yes,", "noo", "\xc3", NULL};
    static const char *const regex_good[] = {"a1", "aa22", NULL}, *const regex_bad[] = {"a", "1", "a1b", "", NULL};
    struct constrained c;
    constrained_init(&c);
    const char *list = "[\"yes\", \"no\", \"yes, sir\", \"é\", \"\", \"no\"]";
    check_texts(&c, kind(&c, CONSTRAINT_CHOICE, list), choice_good, true);
    check_texts(&c, kind(&c, CONSTRAINT_CHOICE, list), choice_bad, false);
    check_texts(&c, kind(&c, CONSTRAINT_REGEX, "^a+[0-9]+$"), regex_good, true);
    check_texts(&c, kind(&c, CONSTRAINT_REGEX, "a+[0-9]+"), regex_bad, false);
    constrained_fini(&c);
}

/* ---- masks ---- */

static const char expression[] = "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= \"x\" | [a-c]{1,3} | \"(\" expr "
                                 "\")\" | \"日\" [0-9]*";

static void masks_equal_brute_force(void **state)
{
    (void)state;
    struct constrained c;
    constrained_init(&c);
    struct numbers numbers = {.key = 5};
    struct constraint *constraints[] = {
        kind(&c, CONSTRAINT_GBNF, expression),
        kind(&c, CONSTRAINT_REGEX, "(\"[^\"]*\"|[0-9]{1,5}|é+x)(, (true|null|日本?))*"),
        kind(&c, CONSTRAINT_CHOICE, "[\"red\", \"re\", \"green\", \"\\\"name\\\":\", \"日本\", \"a\", \"abc\", \"x\"]"),
        kind(&c, CONSTRAINT_JSON_OBJECT, NULL),
        schema(&c, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":9}"),
        schema(&c,
               "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},\"minItems\":2,\"maxItems\":3}"),
        kind(&c, CONSTRAINT_GBNF, "root ::= \"<\" ([^<>] | root)* \">\""),
    };
    uint32_t n_checked = 0, n_whole = 0;
    for (size_t i = 0; i < sizeof constraints / sizeof *constraints; i++) {
        for (int round = 0; round < 12; round++) {
            struct buf out;
            buf_init(&out, &c.alloc, 1 << 16);
            struct walk walk = {&numbers, 10, 60, 1, &out, 0, 0};
            n_whole += constrained_walk(&c, constraints[i], &walk);
            n_checked += walk.n_checked;
            buf_fini(&out);
        }
        constraint_drop(constraints[i]);
    }
    print_message("key %llu: %u masks, %u answers came to an end\n", (unsigned long long)numbers.key, n_checked,
                  n_whole);
    assert_true(n_checked > 700);
    assert_true(n_whole > 40);
    constrained_fini(&c);
}

static bool has(const uint64_t *mask, uint32_t id)
{
    return mask[id / 64] >> (id % 64) & 1;
}

static void look(struct matcher *m, uint64_t *mask)
{
    struct err err = {0};
    if (!matcher_allowed(m, mask, &err)) fail_msg("%s", err.text);
}

static bool take(struct matcher *m, uint32_t id)
{
    struct err err = {0};
    bool taken;
    if (!matcher_advance(m, id, &taken, &err)) fail_msg("%s", err.text);
    return taken;
}

static void added_tokens_are_never_text(void **state)
{
    (void)state;
    struct constrained c;
    uint64_t mask[VOCABULARY_MAX / 64 + 1];
    constrained_init(&c);
    struct matcher *m = constrained_start(&c, kind(&c, CONSTRAINT_REGEX, "[x<>a-z/_]*"));
    look(m, mask);
    assert_true(has(mask, 'x'));
    /* This end-of-answer token is spelled "x". It is allowed because the answer may end here, and it ends it. */
    assert_true(has(mask, ID_EOS_TOO));
    for (uint32_t id = ID_THINK_END; id < ID_END; id++) {
        assert_false(has(mask, id));
        assert_false(take(m, id));
    }
    assert_true(take(m, ID_EOS_TOO));
    assert_false(matcher_can_continue(m));
    look(m, mask);
    assert_false(has(mask, 'x'));
    matcher_free(m);
    m = constrained_start(&c, kind(&c, CONSTRAINT_REGEX, "xx"));
    look(m, mask);
    assert_false(has(mask, ID_EOS_TOO));
    assert_false(take(m, ID_EOS_TOO));
    assert_true(take(m, 'x'));
    matcher_free(m);
    constrained_fini(&c);
}

static void an_answer_ends_when_it_is_whole(void **state)
{
    (void)state;
    struct constrained c;
    uint64_t mask[VOCABULARY_MAX / 64 + 1];
    constrained_init(&c);
    struct matcher *m = constrained_start(&c, kind(&c, CONSTRAINT_CHOICE, "[\"a\", \"ab\"]"));
    assert_false(matcher_accepts(m));
    assert_true(matcher_can_continue(m));
    assert_true(take(m, 'a'));
    assert_true(matcher_accepts(m));
    assert_false(matcher_is_complete(m));
    look(m, mask);
    assert_true(has(mask, 'b') && has(mask, ID_EOS) && has(mask, ID_EOS_TOO) && !has(mask, 'a'));
    assert_true(take(m, 'b'));
    assert_true(matcher_is_complete(m));
    look(m, mask);
    assert_true(has(mask, ID_EOS) && !has(mask, 'b'));
    matcher_free(m);
    constrained_fini(&c);
}

static void one_allowed_id_is_forced(void **state)
{
    (void)state;
    struct constrained c;
    struct err err = {0};
    uint32_t id;
    bool forced;
    constrained_init(&c);
    struct matcher *m = constrained_start(&c, kind(&c, CONSTRAINT_CHOICE, "[\"qv\"]"));
    assert_true(matcher_forced(m, &id, &forced, &err));
    assert_true(forced);
    assert_int_equal(id, 'q'); /* no token holds both */
    assert_true(take(m, 'q'));
    assert_true(matcher_forced(m, &id, &forced, &err) && forced && id == 'v');
    assert_true(take(m, 'v'));
    assert_true(matcher_forced(m, &id, &forced, &err) && !forced); /* two ids end the answer */
    matcher_free(m);
    m = constrained_start(&c, kind(&c, CONSTRAINT_CHOICE, "[\"ab\"]")); /* "a" or "ab" */
    assert_true(matcher_forced(m, &id, &forced, &err) && !forced);
    matcher_free(m);
    constrained_fini(&c);
}

static void thoughts_are_free(void **state)
{
    (void)state;
    struct constrained c;
    struct err err = {0};
    uint64_t mask[VOCABULARY_MAX / 64 + 1];
    constrained_init(&c);
    struct constraint *constraint = kind(&c, CONSTRAINT_REGEX, "ab");
    const struct matcher_rules rules = {constraint, c.cache, &c.ids, true};
    struct matcher *m = matcher_new(&c.alloc, &rules, &err);
    assert_non_null(m);
    constraint_drop(constraint);
    assert_true(matcher_is_thinking(m) && !matcher_accepts(m) && matcher_can_continue(m));
    look(m, mask);
    for (uint32_t id = 0; id < ID_END; id++)
        assert_int_equal(has(mask, id), id != ID_EOS && id != ID_EOS_TOO && id != ID_CALL);
    assert_false(has(mask, ID_END)); /* no bits behind the last id */
    assert_true(take(m, 'z') && take(m, ID_KEY));
    assert_false(take(m, ID_EOS));
    assert_false(take(m, ID_CALL));
    assert_true(take(m, ID_THINK_END));
    assert_false(matcher_is_thinking(m));
    look(m, mask);
    assert_true(has(mask, 'a') && !has(mask, '\n') && !has(mask, ID_EOS));
    assert_false(take(m, '\n')); /* the value begins at once */
    assert_int_equal(matcher_feed(m, "ab", 2), 2);
    assert_true(matcher_is_complete(m));
    matcher_free(m);
    constrained_fini(&c);
}

/* ---- copies ---- */

static void a_copy_goes_its_own_way(void **state)
{
    (void)state;
    struct constrained c;
    struct err err = {0};
    struct numbers numbers = {.key = 99};
    uint64_t before[VOCABULARY_MAX / 64 + 1], after[VOCABULARY_MAX / 64 + 1], own[VOCABULARY_MAX / 64 + 1];
    constrained_init(&c);
    struct constraint *constraint = kind(&c, CONSTRAINT_JSON_OBJECT, NULL);
    struct matcher *m = constrained_start(&c, constraint_hold(constraint));
    struct matcher *draft = constrained_start(&c, constraint);
    uint32_t n_rejected = 0, n_taken = 0;
    for (int round = 0; round < 300 && !matcher_is_complete(m); round++) {
        look(m, before);
        assert_true(matcher_copy(draft, m, &err));
        /* Drafts: random ids, most of them wrong. What is refused changes nothing. */
        for (int i = 0; i < 6; i++) {
            uint32_t id = numbers_below(&numbers, ID_END);
            look(draft, own);
            bool taken = take(draft, id);
            assert_int_equal(taken, has(own, id));
            n_taken += taken;
            n_rejected += !taken;
            if (taken) continue;
            look(draft, after);
            assert_memory_equal(own, after, token_trie_words(c.trie) * sizeof *own);
        }
        look(m, after);
        assert_memory_equal(before, after, token_trie_words(c.trie) * sizeof *before);
        uint32_t id;
        do id = numbers_below(&numbers, ID_EOS);
        while (!has(before, id) || (id == '}' && round < 200));
        assert_true(take(m, id));
    }
    print_message("key %llu: %u drafts taken, %u rejected\n", (unsigned long long)numbers.key, n_taken, n_rejected);
    assert_true(n_taken > 50 && n_rejected > 50);
    matcher_free(m);
    matcher_free(draft);
    constrained_fini(&c);
}

/* ---- limits ---- */

static void too_many_ways_fail_the_request(void **state)
{
    (void)state;
    struct constrained c;
    struct err err = {0};
    struct buf text;
    uint64_t mask[VOCABULARY_MAX / 64 + 1];
    bool taken;
    constrained_init(&c);
    buf_init(&text, &c.alloc, 1 << 20);
    /* 300 recursive rules that all begin alike. */
    assert_true(buf_add_text(&text, "root ::= r0", &err));
    for (int i = 1; i < 300; i++) assert_true(buf_printf(&text, &err, " | r%d", i));
    for (int i = 0; i < 300; i++) assert_true(buf_printf(&text, &err, "\nr%d ::= \"a\" r%d? \"b%d\"", i, i, i));
    struct constraint *constraint = kind(&c, CONSTRAINT_GBNF, text.data);
    const struct matcher_rules rules = {constraint, c.cache, &c.ids, false};
    struct matcher *m = matcher_new(&c.alloc, &rules, &err);
    assert_null(m);
    assert_int_equal(err.kind, ERR_FAILED);
    assert_non_null(strstr(err.text, "grammar_limit: "));
    constraint_drop(constraint);

    /* The same behind a first byte: the mask and the step fail, and the matcher can still be freed. */
    buf_clear(&text);
    assert_true(buf_add_text(&text, "root ::= \"(\" (r0", &err));
    for (int i = 1; i < 300; i++) assert_true(buf_printf(&text, &err, " | r%d", i));
    assert_true(buf_add_text(&text, ")", &err));
    for (int i = 0; i < 300; i++) assert_true(buf_printf(&text, &err, "\nr%d ::= \"a\" r%d? \"b%d\"", i, i, i));
    m = constrained_start(&c, kind(&c, CONSTRAINT_GBNF, text.data));
    assert_false(matcher_allowed(m, mask, &err));
    assert_int_equal(err.kind, ERR_FAILED);
    err = (struct err){0};
    assert_false(matcher_advance(m, '(', &taken, &err));
    assert_int_equal(err.kind, ERR_FAILED);
    matcher_free(m);

    /* Recursion as deep as the answer is long: that has an end too. */
    m = constrained_start(&c, kind(&c, CONSTRAINT_GBNF, "root ::= \"(\" root \")\" | \"x\""));
    uint32_t depth = 0;
    while (matcher_advance(m, '(', &taken, &err)) {
        assert_true(taken);
        depth++;
        assert_true(depth < 1 << 20);
    }
    assert_non_null(strstr(err.text, "grammar_limit: "));
    print_message("%u levels of recursion\n", depth);
    assert_true(depth > 10000);
    matcher_free(m);
    buf_fini(&text);
    constrained_fini(&c);
}

/* ---- threads ---- */

struct thread {
    struct constrained *c;
    struct constraint *constraint;
    uint32_t n_tokens;
};

static void *walk_on_a_thread(void *context)
{
    struct thread *t = context;
    struct err err = {0};
    struct numbers numbers = {.key = 7};
    uint64_t mask[VOCABULARY_MAX / 64 + 1];
    struct mask_cache *cache = mask_cache_new(&t->c->alloc, t->c->trie, 1 << 16, &err);
    const struct matcher_rules rules = {t->constraint, cache, &t->c->ids, false};
    struct matcher *m = cache ? matcher_new(&t->c->alloc, &rules, &err) : NULL;
    while (m && t->n_tokens < 300 && !matcher_is_complete(m)) {
        uint32_t id;
        bool taken;
        if (!matcher_allowed(m, mask, &err)) break;
        do id = numbers_below(&numbers, ID_EOS);
        while (!has(mask, id));
        if (!matcher_advance(m, id, &taken, &err) || !taken) break;
        t->n_tokens++;
    }
    matcher_free(m);
    mask_cache_free(cache);
    return NULL;
}

static void threads_share_a_constraint(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct constrained c;
    pthread_t ids[THREADS];
    struct thread threads[THREADS];
    constrained_init(&c);
    struct constraint *constraint =
        schema(&c, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":500}}");
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){&c, constraint, 0};
        assert_int_equal(pthread_create(&ids[i], NULL, walk_on_a_thread, &threads[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(ids[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(threads[i].n_tokens, threads[0].n_tokens);
    assert_true(threads[0].n_tokens > 0);
    constraint_drop(constraint);
    constrained_fini(&c);
}

/* ---- lost memory ---- */

static bool whole_life(struct constrained *c, struct alloc *alloc, const struct constraint_request *request,
                       struct err *err)
{
    uint64_t mask[VOCABULARY_MAX / 64 + 1];
    static const char text[] = "{\"a\":\"b\\u00e9\",\"c\":[1,{\"d\":null}]}";
    struct constraint *constraint = NULL;
    struct matcher *m = NULL, *copy = NULL;
    bool taken = true, ok;
    struct token_trie *trie = token_trie_of(alloc, c->tokens, ID_END, err);
    struct mask_cache *cache = trie ? mask_cache_new(alloc, trie, 1 << 20, err) : NULL;
    ok = cache && constraint_new(&constraint, alloc, request, &c->ids, err);
    const struct matcher_rules rules = {constraint, cache, &c->ids, false};
    if (ok) m = matcher_new(alloc, &rules, err);
    if (m) copy = matcher_new(alloc, &rules, err);
    ok = copy != NULL;
    for (size_t i = 0; ok && taken && i < sizeof text - 1; i++)
        ok = matcher_allowed(m, mask, err) && matcher_advance(m, (unsigned char)text[i], &taken, err) &&
             matcher_copy(copy, m, err);
    if (ok) assert_true(!taken || matcher_accepts(copy));
    matcher_free(m);
    matcher_free(copy);
    constraint_drop(constraint);
    mask_cache_free(cache);
    token_trie_free(trie);
    return ok;
}

static void sweep(struct constrained *c, const struct constraint_request *request, const char *what)
{
    for (uint64_t k = 1;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        bool ok = whole_life(c, &alloc, request, &err);
        if (!ok && err.kind != ERR_NOMEM) fail_msg("%s, allocation %llu: %s", what, (unsigned long long)k, err.text);
        if (alloc.live != 0) fail_msg("%s, allocation %llu: something leaks", what, (unsigned long long)k);
        if (!ok || alloc.calls >= k) continue;
        print_message("%s: %llu allocations failed in turn\n", what, (unsigned long long)k - 1);
        assert_true(k > 20);
        break;
    }
}

static void failures_are_told_and_leak_nothing(void **state)
{
    (void)state;
    struct constrained c;
    constrained_init(&c);
    static const char *const gbnf = "root ::= \"{\" [^}]* (\"}\" | root) [^}]* \"}\" | \"{\" . root";
    struct constraint_request request = {.kind = CONSTRAINT_JSON_OBJECT};
    sweep(&c, &request, "any object");
    request = (struct constraint_request){.kind = CONSTRAINT_GBNF, .text = gbnf, .bytes = strlen(gbnf)};
    sweep(&c, &request, "grammar");
    request = (struct constraint_request){
        .kind = CONSTRAINT_SCHEMA,
        .value =
            json_of("{\"$defs\":{\"x\":{\"type\":\"object\",\"additionalProperties\":true}},\"type\":\"object\","
                    "\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":40,\"minLength\":1},\"c\":{\"anyOf\":"
                    "[{\"type\":\"array\",\"items\":{\"oneOf\":[{\"enum\":[1,[2],\"x\"]},{\"$ref\":\"#/$defs/x\"}]"
                    "}},{\"type\":\"number\",\"minimum\":0.5}]}},\"required\":[\"a\"],\"allOf\":[{\"properties\":{"
                    "\"e\":{\"pattern\":\"^a\",\"format\":\"date\"}}}]}")};
    sweep(&c, &request, "schema");
    json_object_put(request.value);
    constrained_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_text_is_what_the_grammar_says),
        cmocka_unit_test(nesting_has_a_floor_that_can_always_be_left),
        cmocka_unit_test(choices_and_patterns_take_what_they_list),
        cmocka_unit_test(masks_equal_brute_force),
        cmocka_unit_test(added_tokens_are_never_text),
        cmocka_unit_test(an_answer_ends_when_it_is_whole),
        cmocka_unit_test(one_allowed_id_is_forced),
        cmocka_unit_test(thoughts_are_free),
        cmocka_unit_test(a_copy_goes_its_own_way),
        cmocka_unit_test(too_many_ways_fail_the_request),
        cmocka_unit_test(threads_share_a_constraint),
        cmocka_unit_test(failures_are_told_and_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
