/* Loading a tokenizer.json, and its ids against those of the reference library. */
#include "fmt/tokenizer.h"

#include "fmt/tokenizer_int.h"
#include "support/check.h"
#include "support/lines.h"
#include "support/mem_files.h"
#include "support/tokenizers.h"
#include <json-c/json_pointer.h>

static struct alloc heap;

static void all_cases_agree_with_the_reference(void **state)
{
    (void)state;
    const char *const files[][2] = {{TOKENIZER_IGNORE, CASES_IGNORE}, {TOKENIZER_MERGE, CASES_MERGE}};
    for (size_t i = 0; i < 2; i++) {
        struct tokenizer *tokenizer = tokenizer_fixture(&heap, files[i][0]);
        size_t n_cases, n_failed = tokenizer_count_failures(&heap, tokenizer, files[i][1], 10, &n_cases);
        print_message("%s: %zu cases, %zu failed\n", files[i][1], n_cases, n_failed);
        assert_int_equal(n_cases, 528);
        assert_int_equal(n_failed, 0);
        tokenizer_free(tokenizer);
    }
    assert_int_equal(heap.live, 0);
}

/* Sets what is at a JSON pointer, or takes a member away when value is NULL. */
static void change(struct json_object **root, const char *at, const char *value)
{
    if (value) {
        assert_int_equal(json_pointer_set(root, at, fixture_json(&heap, value)), 0);
        return;
    }
    char parent[128];
    snprintf(parent, sizeof parent, "%s", at);
    char *name = strrchr(parent, '/');
    *name = 0;
    struct json_object *object = *root;
    if (parent[0]) assert_int_equal(json_pointer_get(*root, parent, &object), 0);
    json_object_object_del(object, name + 1);
}

static size_t failures_after(const char *file, const char *cases, const char *at, const char *value)
{
    struct err err = {0};
    size_t n_cases;
    struct json_object *root = tokenizer_fixture_json(&heap, file);
    change(&root, at, value);
    struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
    if (!tokenizer) print_error("%s\n", err.text);
    assert_non_null(tokenizer);
    size_t n_failed = tokenizer_count_failures(&heap, tokenizer, cases, 0, &n_cases);
    tokenizer_free(tokenizer);
    json_object_put(root);
    return n_failed;
}

/* If these passed, the cases would not see the rules. */
static void the_cases_notice_wrong_rules(void **state)
{
    (void)state;
    static const struct {
        const char *file, *cases, *at, *value;
    } wrong[] = {
        {TOKENIZER_MERGE, CASES_MERGE, "/model/merges/0", "[\"t\", \"h\"]"},
        {TOKENIZER_IGNORE, CASES_IGNORE, "/added_tokens/1/content", "\"[mask]\""},
        {TOKENIZER_IGNORE, CASES_IGNORE, "/added_tokens/21/special", "true"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t n = failures_after(wrong[i].file, wrong[i].cases, wrong[i].at, wrong[i].value);
        print_message("%s with %s = %s: %zu cases fail\n", wrong[i].file, wrong[i].at, wrong[i].value, n);
        assert_true(n > 0);
    }
    struct json_object *qwen = json_object_new_string(pretoken_pattern(PRETOKEN_QWEN));
    const char *text = json_object_to_json_string(qwen);
    assert_true(failures_after(TOKENIZER_MERGE, CASES_MERGE, "/pre_tokenizer/pretokenizers/0/pattern/Regex", text) > 0);
    json_object_put(qwen);
    assert_int_equal(heap.live, 0);
}

/* Every token of the fixtures can be reached by merging, so that ignore_merges needs a token that cannot. */
static void a_whole_piece_of_the_vocabulary_may_ignore_merges(void **state)
{
    (void)state;
    for (int ignore = 0; ignore < 2; ignore++) {
        struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE);
        struct err err = {0};
        change(&root, "/model/vocab/zqzq", "1600");
        change(&root, "/model/ignore_merges", ignore ? "true" : "false");
        struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
        assert_non_null(tokenizer);
        struct encoder *encoder = encoder_new(&heap, tokenizer, NULL, &err);
        assert_non_null(encoder);
        struct token_list ids;
        token_list_init(&ids, &heap, 100);
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            encode_text(encoder, "zqzq", 4, ENCODE_ALL, &ids);
            if (ignore) {
                assert_int_equal(ids.n, 1);
                assert_int_equal(ids.ids[0], 1600);
            } else {
                assert_int_equal(ids.n, 4);
            }
            encode_text(encoder, "zqzqz", 5, ENCODE_ALL, &ids); /* only a whole piece */
            assert_int_equal(ids.n, 5);
        }
        token_list_fini(&ids);
        encoder_free(encoder);
        tokenizer_free(tokenizer);
        json_object_put(root);
    }
    assert_int_equal(heap.live, 0);
}

