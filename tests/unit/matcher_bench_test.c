/* The cost of a mask over a vocabulary of the size of GLM-5.2's. As a test it checks that large masks equal those of a
 * walk without cache and what feeding every token gives; with --bench it prints times.
 *
 *   matcher_bench_test --bench      per token: mask and step, mean, median, 99th percentile and worst. Cold: nothing is
 *                                   known of any other constraint either */
#include "gram/matcher.h"

#include "support/check.h"
#include "support/constrained.h"
#include "support/made_vocabulary.h"
#include <stdlib.h>
#include <time.h>

struct scene {
    const char *name;
    enum constraint_kind kind;
    const char *constraint, *text;
};

static const struct scene scenes[] = {
    {"object of strings and numbers", CONSTRAINT_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":150},\"email\":{\"type\":\"string\",\"format\":\"email\"},\"tags\":{\"type\":\"array\",\"items\":{"
     "\"type\":\"string\"}},\"score\":{\"type\":\"number\"}},\"required\":[\"name\",\"age\"]}",
     "{\"name\": \"Ada Lovelace the first of all programmers\", \"age\": 36, \"email\": \"ada@example.org\", "
     "\"tags\": [\"mathematics and poetry\", \"engines that weave\"], \"score\": 12.75}"},
    {"lengths and patterns", CONSTRAINT_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":80},\"slug\":{"
     "\"type\":\"string\",\"pattern\":\"^[a-z0-9-]+$\"},\"summary\":{\"type\":\"string\",\"maxLength\":2000}},"
     "\"required\":[\"title\",\"slug\",\"summary\"]}",
     "{\"title\": \"How a weir lets exactly as much water through as can be taken\", \"slug\": \"how-a-weir-works\", "
     "\"summary\": \"A weir is a low wall across a river. Water flows over it, and never more than the channel below "
     "can take in. That is the whole idea of it, and it is enough for one page of text about water.\"}"},
    {"recursive, anyOf, enum", CONSTRAINT_SCHEMA,
     "{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"leaf\",\"branch\",\"root\"]},"
     "\"value\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"number\"},{\"type\":\"null\"}]},\"children\":{\"type\":"
     "\"array\",\"items\":{\"$ref\":\"#/$defs/node\"}}},\"required\":[\"kind\",\"value\",\"children\"],"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/node\"}",
     "{\"kind\":\"root\",\"value\":null,\"children\":[{\"kind\":\"branch\",\"value\":\"the left side of it\","
     "\"children\":[{\"kind\":\"leaf\",\"value\":17.5,\"children\":[]}]},{\"kind\":\"leaf\",\"value\":\"right\","
     "\"children\":[]}]}"},
    {"any JSON object", CONSTRAINT_JSON_OBJECT, NULL,
     "{\n  \"answer\": \"a longer text with \\\"quotes\\\" and more words in it\",\n  \"list\": [1, 2, 3, {\"deep\": "
     "[true, false, null]}],\n  \"empty\": {}\n}"},
    {"regular expression", CONSTRAINT_REGEX, "(Yes|No), because [A-Za-z ,]{10,200}\\.",
     "Yes, because the water has to go somewhere, and this is the lowest place of all."},
    {"recursive grammar", CONSTRAINT_GBNF,
     "root ::= expr\nexpr ::= term ((\" + \" | \" - \") term)*\nterm ::= factor (\" * \" factor)*\n"
     "factor ::= number | name | \"(\" expr \")\"\nnumber ::= [0-9]+ (\".\" [0-9]+)?\nname ::= [a-z]+",
     "(alpha + 12.5 * (beta - gamma)) * 3 + delta * (one + two * (three - 4))"},
};

struct bench {
    struct alloc alloc;
    struct made_vocabulary vocabulary;
    struct control_ids ids;
    struct token_trie *trie;
    struct mask_cache *cache;
};

static void bench_init(struct bench *b)
{
    struct err err = {0};
    memset(b, 0, sizeof *b);
    made_vocabulary_init(&b->vocabulary, &b->alloc);
    b->ids = (struct control_ids){.n_eos = 0, .think_end = CONTROL_NO_ID, .tool_call = CONTROL_NO_ID};
    b->trie = token_trie_of(&b->alloc, b->vocabulary.tokens, MADE_VOCABULARY_TOKENS, &err);
    assert_non_null(b->trie);
    b->cache = mask_cache_new(&b->alloc, b->trie, 16 << 20, &err);
    assert_non_null(b->cache);
}

static void bench_fini(struct bench *b)
{
    mask_cache_free(b->cache);
    token_trie_free(b->trie);
    made_vocabulary_fini(&b->vocabulary);
    assert_int_equal(b->alloc.live, 0);
}

