/* Every form in which a request can ask for structured output. */
#include "gram/constraint_forms.h"

#include "support/check.h"
#include "support/constrained.h"

static void forms_say_what_they_ask_for(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        enum constraint_kind kind;
        const char *taken; /* by the constraint */
    } cases[] = {
        {"{}", CONSTRAINT_NONE, NULL},
        {"{\"response_format\":null,\"grammar\":null}", CONSTRAINT_NONE, NULL},
        {"{\"response_format\":{\"type\":\"text\"}}", CONSTRAINT_NONE, NULL},
        {"{\"text\":{\"verbosity\":\"low\"}}", CONSTRAINT_NONE, NULL},
        {"{\"response_format\":{\"type\":\"json_object\"}}", CONSTRAINT_JSON_OBJECT, "{}"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"null\"}"
         "}}}",
         CONSTRAINT_SCHEMA, "null"},
        {"{\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{\"type\":\"null\"}}}}",
         CONSTRAINT_SCHEMA, "null"},
        {"{\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"null\"}}}}",
         CONSTRAINT_SCHEMA, "null"},
        {"{\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"null\"}}}", CONSTRAINT_SCHEMA, "null"},
        {"{\"guided_json\":{\"type\":\"null\"}}", CONSTRAINT_SCHEMA, "null"},
        {"{\"guided_json\":\"{\\\"type\\\": \\\"null\\\"}\"}", CONSTRAINT_SCHEMA, "null"},
        {"{\"guided_regex\":\"a+\"}", CONSTRAINT_REGEX, "aa"},
        {"{\"guided_choice\":[\"x\",\"y\"]}", CONSTRAINT_CHOICE, "y"},
        {"{\"guided_grammar\":\"root ::= \\\"z\\\"\"}", CONSTRAINT_GBNF, "z"},
        {"{\"grammar\":\"root ::= \\\"z\\\"\"}", CONSTRAINT_GBNF, "z"},
        {"{\"structured_outputs\":{\"regex\":\"a+\"}}", CONSTRAINT_REGEX, "a"},
        {"{\"structured_outputs\":{\"choice\":[\"x\"]}}", CONSTRAINT_CHOICE, "x"},
        {"{\"structured_outputs\":{\"grammar\":\"root ::= \\\"z\\\"\"}}", CONSTRAINT_GBNF, "z"},
        {"{\"structured_outputs\":{\"json_object\":true}}", CONSTRAINT_JSON_OBJECT, "{\"a\":1}"},
        {"{\"structured_outputs\":{\"json_object\":false}}", CONSTRAINT_NONE, NULL},
        {"{\"structured_outputs\":{\"json\":{\"type\":\"array\"},\"any_whitespace\":false}}", CONSTRAINT_SCHEMA,
         "[1, 2]"},
        {"{\"structured_outputs\":{\"type\":\"null\"}}", CONSTRAINT_SCHEMA, "null"},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct constraint_forms forms;
        struct constraint *constraint;
        struct json_object *body = json_of(cases[i].body);
        if (!constraint_forms_read(&forms, &c.alloc, body, &err)) fail_msg("%s: %s", cases[i].body, err.text);
        if (forms.request.kind != cases[i].kind) fail_msg("%s: kind %d", cases[i].body, forms.request.kind);
        if (!constraint_new(&constraint, &c.alloc, &forms.request, &c.ids, &err))
            fail_msg("%s: %s", cases[i].body, err.text);
        assert_int_equal(constraint != NULL, cases[i].taken != NULL);
        if (constraint && !constrained_takes(&c, constraint, cases[i].taken, strlen(cases[i].taken)))
            fail_msg("%s should take %s", cases[i].body, cases[i].taken);
        if (i == 20) assert_false(constrained_takes(&c, constraint, "[1,2]", 5));
        constraint_drop(constraint);
        constraint_forms_fini(&forms);
        constraint_forms_fini(&forms);
        json_object_put(body);
    }
    constrained_fini(&c);
}

static void wrong_forms_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body, *text;
    } cases[] = {
        {"{\"response_format\":{\"type\":\"json_object\"},\"grammar\":\"root ::= \\\"z\\\"\"}",
         "conflicting_constraints: response_format and grammar"},
        {"{\"guided_regex\":\"a\",\"guided_choice\":[\"b\"]}",
         "conflicting_constraints: guided_regex and guided_choice"},
        {"{\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}",
         "conflicting_constraints: structured_outputs and structured_outputs"},
        {"{\"guided_json\":{},\"structured_outputs\":{\"type\":\"null\"}}",
         "conflicting_constraints: guided_json and structured_outputs"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}}",
         "invalid_schema: response_format: the schema is missing"},
        {"{\"response_format\":{\"type\":\"json_schema\"}}", "invalid_schema: response_format: the schema is missing"},
        {"{\"response_format\":{\"type\":\"xml\"}}", "invalid_schema: response_format: the type must be"},
        {"{\"response_format\":\"json\"}", "invalid_schema: response_format: it needs a type"},
        {"{\"response_format\":{\"type\":\"structural_tag\"}}", "unsupported_schema: response_format: structural"},
        {"{\"structural_tag\":{}}", "unsupported_schema: structural_tag: "},
        {"{\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\" *\"}}",
         "unsupported_schema: structured_outputs: "},
        {"{\"guided_regex\":1}", "invalid_schema: guided_regex: this must be a text"},
        {"{\"guided_json\":\"{\"}", "invalid_schema: guided_json: byte 1"},
        {"{\"structured_outputs\":[]}", "invalid_schema: structured_outputs: this must be an object"},
        {"{\"output_format\":{\"type\":\"json_schema\",\"schema\":{},\"strict\":1}}", "invalid_schema: strict: "},
    };
    struct alloc alloc = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct constraint_forms forms;
        struct json_object *body = json_of(cases[i].body);
        assert_false(constraint_forms_read(&forms, &alloc, body, &err));
        assert_int_equal(err.kind, ERR_USER);
        if (strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].body, err.text, cases[i].text);
        json_object_put(body);
    }
    assert_int_equal(alloc.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_say_what_they_ask_for),
        cmocka_unit_test(wrong_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