#define PRE "/pre_tokenizer/pretokenizers"
#define LONG_16 "aaaaaaaaaaaaaaaa"
#define LONG_272                                                                                                    \
    LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 LONG_16 \
        LONG_16 LONG_16 LONG_16

/* Each change of a good file makes it bad, and the message says where. */
static const struct bad {
    const char *at, *value, *message;
} bad[] = {
    {"/model", NULL, "model: missing"},
    {"/model", "[]", "model: missing, or not an object"},
    {"/model/type", "\"WordPiece\"", "model.type: is \"WordPiece\""},
    {"/model/type", NULL, "model.type: is \"null\""},
    {"/model/vocab", NULL, "model.vocab: missing"},
    {"/model/vocab", "{}", "model.vocab: has no token for the single byte 0x00"},
    {"/model/vocab", "{\"a\": 0}", "model.vocab: has no token for the single byte 0x00"},
    {"/model/vocab/!", NULL, "model.vocab: has no token for the single byte 0x21"},
    {"/model/vocab/!", "-1", "model.vocab: the id of \"!\" is \"-1\""},
    {"/model/vocab/!", "2097152", "model.vocab: the id of \"!\" is \"2097152\""},
    {"/model/vocab/!", "18446744073709551616", "model.vocab: the id of \"!\""},
    {"/model/vocab/!", "1.0", "model.vocab: the id of \"!\""},
    {"/model/vocab/!", "\"0\"", "model.vocab: the id of \"!\""},
    {"/model/vocab/!", "null", "model.vocab: the id of \"!\""},
    {"/model/vocab/!", "1", "which another token has too"},
    {"/model/vocab/two words", "1463",
     "model.vocab: \"two words\" (id 1463) is outside the byte alphabet at its byte 3"},
    {"/model/vocab/\u4f60", "1499", "is outside the byte alphabet at its byte 0"},
    {"/model/vocab/", "1499", "model.vocab: an empty token string"},
    {"/model/merges", NULL, "model.merges: missing"},
    {"/model/merges", "{}", "model.merges: missing, or not an array"},
    {"/model/merges/3", "\"nospace\"", "model.merges[3]: neither two strings"},
    {"/model/merges/3", "\"a b c\"", "model.merges[3]: neither two strings"},
    {"/model/merges/3", "[\"a\"]", "model.merges[3]: neither two strings"},
    {"/model/merges/3", "[\"a\", \"b\", \"c\"]", "model.merges[3]: neither two strings"},
    {"/model/merges/3", "[\"a\", 1]", "model.merges[3]: neither two strings"},
    {"/model/merges/3", "null", "model.merges[3]: neither two strings"},
    {"/model/merges/3", "\"zqzq a\"", "model.merges[3]: \"zqzq\" is not in model.vocab"},
    {"/model/merges/3", "\" a\"", "model.merges[3]: \"\" is not in model.vocab"},
    {"/model/merges/3", "\"z q\"", "model.merges[3]: \"z\" and \"q\" are in model.vocab, but not both together"},
    {"/model/ignore_merges", "1", "model.ignore_merges: is neither true nor false"},
    {"/model/byte_fallback", "true", "model.byte_fallback: is \"true\""},
    {"/model/unk_token", "\"<unk>\"", "model.unk_token: is \"<unk>\""},
    {"/model/dropout", "0.1", "model.dropout: is \"0.1"},
    {"/model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix: is \"##\""},
    {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix: is \"</w>\""},
    {"/normalizer", "{\"type\": \"NFC\"}", "normalizer: is \"NFC\""},
    {"/pre_tokenizer", "null", "pre_tokenizer: is \"null\""},
    {"/pre_tokenizer", "{\"type\": \"ByteLevel\"}", "pre_tokenizer: is \"ByteLevel\" instead"},
    {PRE, "[]", "pre_tokenizer.pretokenizers: must be two"},
    {PRE "/0/type", "\"Digits\"", "pre_tokenizer.pretokenizers[0]: is \"Digits\""},
    {PRE "/0/pattern", "{\"String\": \" \"}", "pre_tokenizer.pretokenizers[0]: has no regular expression"},
    {PRE "/0/pattern/Regex", "\"\\\\s+\\n|\\\\S+\"",
     "pretokenizers[0]: its pattern is \"\\\\s+\\n|\\\\S+\", and that is not one"},
    {PRE "/0/behavior", "\"Removed\"", "pretokenizers[0]: its behavior is \"Removed\""},
    {PRE "/0/invert", "true", "pretokenizers[0]: its invert is not false"},
    {PRE "/1/type", "\"Metaspace\"", "pre_tokenizer.pretokenizers[1]: is \"Metaspace\""},
    {PRE "/1/add_prefix_space", "true", "pretokenizers[1]: add_prefix_space and use_regex"},
    {PRE "/1/use_regex", NULL, "pretokenizers[1]: add_prefix_space and use_regex"},
    {"/decoder", "null", "decoder: is \"null\""},
    {"/decoder/type", "\"WordPiece\"", "decoder: is \"WordPiece\""},
    {"/post_processor", "{\"type\": \"BertProcessing\"}", "post_processor: is \"BertProcessing\""},
    {"/post_processor", "{\"type\": \"TemplateProcessing\"}", "post_processor: single is not an array"},
    {"/post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}", "single does not hold the text"},
    {"/post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<bos>\"}}]}",
     "post_processor.single[0]: \"<bos>\" is not among added_tokens"},
    {"/post_processor",
     "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": "
     "\"<eop>\"}}]}",
     "post_processor.single[1]: tokens behind the text"},
    {"/added_tokens", "{}", "added_tokens: not an array"},
    {"/added_tokens/2", "7", "added_tokens[2]: not an object"},
    {"/added_tokens/2/content", "7", "added_tokens[2]: its content is not a string"},
    {"/added_tokens/2/content", "\"\"", "added_tokens[2]: its content \"\" is 0 bytes long"},
    {"/added_tokens/2/content", "\"" LONG_272 "\"", "is 272 bytes long"},
    {"/added_tokens/2/content", "\"<sop>\"", "\"<sop>\" was in an entry before"},
    {"/added_tokens/2/content", "\"the\"", "added_tokens[2]: \"the\" has id 1466 here and id "},
    {"/added_tokens/2/id", "5", "added_tokens[2]: \"[gMASK]\" has id 5, which another token has too"},
    {"/added_tokens/2/id", "1467", "added_tokens[3]: \"[sMASK]\" has id 1467, which another token has too"},
    {"/added_tokens/2/id", "-1", "added_tokens[2]: the id of \"[gMASK]\""},
    {"/added_tokens/2/special", NULL, "added_tokens[2]: \"[gMASK]\" does not say whether it is special"},
    {"/added_tokens/2/lstrip", "true", "added_tokens[2]: lstrip of \"[gMASK]\" is not false"},
    {"/added_tokens/2/rstrip", "true", "added_tokens[2]: rstrip of"},
    {"/added_tokens/2/single_word", "true", "added_tokens[2]: single_word of"},
    {"/added_tokens/2/normalized", "true", "added_tokens[2]: normalized of"},
};

