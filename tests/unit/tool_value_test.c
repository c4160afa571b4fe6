#include "fmt/json_text.h"
#include "fmt/tool_value.h"
#include "support/check.h"
#include "support/lines.h"

static struct alloc heap;

/* A schema of the argument (NULL: the tool has no parameters), what the model wrote, and the value as compact JSON. */
static const struct {
    const char *schema, *text, *value;
} cases[] = {
    /* May be a string: the text, exactly. */
    {"{\"type\":\"string\"}", "5", "\"5\""},
    {"{\"type\":\"string\"}", " a\n", "\" a\\n\""},
    {"{\"type\":\"string\"}", "null", "\"null\""},
    {"{\"type\":\"string\"}", "{\"a\":1}", "\"{\\\"a\\\":1}\""},
    {"{\"type\":\"string\"}", "\"quoted\"", "\"\\\"quoted\\\"\""},
    {"{\"type\":\"string\"}", "", "\"\""},
    {"{\"type\":[\"string\",\"null\"]}", "null", "null"},
    {"{\"type\":[\"string\",\"null\"]}", " null", "\" null\""},
    {"{\"type\":\"string\",\"nullable\":true}", "null", "null"},
    {"{\"type\":[\"string\",\"integer\"]}", "5", "\"5\""},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", "5", "\"5\""},
    {"{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}", "null", "null"},
    {"{\"enum\":[\"a\",\"b\"]}", "a", "\"a\""},
    {"{\"enum\":[\"a\",5]}", "a", "\"a\""},
    {"{\"enum\":[\"a\",5]}", "5", "5"},
    {"{\"enum\":[\"5\",5]}", "5", "\"5\""},
    {"{\"anyOf\":[{\"const\":\"auto\"},{\"type\":\"number\"}]}", "1.5", "1.5"},
    {"{\"anyOf\":[{\"const\":\"auto\"},{\"type\":\"number\"}]}", "auto", "\"auto\""},
    {"{\"anyOf\":[{\"const\":\"auto\"},{\"type\":\"number\"}]}", "other", "\"other\""},
    {"{\"allOf\":[{\"type\":\"string\"},{\"minLength\":1}]}", "7", "\"7\""},
    {"{\"$ref\":\"#/$defs/name\"}", "7", "\"7\""},
    {"{\"$ref\":\"#/$defs/twice\"}", "7", "\"7\""},

    /* Not a string: JSON, or Python's words. */
    {"{\"type\":\"integer\"}", " 5\n", "5"},
    {"{\"type\":\"integer\"}", "123456789012345678901234567890", "123456789012345678901234567890"},
    {"{\"type\":\"integer\"}", "five", "\"five\""},
    {"{\"type\":\"integer\"}", "5.", "\"5.\""},
    {"{\"type\":\"boolean\"}", "true", "true"},
    {"{\"type\":\"boolean\"}", "True", "true"},
    {"{\"type\":\"boolean\"}", " False ", "false"},
    {"{\"type\":\"boolean\"}", "yes", "\"yes\""},
    {"{\"type\":\"null\"}", "None", "null"},
    {"{\"type\":\"number\"}", "NaN", "\"NaN\""},
    {"{\"type\":\"number\"}", "1e2", "100.0"},
    {"{\"type\":\"array\"}", "[1, \"a\"]", "[1,\"a\"]"},
    {"{\"type\":\"array\"}", "[1, ", "\"[1, \""},
    {"{\"type\":\"object\"}", "{\"a\": {\"b\": null}}", "{\"a\":{\"b\":null}}"},
    {"{\"properties\":{\"x\":{}}}", "{}", "{}"},
    {"{\"$ref\":\"#/$defs/count\"}", "7", "7"},

    /* Nothing said: JSON unless it is a string. */
    {NULL, "5", "5"},
    {NULL, "text", "\"text\""},
    {NULL, "\"quoted\"", "\"\\\"quoted\\\"\""},
    {NULL, "null", "null"},
    {NULL, "True", "\"True\""},
    {"{}", "[1]", "[1]"},
    {"true", "5", "5"},
    {"{\"description\":\"x\"}", "5", "5"},
    {"{\"$ref\":\"#/$defs/missing\"}", "5", "5"},
    {"{\"$ref\":\"http://example.com/x\"}", "5", "5"},
    {"{\"$ref\":\"#/$defs/loop\"}", "5", "5"},
    {"{\"$ref\":7}", "5", "5"},
};

static struct json_object *parameters_with(const char *schema)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"$defs\":{\"name\":{\"type\":\"string\"},\"twice\":{\"$ref\":\"#/$defs/name\"},\"count\":{\"type\":"
             "\"integer\"},\"loop\":{\"$ref\":\"#/$defs/loop\"}},\"properties\":{\"k\":%s}}",
             schema);
    return fixture_json(&heap, text);
}

static void the_schema_decides_between_text_and_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_object *parameters = cases[i].schema ? parameters_with(cases[i].schema) : NULL, *value;
        struct tool_argument argument = {"k", cases[i].text, strlen(cases[i].text)};
        struct err err = {0};
        struct buf out;
        buf_init(&out, &heap, 1 << 16);
        assert_true(tool_value_make(&value, &heap, parameters, &argument, &err));
        assert_true(json_text_add(&out, value, JSON_COMPACT, &err));
        if (strcmp(out.data, cases[i].value) != 0) print_error("%s: '%s'\n", cases[i].schema, cases[i].text);
        assert_string_equal(out.data, cases[i].value);
        buf_fini(&out);
        json_object_put(value);
        json_object_put(parameters);
    }
    assert_int_equal(heap.live, 0);
}

static void hostile_schemas_end(void **state)
{
    (void)state;
    /* Each visit of the root doubles: without a bound this would never return. */
    struct json_object *parameters = fixture_json(
        &heap, "{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"},{\"type\":[\"string\",\"integer\"],\"enum\":[1]}],"
               "\"properties\":{\"k\":{\"$ref\":\"#\"}}}");
    struct tool_argument argument = {"k", "5", 1};
    struct json_object *value;
    struct err err = {0};
    assert_true(tool_value_make(&value, &heap, parameters, &argument, &err));
    assert_non_null(value);
    json_object_put(value);
    json_object_put(parameters);
}

static void required_arguments_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *parameters;
        bool required;
    } some[] = {{"{}", false},
                {"{\"required\":[]}", false},
                {"{\"required\":[\"a\"]}", true},
                {"[]", false},
                {"{\"$ref\":\"#/x\",\"x\":{\"required\":[\"a\"]}}", true}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct json_object *parameters = fixture_json(&heap, some[i].parameters);
        assert_int_equal(tool_value_required(parameters), some[i].required);
        json_object_put(parameters);
    }
    assert_false(tool_value_required(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_schema_decides_between_text_and_json),
        cmocka_unit_test(hostile_schemas_end),
        cmocka_unit_test(required_arguments_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
