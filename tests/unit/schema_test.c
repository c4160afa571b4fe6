/* Schemas keyword by keyword: what is taken, what is not, what is refused and where. */
#include "base/buf.h"
#include "support/check.h"
#include "support/constrained.h"
#include "support/schema_check.h"
#include <math.h>
#include <stdlib.h>

struct texts {
    const char *schema;
    const char *good[8], *bad[10];
};

static void check_texts(struct constrained *c, const struct texts *t)
{
    struct err err = {0};
    struct constraint *constraint = constrained_schema(c, t->schema, &err);
    if (!constraint) fail_msg("%s: %s", t->schema, err.text);
    for (int i = 0; i < 8 && t->good[i]; i++)
        if (!constrained_takes(c, constraint, t->good[i], strlen(t->good[i])))
            fail_msg("%s should take %s", t->schema, t->good[i]);
    for (int i = 0; i < 10 && t->bad[i]; i++)
        if (constrained_takes(c, constraint, t->bad[i], strlen(t->bad[i])))
            fail_msg("%s should not take %s", t->schema, t->bad[i]);
    constraint_drop(constraint);
}

static void keywords_are_enforced(void **state)
{
    (void)state;
    static const struct texts all[] = {
        {"{\"type\":\"string\"}", {"\"\"", "\"a\\n\"", "\"\\u0000\""}, {"1", "null", "a", "[\"a\"]"}},
        {"{\"type\":[\"integer\",\"null\"]}", {"1", "null"}, {"1.0", "1e1", "\"1\"", "true"}},
        {"{\"enum\":[\"a\",1,null,[1,{\"b\":[]}],\"é\\\"\"]}",
         {"\"a\"", "1", "null", "[1, {\"b\": []}]", "[1,{\"b\":[]}]", "\"é\\\"\""},
         {"\"b\"", "a", "[1,{\"b\": []}]", "[ 1]", "\"\\u00e9\\\"\""}},
        {"{\"const\":{\"k\":1.5}}", {"{\"k\": 1.5}", "{\"k\":1.5}"}, {"{}", "{\"k\": 1.50}"}},
        {"{\"type\":\"string\",\"enum\":[\"a\",1,\"abcd\"],\"maxLength\":3}", {"\"a\""}, {"1", "\"abcd\""}},
        {"{\"enum\":[1,2,3,2.5],\"type\":\"integer\",\"minimum\":2}", {"2", "3"}, {"1", "2.5"}},
        {"{\"anyOf\":[{\"const\":\"a\"},{\"const\":\"b\"},{\"type\":\"null\"}]}",
         {"\"a\"", "\"b\"", "null"},
         {"\"c\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"é日\"", "\"\\u00e9\\ud83d\\ude00x\"", "\"\\n\\n\\n\""},
         {"\"\"", "\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
        {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\"", "\"é\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}", {"\"abc\""}, {"\"\"", "\"a1\"", "\"\\u0061\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\\n\\\"\""}, {"\"\"", "\"ac\""}},
        {"{\"pattern\":\"^\\\"\\\\n$\"}", {"\"\\\"\\n\""}, {"\"\"\"", "\"\\\"\n\"", "1"}},
        {"{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":2,\"maxLength\":3}",
         {"\"aa\"", "\"aaa\""},
         {"\"a\"", "\"aaaa\"", "\"ab\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"0000-01-01\"", "\"24-1-1\""}},
        {"{\"format\":\"ipv6\"}",
         {"\"::\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1\"", "\"::ffff:1.2.3.4\"", "\"1::\""},
         {"\"1:2:3\"", "\"1::2::3\"", "\":::\"", "\"g::\"", "\"1:2:3:4:5:6:7:8:9\""}},
        {"{\"format\":\"made-up\"}", {"1", "\"x\"", "{}"}, {"x"}},
        {"{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}",
         {"-3", "0", "-0", "9", "12"},
         {"-4", "13", "100", "1.0", "-10", "007"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":99,\"exclusiveMaximum\":1000}",
         {"100", "999", "500"},
         {"99", "1000", "98", "0", "-100", "10000"}},
        {"{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}", {"1", "2"}, {"0", "3"}},
        {"{\"type\":\"integer\",\"minimum\":-1e300}", {"-9999999999999999", "7"}, {"7.5"}},
        {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":0.25}",
         {"-1.5", "0", "0.25", "0.250", "-0.9", "-1", "-0.0"},
         {"-1.51", "0.26", "1", "-2", "0.2500000000000001", "1e-3"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0}",
         {"0.1", "1", "0.0000000000001", "99999999999999.9"},
         {"0", "0.0", "-0", "-1", "0.12345678901234567"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
         {"[1]", "[1, 2]"},
         {"[]", "[1,2,3]", "[\"a\"]", "[1,]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
         {"[]", "[1]", "[1,\"a\"]"},
         {"[\"a\"]", "[1,2]", "[1,\"a\",2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},\"minItems\":2,"
         "\"maxItems\":3}",
         {"[1,null]", "[1,null,null]"},
         {"[1]", "[1,1]", "[1,null,null,null]"}},
        {"{\"type\":\"array\",\"items\":false}", {"[]", "[ ]"}, {"[1]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\"}", {"[]", "[1,{\"a\":[]}]"}, {"{}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"ab\":{},\"b\":{\"type\":\"null\"}},"
         "\"required\":[\"ab\"]}",
         {"{\"ab\":1}", "{\"a\":1,\"ab\":[]}", "{\"ab\":{},\"b\":null}", "{\"a\": 1, \"ab\": 2, \"b\": null}"},
         {"{}", "{\"a\":1}", "{\"ab\":1,\"a\":1}", "{\"ab\":1,\"c\":1}", "{\"ab\":1,\"ab\":1}", "{\"b\":null,\"ab\":1}",
          "{,\"ab\":1}", "{\"ab\":1,}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":"
         "\"null\"}}",
         {"{}", "{\"a\":1}", "{\"a\":1,\"x\":null,\"\":null}", "{\"aa\":null}", "{\"\\\"\":null}"},
         {"{\"a\":null}", "{\"x\":1}", "{\"x\":null,\"a\":1}", "{\"\\u0061\":null}", "{\"\\u0000\":null}"}},
        {"{\"type\":\"object\"}", {"{}", "{\"x\":[1]}"}, {"[]"}},
        {"{\"type\":\"object\",\"properties\":{}}", {"{}"}, {"{\"x\":1}"}},
        {"{\"type\":\"object\",\"additionalProperties\":false}", {"{}", "{ }"}, {"{\"x\":1}"}},
        {"{\"required\":[\"a\",\"b\"]}", {"{\"a\":1,\"b\":2}"}, {"{\"a\":1}", "{\"b\":2,\"a\":1}", "1"}},
        {"{\"properties\":{\"never\":false,\"a\":true}}", {"{}", "{\"a\":1}"}, {"{\"never\":1}"}},
        {"{\"properties\":{\"日本\":{\"const\":1},\"a\\\"b\":{\"const\":2}}}",
         {"{\"日本\":1}", "{\"日本\":1,\"a\\\"b\":2}"},
         {"{\"\\u65e5本\":1}"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{"
         "\"properties\""
         ":{\"b\":{\"type\":\"null\"},\"a\":{\"minimum\":5}}}]}",
         {"{\"a\":5}", "{\"a\":6,\"b\":null}"},
         {"{\"a\":4}", "{}", "{\"b\":null}"}},
        {"{\"allOf\":[{\"$ref\":\"#/$defs/x\"}],\"description\":\"d\",\"$defs\":{\"x\":{\"type\":\"boolean\"}}}",
         {"true", "false"},
         {"null"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
         {"{}"}},
        {"{\"$ref\":\"#/$defs/a~1b%20c\",\"$defs\":{\"a/b c\":{\"type\":\"integer\"}},\"maximum\":3}", {"3"}, {"4"}},
        {"{\"definitions\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{"
         "\"anyOf\":[{"
         "\"$ref\":\"#/definitions/n\"},{\"type\":\"null\"}]}},\"required\":[\"next\"]}},\"$ref\":\"#/definitions/n\"}",
         {"{\"next\":null}", "{\"v\":1,\"next\":{\"next\":{\"v\":2,\"next\":null}}}"},
         {"{\"v\":1}", "{\"next\":{}}"}},
        {"{\"uniqueItems\":false,\"type\":\"array\",\"minProperties\":0,\"title\":\"t\",\"default\":[],\"x-other\":{"
         "\"not\":"
         "1},\"readOnly\":true,\"examples\":[1]}",
         {"[1, 1]"},
         {"1"}},
        {"true", {"1", "{\"a\":null}"}, {""}},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_texts(&c, &all[i]);
    print_message("%zu schemas\n", sizeof all / sizeof *all);
    constrained_fini(&c);
}

/* As client libraries write them. */
static void schemas_of_common_libraries_work(void **state)
{
    (void)state;
    static const struct texts all[] = {
        {"{\"$defs\":{\"Color\":{\"enum\":[\"red\",\"green\"],\"title\":\"Color\",\"type\":\"string\"},\"Point\":{"
         "\"properties"
         "\":{\"x\":{\"title\":\"X\",\"type\":\"number\"},\"y\":{\"default\":0,\"maximum\":10,\"minimum\":0,\"title\":"
         "\"Y\","
         "\"type\":\"integer\"}},\"required\":[\"x\"],\"title\":\"Point\",\"type\":\"object\"}},\"properties\":{"
         "\"name\":{"
         "\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}],\"default\":null,\"title\":\"Name\"},\"color\":{\"$"
         "ref\":"
         "\"#/$defs/Color\"},\"points\":{\"items\":{\"$ref\":\"#/$defs/"
         "Point\"},\"title\":\"Points\",\"type\":\"array\"},"
         "\"when\":{\"format\":\"date-time\",\"title\":\"When\",\"type\":\"string\"},\"kind\":{\"const\":\"shape\","
         "\"default\":"
         "\"shape\",\"title\":\"Kind\",\"type\":\"string\"},\"extra\":{\"additionalProperties\":{\"type\":\"integer\"},"
         "\"title\":\"Extra\",\"type\":\"object\"}},\"required\":[\"color\",\"points\",\"when\"],\"title\":\"Shape\","
         "\"type\":"
         "\"object\"}",
         {"{\"color\":\"red\",\"points\":[],\"when\":\"2024-01-31T23:59:59Z\"}",
          "{\"name\": null, \"color\": \"green\", \"points\": [{\"x\": 1.5, \"y\": 10}, {\"x\": -3}], \"when\": "
          "\"2024-01-31T23:59:59.25+01:00\", \"kind\": \"shape\", \"extra\": {\"a\": 1, \"b\": -2}}"},
         {"{\"color\":\"blue\",\"points\":[],\"when\":\"2024-01-31T23:59:59Z\"}",
          "{\"color\":\"red\",\"points\":[{\"x\":1,\"y\":11}],\"when\":\"2024-01-31T23:59:59Z\"}",
          "{\"color\":\"red\",\"points\":[],\"when\":\"today\"}", "{\"points\":[],\"when\":\"2024-01-31T23:59:59Z\"}"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/"
         "schema#\",\"type\":\"object\",\"properties\":{\"id\":{\"type\":"
         "\"string\",\"format\":\"uuid\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1},"
         "\"maxItems\":5},\"owner\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"type\":{\"type\":\"string\","
         "\"const\":"
         "\"user\"},\"login\":{\"type\":\"string\"}},\"required\":[\"type\",\"login\"],\"additionalProperties\":false},"
         "{"
         "\"type\":\"object\",\"properties\":{\"type\":{\"type\":\"string\",\"const\":\"team\"},\"size\":{\"type\":"
         "\"integer\","
         "\"exclusiveMinimum\":0}},\"required\":[\"type\",\"size\"],\"additionalProperties\":false}]}},\"required\":["
         "\"id\","
         "\"tags\",\"owner\"],\"additionalProperties\":false}",
         {"{\"id\":\"123e4567-e89b-12d3-a456-426614174000\",\"tags\":[\"a\"],\"owner\":{\"type\":\"team\",\"size\":3}"
          "}"},
         {"{\"id\":\"123e4567-e89b-12d3-a456-426614174000\",\"tags\":[\"\"],\"owner\":{\"type\":\"team\",\"size\":3}}",
          "{\"id\":\"123e4567-e89b-12d3-a456-426614174000\",\"tags\":[],\"owner\":{\"type\":\"team\",\"size\":0}}",
          "{\"id\":\"123e4567-e89b-12d3-a456-426614174000\",\"tags\":[],\"owner\":{\"type\":\"user\",\"size\":3}}"}},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_texts(&c, &all[i]);
    constrained_fini(&c);
}

static void what_cannot_be_enforced_is_refused_by_its_pointer(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *text;
    } cases[] = {
        {"{\"properties\":{\"a/b\":{\"items\":{\"not\":{}}}}}",
         "unsupported_schema: schema#/properties/a~1b/items/not: "},
        {"{\"if\":{}}", "unsupported_schema: schema#/if: "},
        {"{\"anyOf\":[{},{\"patternProperties\":{\"a\":{}}}]}",
         "unsupported_schema: schema#/anyOf/1/patternProperties: "},
        {"{\"$defs\":{\"x\":{\"uniqueItems\":true}},\"properties\":{\"p\":{\"$ref\":\"#/$defs/x\"}}}",
         "unsupported_schema: schema#/$defs/x/uniqueItems: "},
        {"{\"multipleOf\":2}", "unsupported_schema: schema#/multipleOf: "},
        {"{\"contentEncoding\":\"base64\"}", "unsupported_schema: schema#/contentEncoding: "},
        {"{\"minProperties\":1}", "unsupported_schema: schema#/minProperties: "},
        {"{\"$ref\":\"http://example.org/x\"}", "unsupported_schema: schema#/$ref: only references"},
        {"{\"$ref\":\"#/nowhere\"}", "invalid_schema: schema#/$ref: there is nothing"},
        {"{\"$ref\":\"#\"}", "invalid_schema: schema#: this schema refers back to itself"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "invalid_schema: schema#: this schema refers back"},
        {"{\"allOf\":[{\"$ref\":\"#/allOf/0\"}]}", "invalid_schema: schema#/allOf/0: this schema refers back"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "unsupported_schema: nothing that ends"},
        {"false", "unsupported_schema: nothing that ends"},
        {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}", "unsupported_schema: nothing that ends"},
        {"{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "unsupported_schema: nothing that ends"},
        {"{\"type\":\"string\",\"const\":1}", "unsupported_schema: nothing that ends"},
        {"{\"type\":\"strin\"}", "invalid_schema: schema#/type: "},
        {"{\"type\":[]}", "invalid_schema: schema#/type: "},
        {"{\"enum\":[]}", "invalid_schema: schema#/enum: "},
        {"{\"minLength\":-1}", "invalid_schema: schema#/minLength: "},
        {"{\"minLength\":1.5}", "invalid_schema: schema#/minLength: "},
        {"{\"maxLength\":10001}", "unsupported_schema: schema#/maxLength: this may be 10000 at most"},
        {"{\"minLength\":3,\"maxLength\":2}", "invalid_schema: schema#/maxLength: this is less"},
        {"{\"maxItems\":1001}", "unsupported_schema: schema#/maxItems: "},
        {"{\"minimum\":\"1\"}", "invalid_schema: schema#/minimum: "},
        {"{\"exclusiveMinimum\":true}", "invalid_schema: schema#/exclusiveMinimum: "},
        {"{\"pattern\":\"a(?=b)\"}", "unsupported_schema: schema#/pattern: byte 1: look-around"},
        {"{\"pattern\":\"[\"}", "invalid_schema: schema#/pattern: byte 0: "},
        {"{\"properties\":[]}", "invalid_schema: schema#/properties: "},
        {"{\"properties\":{\"a\":1}}", "invalid_schema: schema#/properties/a: "},
        {"{\"required\":\"a\"}", "invalid_schema: schema#/required: "},
        {"{\"anyOf\":[]}", "invalid_schema: schema#/anyOf: "},
        {"{\"items\":[{}]}", "unsupported_schema: schema#/items: "},
        {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{\"b\":{}}}]}",
         "unsupported_schema: schema#/allOf/0/additionalProperties: "},
        {"{\"type\":\"object\",\"enum\":[{}],\"required\":[\"a\"]}", "unsupported_schema: schema#/enum: "},
        {"[]", "invalid_schema: schema#: a schema must be"},
        {"null", "invalid_schema: schema#: a schema must be"},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        if (constrained_schema(&c, cases[i].schema, &err)) fail_msg("%s was taken", cases[i].schema);
        assert_int_equal(err.kind, ERR_USER);
        if (strncmp(err.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].schema, err.text, cases[i].text);
    }
    print_message("%zu refusals\n", sizeof cases / sizeof *cases);
    constrained_fini(&c);
}

static void strict_schemas_meet_the_demands(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *text;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\",\"null\"]}},\"required\":[\"a\"],"
         "\"additionalProperties\":false}",
         NULL},
        {"{\"type\":\"string\"}", "type object"},
        {"{\"anyOf\":[{\"type\":\"object\"}]}", "must not be an anyOf"},
        {"{\"type\":\"object\",\"properties\":{}}", "additionalProperties false"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[],\"additionalProperties\":false}",
         "in required"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}}},"
         "\"required\":["
         "\"a\"],\"additionalProperties\":false}",
         "additionalProperties false"},
        {"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false,\"$defs\":{\"x\":{\"type\":\"object\"}}"
         "}",
         "additionalProperties false"},
    };
    struct constrained c;
    constrained_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct constraint *constraint;
        struct constraint_request request = {.kind = CONSTRAINT_SCHEMA, .strict = true};
        request.value = json_of(cases[i].schema);
        bool ok = constraint_new(&constraint, &c.alloc, &request, &c.ids, &err);
        json_object_put(request.value);
        constraint_drop(constraint);
        assert_int_equal(ok, cases[i].text == NULL);
        if (!ok &&
            (strncmp(err.text, "invalid_schema: schema#: strict: ", 33) != 0 || !strstr(err.text, cases[i].text)))
            fail_msg("%s: %s", cases[i].schema, err.text);
    }
    constrained_fini(&c);
}

/* ---- numbers ---- */

static struct json_object *random_bound(struct numbers *k, bool whole)
{
    static const double scales[] = {1, 10, 1000, 1e6, 1e-3, 1e12, 1e17};
    double value = (philox_unit(k->key, k->next++) - 0.5) * 2 * scales[numbers_below(k, 7)];
    if (numbers_below(k, 4) == 0) value = trunc(value * 100) / 8;
    if (whole || numbers_below(k, 5) == 0) return json_object_new_int64((int64_t)value);
    return json_object_new_double(value);
}

/* Numbers near the bounds, and others, in the forms that are generated. */
static void random_number(struct numbers *k, struct json_object *near, bool whole, char *out)
{
    double value = near ? json_object_get_double(near) : 0;
    if (fabs(value) > 1e15) value = 0;
    if (whole) {
        snprintf(out, 64, "%lld", (long long)value + numbers_below(k, 7) - 3);
        return;
    }
    double steps[] = {0, 1e-9, -1e-9, 1, -1, 0.5, 1e-3, -1e-3};
    snprintf(out, 64, "%.*f", (int)numbers_below(k, 13), value + steps[numbers_below(k, 8)]);
    char *point = strchr(out, '.');
    if (point && numbers_below(k, 2)) /* without zeros at the end */
        while (out[strlen(out) - 1] == '0') out[strlen(out) - 1] = 0;
    if (out[strlen(out) - 1] == '.') out[strlen(out) - 1] = 0;
}

static size_t digits_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += *text >= '0' && *text <= '9';
    return n;
}

static void bounds_agree_with_doubles(void **state)
{
    (void)state;
    static const char *const lows[] = {"minimum", "exclusiveMinimum"}, *const highs[] = {"maximum", "exclusiveMaximum"};
    struct constrained c;
    struct numbers k = {.key = 31};
    uint32_t n_inside = 0, n_outside = 0, n_empty = 0;
    constrained_init(&c);
    for (int round = 0; round < 400; round++) {
        struct err err = {0};
        struct json_object *schema = json_object_new_object(), *bounds[2] = {NULL, NULL};
        bool whole = numbers_below(&k, 2), exclusive = false;
        json_object_object_add(schema, "type", json_object_new_string(whole ? "integer" : "number"));
        for (int side = 0; side < 2; side++) {
            if (numbers_below(&k, 4) == 0) continue;
            bool is_exclusive = numbers_below(&k, 2);
            bounds[side] = random_bound(&k, whole && numbers_below(&k, 2));
            exclusive |= is_exclusive;
            json_object_object_add(schema, side ? highs[is_exclusive] : lows[is_exclusive], bounds[side]);
        }
        struct constraint *constraint = constrained_schema(&c, json_object_to_json_string(schema), &err);
        for (int i = 0; i < 30; i++) {
            char text[64], why[256];
            random_number(&k, bounds[numbers_below(&k, 2)], whole, text);
            struct json_object *value = json_of(text);
            bool want = schema_holds(schema, schema, value, why);
            /* Forms that are not generated. */
            bool can = whole || !(bounds[0] || bounds[1]) || digits_of(text) <= (exclusive ? 15 : 16);
            bool have = constraint && constrained_takes(&c, constraint, text, strlen(text));
            if (have != (want && can) && (want || have) && can)
                fail_msg("%s on %s: %d, doubles say %d", json_object_to_json_string(schema), text, have, want);
            n_inside += want;
            n_outside += !want;
            json_object_put(value);
        }
        if (!constraint) {
            assert_non_null(strstr(err.text, "nothing that ends"));
            n_empty++;
        }
        constraint_drop(constraint);
        json_object_put(schema);
    }
    print_message("key %llu: %u numbers inside, %u outside, %u ranges empty\n", (unsigned long long)k.key, n_inside,
                  n_outside, n_empty);
    assert_true(n_inside > 2000 && n_outside > 2000 && n_empty > 20);
    constrained_fini(&c);
}

/* ---- size ---- */

static void large_schemas_have_limits(void **state)
{
    (void)state;
    struct constrained c;
    struct err err = {0};
    struct buf text;
    constrained_init(&c);
    for (int n = 5000; n <= 5001; n++) {
        buf_init(&text, &c.alloc, 4 << 20);
        assert_true(buf_add_text(&text, "{\"type\":\"object\",\"properties\":{", &err));
        for (int i = 0; i < n; i++)
            assert_true(buf_printf(&text, &err, "%s\"member%d\":{\"type\":\"integer\"}", i ? "," : "", i));
        assert_true(buf_add_text(&text, "}}", &err));
        struct constraint *constraint = constrained_schema(&c, text.data, &err);
        if (n == 5000) {
            const char *const good = "{\"member0\":1,\"member77\":2,\"member4999\":3}";
            if (!constraint) fail_msg("%s", err.text);
            assert_true(constrained_takes(&c, constraint, good, strlen(good)));
            const char *const bad = "{\"member77\":1,\"member0\":2}";
            assert_false(constrained_takes(&c, constraint, bad, strlen(bad)));
        } else {
            assert_null(constraint);
            assert_non_null(strstr(err.text, "more than 5000 members"));
        }
        constraint_drop(constraint);
        buf_fini(&text);
    }
    /* A thousand constants, as a list and one by one. */
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        buf_init(&text, &c.alloc, 4 << 20);
        assert_true(buf_add_text(&text, one_by_one ? "{\"anyOf\":[" : "{\"enum\":[", &err));
        for (int i = 0; i < 1000; i++)
            assert_true(buf_printf(&text, &err,
                                   one_by_one ? "%s{\"const\":\"a long common beginning %d\"}"
                                              : "%s\"a long common beginning %d\"",
                                   i ? "," : "", i));
        assert_true(buf_add_text(&text, "]}", &err));
        struct constraint *constraint = constrained_schema(&c, text.data, &err);
        if (!constraint) fail_msg("%s", err.text);
        assert_true(constrained_takes(&c, constraint, "\"a long common beginning 999\"", 29));
        assert_false(constrained_takes(&c, constraint, "\"a long common beginning 1000\"", 30));
        constraint_drop(constraint);
        buf_fini(&text);
    }
    /* Choices that multiply, and text beyond a mebibyte. */
    buf_init(&text, &c.alloc, 4 << 20);
    assert_true(buf_add_text(&text, "{\"allOf\":[", &err));
    for (int i = 0; i < 20; i++)
        assert_true(buf_printf(&text, &err, "%s{\"anyOf\":[{\"minimum\":%d},{\"maximum\":%d},{\"minimum\":%d}]}",
                               i ? "," : "", i, i + 100, i + 300));
    assert_true(buf_add_text(&text, "]}", &err));
    assert_null(constrained_schema(&c, text.data, &err));
    assert_non_null(strstr(err.text, "unsupported_schema: "));
    buf_clear(&text);
    assert_true(buf_add_text(&text, "{\"title\":\"", &err));
    for (int i = 0; i < 70000; i++) assert_true(buf_add_text(&text, "0123456789abcdef", &err));
    assert_true(buf_add_text(&text, "\"}", &err));
    assert_null(constrained_schema(&c, text.data, &err));
    assert_non_null(strstr(err.text, "1048576 bytes at most"));
    buf_fini(&text);
    constrained_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_are_enforced),
        cmocka_unit_test(schemas_of_common_libraries_work),
        cmocka_unit_test(what_cannot_be_enforced_is_refused_by_its_pointer),
        cmocka_unit_test(strict_schemas_meet_the_demands),
        cmocka_unit_test(bounds_agree_with_doubles),
        cmocka_unit_test(large_schemas_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