static void bad_files_are_refused_with_the_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = {0};
        struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE);
        change(&root, bad[i].at, bad[i].value);
        struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
        if (tokenizer || !strstr(err.text, bad[i].message))
            print_error("%s = %s\n  want: %s\n  got:  %s\n", bad[i].at, bad[i].value, bad[i].message, err.text);
        assert_null(tokenizer);
        assert_int_equal(err.kind, ERR_DATA);
        assert_non_null(strstr(err.text, bad[i].message));
        assert_int_equal(strncmp(err.text, "changed.json: ", 14), 0);
        assert_null(strchr(err.text, '\n'));
        json_object_put(root);
    }
    print_message("%zu bad files\n", sizeof bad / sizeof *bad);
    assert_int_equal(heap.live, 0);
}

static void bad_json_is_refused_with_the_byte(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        size_t bytes; /* 0: all */
    } texts[] = {
        {"", "byte 0", 0},
        {"{", "byte 1", 0},
        {"[]", "not a JSON object", 0},
        {"null", "not a JSON object", 0},
        {"{} x", "byte 3", 0},
        {"{\"model\": NaN}", "byte 10", 0},
        {"{\"a\": \"\xff\"}", "byte 7", 0},
        {"{}\0", "byte 2", 3},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err err = {0};
        size_t bytes = texts[i].bytes ? texts[i].bytes : strlen(texts[i].text);
        assert_null(tokenizer_parse(&heap, "some.json", texts[i].text, bytes, &err));
        if (!strstr(err.text, texts[i].message)) print_error("%s: %s\n", texts[i].text, err.text);
        assert_non_null(strstr(err.text, texts[i].message));
        assert_int_equal(err.kind, ERR_DATA);
    }
    struct mem_files files = {0};
    struct err err = {0};
    mem_files_add(&files, "big.json", NULL, TOKENIZER_FILE_BYTES_MAX + 1);
    assert_null(tokenizer_new(&heap, mem_files_system(&files), "big.json", &err));
    assert_non_null(strstr(err.text, "big.json"));
    assert_null(tokenizer_new(&heap, mem_files_system(&files), "missing.json", &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_int_equal(heap.live, 0);
}

static void every_failed_allocation_is_an_error_without_a_leak(void **state)
{
    (void)state;
    struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE);
    const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN);
    uint64_t k = 1;
    for (;; k++) {
        struct alloc alloc = {.fail_at = k};
        struct err err = {0};
        struct tokenizer *tokenizer = tokenizer_parse(&alloc, "changed.json", text, strlen(text), &err);
        if (!tokenizer) assert_int_equal(err.kind, ERR_NOMEM);
        bool done = tokenizer && alloc.calls < k;
        tokenizer_free(tokenizer);
        assert_int_equal(alloc.live, 0);
        if (done) break;
    }
    print_message("%llu allocations failed one by one\n", (unsigned long long)k - 1);
    assert_true(k > 5);
    json_object_put(root);
}