static struct constraint *compile(struct bench *b, const struct scene *scene)
{
    struct err err = {0};
    struct constraint *constraint;
    struct constraint_request request = {.kind = scene->kind, .text = scene->constraint};
    if (scene->kind == CONSTRAINT_SCHEMA)
        request.value = json_of(scene->constraint);
    else if (scene->constraint)
        request.bytes = strlen(scene->constraint);
    if (!constraint_new(&constraint, &b->alloc, &request, &b->ids, &err)) fail_msg("%s: %s", scene->name, err.text);
    json_object_put(request.value);
    return constraint;
}

static struct matcher *start(struct bench *b, struct mask_cache *cache, struct constraint *constraint)
{
    struct err err = {0};
    struct matcher *m = matcher_new(&b->alloc, &(struct matcher_rules){constraint, cache, &b->ids, false}, &err);
    assert_non_null(m);
    return m;
}

/* The longest token that the text goes on with. */
static uint32_t longest(const struct bench *b, const char *text)
{
    const struct token_trie *t = b->trie;
    uint32_t id = 0, parent = 0;
    for (;; text++) {
        uint32_t i = parent + 1, end = t->nodes[parent].end;
        while (i < end && t->bytes[i] != (uint8_t)*text) i = t->nodes[i].end;
        if (i >= end || !*text) return id;
        if (t->nodes[i].first < t->nodes[i + 1].first) id = t->ids[t->nodes[i].first];
        parent = i;
    }
}

/* Of this thread, so that other programs do not count. */
static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void bench_scene(struct bench *b, const struct scene *scene)
{
    enum { TOKENS_MAX = 4096, ROUNDS = 5 };
    static uint64_t ns[TOKENS_MAX], mask[MADE_VOCABULARY_TOKENS / 64 + 1];
    struct err err = {0};
    uint64_t before = now_ns();
    struct constraint *constraint = compile(b, scene);
    uint64_t compile_ns = now_ns() - before;
    struct mask_cache *cache = mask_cache_new(&b->alloc, b->trie, 16 << 20, &err);
    assert_non_null(cache);
    struct matcher *first = start(b, cache, constraint), *m = start(b, cache, constraint);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = 0;
        uint64_t sum = 0;
        assert_true(matcher_copy(m, first, &err));
        for (const char *at = scene->text; *at; n++) {
            bool taken;
            uint32_t id = longest(b, at);
            uint64_t begin = now_ns();
            assert_true(matcher_allowed(m, mask, &err));
            assert_true(matcher_advance(m, id, &taken, &err));
            ns[n] = now_ns() - begin;
            sum += ns[n];
            if (!taken) fail_msg("%s: not taken at \"%s\"", scene->name, at);
            at += b->vocabulary.tokens[id].n_bytes;
        }
        qsort(ns, n, sizeof *ns, by_size);
        if (round == 0 || round == ROUNDS - 1)
            printf("%-30s %-5s %4u tokens: mean %7.1f us, median %7.1f, 99%% %7.1f, worst %7.1f; compiled in %.1f ms\n",
                   scene->name, round ? "warm" : "cold", n, (double)sum / n / 1e3, (double)ns[n / 2] / 1e3,
                   (double)ns[n * 99 / 100] / 1e3, (double)ns[n - 1] / 1e3, (double)compile_ns / 1e6);
    }
    matcher_free(m);
    matcher_free(first);
    mask_cache_free(cache);
    constraint_drop(constraint);
}

static int bench(void)
{
    struct bench b;
    uint64_t before = now_ns();
    bench_init(&b);
    printf("%d tokens, %u trie nodes, made in %.0f ms\n", MADE_VOCABULARY_TOKENS, b.trie->n_nodes,
           (double)(now_ns() - before) / 1e6);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) bench_scene(&b, &scenes[i]);
    bench_fini(&b);
    return 0;
}

static void a_kept_mask_is_the_mask(void **state)
{
    (void)state;
    static uint64_t kept[MADE_VOCABULARY_TOKENS / 64 + 1], fresh[MADE_VOCABULARY_TOKENS / 64 + 1];
    struct bench b;
    struct err err = {0};
    uint32_t n = 0, n_large = 0;
    bench_init(&b);
    struct mask_cache *none = mask_cache_new(&b.alloc, b.trie, 0, &err);
    assert_non_null(none);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        struct constraint *constraint = compile(&b, &scenes[i]);
        struct matcher *m = start(&b, b.cache, constraint), *other = start(&b, none, constraint);
        for (const char *at = scenes[i].text; *at; n++) {
            bool taken, other_taken;
            uint32_t id = longest(&b, at), n_allowed = 0;
            assert_true(matcher_allowed(m, kept, &err));
            assert_true(matcher_allowed(other, fresh, &err));
            assert_memory_equal(kept, fresh, token_trie_words(b.trie) * sizeof *kept);
            for (uint32_t w = 0; w < token_trie_words(b.trie); w++)
                n_allowed += (uint32_t)__builtin_popcountll(kept[w]);
            n_large += n_allowed > 50000;
            assert_true(kept[id / 64] >> (id % 64) & 1);
            assert_true(matcher_advance(m, id, &taken, &err) && taken);
            assert_true(matcher_advance(other, id, &other_taken, &err) && other_taken);
            at += b.vocabulary.tokens[id].n_bytes;
        }
        assert_true(matcher_accepts(m));
        matcher_free(m);
        matcher_free(other);
        constraint_drop(constraint);
    }
    print_message("%u masks over %d tokens, %u of them with more than 50000 allowed; %llu bytes kept\n", n,
                  MADE_VOCABULARY_TOKENS, n_large, (unsigned long long)mask_cache_bytes(b.cache));
    assert_true(n_large > 50);
    assert_true(mask_cache_bytes(b.cache) > 0);
    assert_int_equal(mask_cache_bytes(none), 0);
    mask_cache_free(none);
    bench_fini(&b);
}

