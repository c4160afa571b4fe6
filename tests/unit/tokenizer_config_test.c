#include "fmt/tokenizer_config.h"

#include "support/check.h"
#include "support/tokenizers.h"

static struct alloc heap;

#define LIST(entries) "{\"added_tokens_decoder\": {" entries "}}"

static const struct {
    const char *json, *warning; /* NULL: none */
} cases[] = {
    {"{}", NULL},
    {"[]", NULL},
    {LIST(""), NULL},
    {LIST("\"1471\": {\"content\": \"<|user|>\", \"special\": true}"), NULL},
    {LIST("\"1471\": {\"content\": \"<|user|>\"}"), NULL},
    {LIST("\"1471\": {\"content\": \"<|user|>\", \"special\": false}"), "\"1471\" is \"<|user|>\", which is special"},
    {LIST("\"1485\": {\"content\": \"<think>\", \"special\": true}"), "\"1485\" is \"<think>\", which is not special"},
    {LIST("\"7\": {\"content\": \"<|user|>\", \"special\": true}"), "\"7\" is \"<|user|>\", which has id 1471"},
    {LIST("\"01471\": {\"content\": \"<|user|>\", \"special\": true}"), "which has id 1471"},
    {LIST("\"1471\": {\"content\": \"<user>\"}"), "\"<user>\", which is no added token"},
    {LIST("\"1471\": {}"), "\"1471\" has no content"},
    {LIST("\"1471\": null"), "\"1471\" has no content"},
};

static void contradictions_are_told(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct buf warnings;
    struct err err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_init(&warnings, &heap, 1 << 16);
        assert_true(tokenizer_config_compare(tokenizer, &heap, "config.json", cases[i].json, strlen(cases[i].json),
                                             &warnings, &err));
        if (!cases[i].warning) assert_int_equal(warnings.bytes, 0);
        if (cases[i].warning) {
            if (!strstr(warnings.data, cases[i].warning)) print_error("%s", warnings.data);
            assert_non_null(strstr(warnings.data, cases[i].warning));
            assert_ptr_equal(strchr(warnings.data, '\n'), warnings.data + warnings.bytes - 1); /* one line */
        }
        buf_fini(&warnings);
    }
    buf_init(&warnings, &heap, 1 << 16);
    assert_false(tokenizer_config_compare(tokenizer, &heap, "config.json", "{", 1, &warnings, &err));
    assert_int_equal(err.kind, ERR_DATA);
    tokenizer_free(tokenizer);
    assert_int_equal(heap.live, 0);
}

static void warnings_have_a_limit(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct buf json, warnings;
    struct err err = {0};
    size_t n_lines = 0;
    buf_init(&json, &heap, 1 << 16);
    buf_init(&warnings, &heap, 1 << 16);
    assert_true(buf_add_text(&json, "{\"added_tokens_decoder\": {", &err));
    for (int i = 0; i < 100; i++)
        assert_true(buf_printf(&json, &err, "%s\"%d\": {\"content\": \"x\"}", i ? "," : "", i));
    assert_true(buf_add_text(&json, "}}", &err));
    assert_true(tokenizer_config_compare(tokenizer, &heap, "config.json", json.data, json.bytes, &warnings, &err));
    for (const char *c = warnings.data; *c; c++) n_lines += *c == '\n';
    assert_int_equal(n_lines, TOKENIZER_CONFIG_WARNINGS_MAX + 1);
    assert_non_null(strstr(warnings.data, "80 more like these"));
    buf_fini(&json);
    buf_fini(&warnings);
    tokenizer_free(tokenizer);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contradictions_are_told),
        cmocka_unit_test(warnings_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