static void both_forms_of_merges_are_the_same(void **state)
{
    (void)state;
    struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE), *merges = NULL;
    assert_int_equal(json_pointer_get(root, "/model/merges", &merges), 0);
    for (size_t i = 0; i < json_object_array_length(merges); i++) {
        struct json_object *pair = json_object_array_get_idx(merges, i);
        char joined[256];
        if (!json_object_is_type(pair, json_type_array)) continue;
        snprintf(joined, sizeof joined, "%s %s", json_object_get_string(json_object_array_get_idx(pair, 0)),
                 json_object_get_string(json_object_array_get_idx(pair, 1)));
        json_object_array_put_idx(merges, i, json_object_new_string(joined));
    }
    struct err err = {0};
    size_t n_cases;
    struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
    assert_non_null(tokenizer);
    assert_int_equal(tokenizer_count_failures(&heap, tokenizer, CASES_MERGE, 3, &n_cases), 0);
    tokenizer_free(tokenizer);
    json_object_put(root);
}

static void ids_are_found_by_content_and_back(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_IGNORE);
    uint32_t id = 0;
    assert_true(tokenizer_id(tokenizer, "<|user|>", &id));
    assert_int_equal(id, 4067);
    struct token token = tokenizer_token(tokenizer, id);
    assert_int_equal(token.kind, TOKEN_SPECIAL);
    assert_int_equal(token.n_bytes, 8);
    assert_memory_equal(token.bytes, "<|user|>", 8);
    assert_true(tokenizer_id(tokenizer, "<think>", &id));
    assert_int_equal(tokenizer_token(tokenizer, id).kind, TOKEN_ADDED);
    assert_false(tokenizer_id(tokenizer, "<|user|", &id));
    assert_false(tokenizer_id(tokenizer, "<|user|>x", &id));
    assert_false(tokenizer_id(tokenizer, "the", &id)); /* a base token is no added token */
    assert_false(tokenizer_id(tokenizer, "", &id));
    assert_int_equal(tokenizer_id_end(tokenizer), 4096);
    assert_true(tokenizer_ignores_merges(tokenizer));
    assert_int_equal(tokenizer_family(tokenizer), PRETOKEN_GLM);

    struct err err = {0};
    assert_true(tokenizer_token_bytes(tokenizer, 220, &token, &err));
    assert_int_equal(token.n_bytes, 1);
    assert_int_equal(token.bytes[0], ' '); /* the byte, not U+0120 */
    assert_int_equal(token.kind, TOKEN_BASE);
    assert_false(tokenizer_token_bytes(tokenizer, 4096, &token, &err));
    assert_int_equal(err.kind, ERR_USER);
    assert_string_equal(err.text, "token id 4096 has no token; ids of this tokenizer are below 4096");
    assert_false(tokenizer_token_bytes(tokenizer, UINT32_MAX, &token, &err));
    tokenizer_free(tokenizer);
}