/* Moves along a text, as a whole or up to its end. */
static void go_along(const struct bench *b, struct matcher *m, const char *text)
{
    struct err err = {0};
    bool taken;
    for (const char *at = text; *at;) {
        uint32_t id = longest(b, at);
        if (!matcher_advance(m, id, &taken, &err) || !taken) fail_msg("not taken at \"%s\"", at);
        at += b->vocabulary.tokens[id].n_bytes;
    }
}

/* At places of every sort: inside strings, counted ones with few characters left, patterns, between marks, in a
 * grammar. */
static void a_mask_is_what_every_token_by_itself_says(void **state)
{
    (void)state;
    static const struct {
        size_t scene;
        const char *text;
    } places[] = {
        {0, "{\"na"},
        {0, "{\"name\": \"Ada"},
        {0, "{\"name\": \"Ada\", \"age\": 3"},
        {1, "{\"title\": \""},
        {1, "{\"title\": \"How a weir lets exactly as much water through as can be taken, and not a dr"},
        {1, "{\"title\": \"\\u00"},
        {1, "{\"title\": \"x\", \"slug\": \"a-"},
        {3, "{\"a\": \"b\","},
        {4, "Yes, because the"},
        {4, "Yes, because the water has"},
        {5, "(al"},
        {5, "(alpha + 12"},
    };
    static uint64_t mask[MADE_VOCABULARY_TOKENS / 64 + 1];
    struct bench b;
    struct err err = {0};
    bench_init(&b);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint32_t n_allowed = 0;
        struct constraint *constraint = compile(&b, &scenes[places[i].scene]);
        struct matcher *m = start(&b, b.cache, constraint), *scratch = start(&b, b.cache, constraint);
        go_along(&b, m, places[i].text);
        assert_true(matcher_allowed(m, mask, &err));
        for (uint32_t id = 0; id < MADE_VOCABULARY_TOKENS; id++) {
            bool taken = false;
            assert_true(matcher_copy(scratch, m, &err) && matcher_advance(scratch, id, &taken, &err));
            if (taken != (mask[id / 64] >> (id % 64) & 1)) fail_msg("%s: id %u: %d", places[i].text, id, taken);
            n_allowed += taken;
        }
        print_message("%6u tokens behind %s\n", n_allowed, places[i].text);
        assert_true(n_allowed > 0);
        matcher_free(m);
        matcher_free(scratch);
        constraint_drop(constraint);
    }
    bench_fini(&b);
}

/* What a string may hold is found out once, and not for every schema that has strings. */
static void what_one_schema_has_found_the_next_one_knows(void **state)
{
    (void)state;
    static const struct scene first = {
        "first", CONSTRAINT_SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"string\"}}}",
        "{\"a\":\"some text"};
    static const struct scene second = {"second", CONSTRAINT_SCHEMA,
                                        "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}", "[\"other text"};
    static const struct scene other = {"other", CONSTRAINT_SCHEMA,
                                       "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^x[^,]*$\"}}",
                                       "[\"x other text"};
    static const struct scene *const all[] = {&first, &second, &other};
    static uint64_t mask[MADE_VOCABULARY_TOKENS / 64 + 1];
    struct bench b;
    struct err err = {0};
    uint64_t bytes[3];
    bench_init(&b);
    for (int i = 0; i < 3; i++) {
        struct constraint *constraint = compile(&b, all[i]);
        struct matcher *m = start(&b, b.cache, constraint);
        constraint_drop(constraint); /* what is kept of it outlives it */
        go_along(&b, m, all[i]->text);
        assert_true(matcher_allowed(m, mask, &err));
        bytes[i] = mask_cache_bytes(b.cache);
        matcher_free(m);
    }
    print_message("bytes kept: %llu, %llu, %llu\n", (unsigned long long)bytes[0], (unsigned long long)bytes[1],
                  (unsigned long long)bytes[2]);
    assert_true(bytes[0] > 0);
    assert_int_equal(bytes[1], bytes[0]);
    assert_true(bytes[2] > bytes[1]); /* the kept bytes do tell: another automaton has a mask of its own */
    bench_fini(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kept_mask_is_the_mask),
        cmocka_unit_test(a_mask_is_what_every_token_by_itself_says),
        cmocka_unit_test(what_one_schema_has_found_the_next_one_knows),
    };
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