static void dead_ids_are_listed(void **state)
{
    (void)state;
    struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE);
    struct err err = {0};
    change(&root, "/added_tokens/35/id", "1600"); /* leaves 1499..1599 without a token */
    struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
    assert_non_null(tokenizer);
    assert_int_equal(tokenizer_id_end(tokenizer), 1601);
    uint32_t ids[8];
    assert_int_equal(tokenizer_dead_ids(tokenizer, 1499, ids, 8), 0);
    assert_int_equal(tokenizer_dead_ids(tokenizer, 1604, ids, 8), 104);
    assert_int_equal(ids[0], 1499);
    assert_int_equal(ids[7], 1506);
    uint32_t all[104];
    assert_int_equal(tokenizer_dead_ids(tokenizer, 1604, all, 104), 104);
    assert_int_equal(all[100], 1599);
    assert_int_equal(all[101], 1601);
    assert_int_equal(tokenizer_token(tokenizer, 1599).kind, TOKEN_DEAD);
    tokenizer_free(tokenizer);
    json_object_put(root);
}

static void expect_prefix(const char *post_processor, const char *first, const char *second)
{
    struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE);
    struct err err = {0};
    change(&root, "/post_processor", post_processor);
    struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
    if (!tokenizer) print_error("%s\n", err.text);
    assert_non_null(tokenizer);
    const uint32_t *ids;
    uint32_t want;
    assert_int_equal(tokenizer_raw_prefix(tokenizer, &ids), second ? 2 : 1);
    assert_true(tokenizer_id(tokenizer, first, &want));
    assert_int_equal(ids[0], want);
    if (second) {
        assert_true(tokenizer_id(tokenizer, second, &want));
        assert_int_equal(ids[1], want);
    }
    tokenizer_free(tokenizer);
    json_object_put(root);
}

#define TEMPLATE(items) \
    "{\"type\": \"TemplateProcessing\", \"single\": [" items "{\"Sequence\": {\"id\": \"A\"}}], \"pair\": []}"
#define TOKEN(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}, "

static void raw_text_gets_what_the_template_says(void **state)
{
    (void)state;
    expect_prefix("null", "[gMASK]", "<sop>");
    expect_prefix("{\"type\": \"ByteLevel\"}", "[gMASK]", "<sop>");
    expect_prefix(TEMPLATE(TOKEN("[gMASK]") TOKEN("<sop>")), "[gMASK]", "<sop>");
    expect_prefix(TEMPLATE(TOKEN("<|endoftext|>")), "<|endoftext|>", NULL);
    expect_prefix("{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, " TEMPLATE(TOKEN("<eop>")) "]}",
                  "<eop>", NULL);
}

/* Some files list an added token in the vocabulary too, with the same id. */
static void an_added_token_may_be_in_the_vocabulary_too(void **state)
{
    (void)state;
    struct json_object *root = tokenizer_fixture_json(&heap, TOKENIZER_MERGE);
    struct err err = {0};
    change(&root, "/model/vocab/[gMASK]", "1466");
    struct tokenizer *tokenizer = tokenizer_from_json(&heap, root, &err);
    if (!tokenizer) print_error("%s\n", err.text);
    assert_non_null(tokenizer);
    assert_int_equal(tokenizer_token(tokenizer, 1466).kind, TOKEN_SPECIAL);
    assert_int_equal(tokenizer_token(tokenizer, 1466).n_bytes, 7);
    tokenizer_free(tokenizer);
    json_object_put(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases_agree_with_the_reference),
        cmocka_unit_test(the_cases_notice_wrong_rules),
        cmocka_unit_test(a_whole_piece_of_the_vocabulary_may_ignore_merges),
        cmocka_unit_test(bad_files_are_refused_with_the_place),
        cmocka_unit_test(bad_json_is_refused_with_the_byte),
        cmocka_unit_test(every_failed_allocation_is_an_error_without_a_leak),
        cmocka_unit_test(both_forms_of_merges_are_the_same),
        cmocka_unit_test(ids_are_found_by_content_and_back),
        cmocka_unit_test(dead_ids_are_listed),
        cmocka_unit_test(raw_text_gets_what_the_template_says),
        cmocka_unit_test(an_added_token_may_be_in_the_vocabulary_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
