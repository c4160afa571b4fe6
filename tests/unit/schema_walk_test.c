/* Random schemas, random walks along the masks: what comes out must be JSON, and an independent validator must agree.
 */
#include "base/buf.h"
#include "fmt/json_doc.h"
#include "support/check.h"
#include "support/constrained.h"
#include "support/schema_check.h"

/* ---- random schemas ---- */

enum feature {
    F_STRING,
    F_LENGTH,
    F_PATTERN,
    F_FORMAT,
    F_INTEGER,
    F_INTEGER_BOUNDS,
    F_NUMBER,
    F_NUMBER_BOUNDS,
    F_EXCLUSIVE,
    F_BOOLEAN,
    F_NULL,
    F_ENUM,
    F_CONST,
    F_ARRAY,
    F_ITEM_COUNTS,
    F_PREFIX,
    F_OBJECT,
    F_OPTIONAL,
    F_UNICODE_KEY,
    F_ADDITIONAL,
    F_ADDITIONAL_SCHEMA,
    F_ANY_OF_NULL,
    F_ONE_OF,
    F_ALL_OF,
    F_REF,
    F_ANYTHING,
    F_TYPE_LIST,
    N_FEATURES,
};

struct maker {
    struct numbers *numbers;
    uint32_t used[N_FEATURES];
};

static uint32_t pick(struct maker *k, uint32_t n)
{
    return numbers_below(k->numbers, n);
}

static void put(struct json_object *object, const char *key, struct json_object *value)
{
    assert_int_equal(json_object_object_add(object, key, value), 0);
}

static struct json_object *typed(const char *type)
{
    struct json_object *schema = json_object_new_object();
    put(schema, "type", json_object_new_string(type));
    return schema;
}

static struct json_object *make(struct maker *k, int depth);

static struct json_object *make_string(struct maker *k)
{
    static const char *const patterns[] = {
        "^[a-z]{2,5}$",  "^(red|green|blue)$", "\\d{3}",          "^\\w+@\\w+$",
        "a.c",           "^[^\"\\\\]*$",       "^é+[ü日]?$",      "^.{0,3}$",
        "^\\s*$|^x{2}$", "[\\u4e00-\\u9fff]",  "^(?:ab|\\\\n)+$",
    };
    static const char *const formats[] = {"date", "time",  "date-time", "duration", "uuid",   "ipv4",
                                          "ipv6", "email", "hostname",  "uri",      "unknown"};
    struct json_object *schema = typed("string");
    k->used[F_STRING]++;
    uint32_t kind = pick(k, 5);
    if (kind == 1 || kind == 4) {
        uint32_t min = pick(k, 6);
        k->used[F_LENGTH]++;
        if (pick(k, 2)) put(schema, "minLength", json_object_new_int((int)min));
        if (pick(k, 3)) put(schema, "maxLength", json_object_new_int((int)(min + 6 + pick(k, 20))));
    }
    if (kind == 2 || kind == 4) {
        /* Those that any length satisfies, when there is a length too. */
        static const uint32_t open[] = {2, 4, 5, 9};
        uint32_t p = kind == 4 ? open[pick(k, 4)] : pick(k, sizeof patterns / sizeof *patterns);
        put(schema, "pattern", json_object_new_string(patterns[p]));
        k->used[F_PATTERN]++;
    }
    if (kind == 3) {
        put(schema, "format", json_object_new_string(formats[pick(k, sizeof formats / sizeof *formats)]));
        k->used[F_FORMAT]++;
    }
    return schema;
}

static struct json_object *make_integer(struct maker *k)
{
    struct json_object *schema = typed("integer");
    k->used[F_INTEGER]++;
    if (pick(k, 3) == 0) return schema;
    int64_t low = (int64_t)pick(k, 4000) - 2000, wide = pick(k, 3) ? pick(k, 300) : (int64_t)pick(k, 1u << 31) << 18;
    k->used[F_INTEGER_BOUNDS]++;
    if (pick(k, 4)) put(schema, "minimum", json_object_new_int64(low));
    if (pick(k, 4)) put(schema, pick(k, 2) ? "maximum" : "exclusiveMaximum", json_object_new_int64(low + 1 + wide));
    return schema;
}

static struct json_object *make_number(struct maker *k)
{
    static const double lows[] = {-273.15, -1, 0, 0.1, 1e-7, 3, 99.5, -1e6, -0.5, 1.0 / 3};
    struct json_object *schema = typed("number");
    k->used[F_NUMBER]++;
    if (pick(k, 3) == 0) return schema;
    double low = lows[pick(k, sizeof lows / sizeof *lows)], high = low + lows[3 + pick(k, 4)];
    bool exclusive = pick(k, 2);
    k->used[F_NUMBER_BOUNDS]++;
    k->used[F_EXCLUSIVE] += exclusive;
    if (pick(k, 4)) put(schema, exclusive ? "exclusiveMinimum" : "minimum", json_object_new_double(low));
    if (pick(k, 4)) put(schema, pick(k, 2) ? "exclusiveMaximum" : "maximum", json_object_new_double(high));
    return schema;
}

static struct json_object *make_value(struct maker *k)
{
    static const char *const values[] = {
        "null",
        "true",
        "3",
        "-2.5",
        "\"red\"",
        "\"\"",
        "\"with \\\"quote\\\" é\"",
        "[1, [2], {\"a\": null}]",
        "{\"x\": 1, \"y\": []}",
        "1e300",
        "12345678901234567890",
        "\"\\n\\u0001\"",
    };
    return json_of(values[pick(k, sizeof values / sizeof *values)]);
}

static struct json_object *make_fixed(struct maker *k)
{
    struct json_object *schema = json_object_new_object();
    if (pick(k, 3) == 0) {
        put(schema, "const", make_value(k));
        k->used[F_CONST]++;
        return schema;
    }
    struct json_object *list = json_object_new_array();
    for (uint32_t i = 0, n = 1 + pick(k, 8); i < n; i++) json_object_array_add(list, make_value(k));
    put(schema, "enum", list);
    k->used[F_ENUM]++;
    return schema;
}

static struct json_object *make_array(struct maker *k, int depth)
{
    struct json_object *schema = typed("array");
    k->used[F_ARRAY]++;
    if (pick(k, 4)) put(schema, "items", make(k, depth - 1));
    if (pick(k, 4) == 0) {
        struct json_object *prefix = json_object_new_array();
        for (uint32_t i = 0, n = 1 + pick(k, 3); i < n; i++) json_object_array_add(prefix, make(k, depth - 1));
        put(schema, "prefixItems", prefix);
        k->used[F_PREFIX]++;
    }
    if (pick(k, 2)) {
        uint32_t min = pick(k, 3);
        if (pick(k, 2)) put(schema, "minItems", json_object_new_int((int)min));
        if (pick(k, 2)) put(schema, "maxItems", json_object_new_int((int)(min + pick(k, 4))));
        k->used[F_ITEM_COUNTS]++;
    }
    return schema;
}

static struct json_object *make_object(struct maker *k, int depth)
{
    static const char *const keys[] = {"a", "ab", "abc", "name", "é日", "with \"quote\"", "", "b/c~d", "\n", "name2"};
    struct json_object *schema = typed("object"), *members = json_object_new_object(),
                       *required = json_object_new_array();
    k->used[F_OBJECT]++;
    for (uint32_t i = 0, n = pick(k, 5); i < n; i++) {
        uint32_t key = pick(k, sizeof keys / sizeof *keys);
        if (json_object_object_get_ex(members, keys[key], NULL)) continue;
        put(members, keys[key], make(k, depth - 1));
        k->used[F_UNICODE_KEY] += key == 4;
        if (pick(k, 2))
            json_object_array_add(required, json_object_new_string(keys[key]));
        else
            k->used[F_OPTIONAL]++;
    }
    if (pick(k, 6) == 0) json_object_array_add(required, json_object_new_string("not declared"));
    if (pick(k, 8))
        put(schema, "properties", members);
    else
        json_object_put(members);
    put(schema, "required", required);
    uint32_t more = pick(k, 6);
    if (more == 1) {
        put(schema, "additionalProperties", json_object_new_boolean(true));
        k->used[F_ADDITIONAL]++;
    } else if (more == 2) {
        put(schema, "additionalProperties", make(k, depth - 1));
        k->used[F_ADDITIONAL_SCHEMA]++;
    }
    return schema;
}

static struct json_object *make_union(struct maker *k, int depth)
{
    struct json_object *schema = json_object_new_object(), *list = json_object_new_array();
    bool one_of = pick(k, 3) == 0;
    for (uint32_t i = 0, n = 1 + pick(k, 3); i < n; i++) json_object_array_add(list, make(k, depth - 1));
    if (pick(k, 2)) {
        json_object_array_add(list, typed("null"));
        k->used[F_ANY_OF_NULL] += !one_of;
    }
    k->used[F_ONE_OF] += one_of;
    put(schema, one_of ? "oneOf" : "anyOf", list);
    put(schema, "title", json_object_new_string("A title"));
    return schema;
}

static struct json_object *make_all_of(struct maker *k, int depth)
{
    struct json_object *schema = json_object_new_object(), *list = json_object_new_array();
    for (uint32_t i = 0; i < 2; i++) {
        struct json_object *part = typed("object"), *members = json_object_new_object();
        struct json_object *required = json_object_new_array();
        put(members, i ? "second" : "first", make(k, depth - 1));
        put(members, "both", i ? typed("number") : typed("integer"));
        json_object_array_add(required, json_object_new_string(i ? "second" : "both"));
        put(part, "properties", members);
        put(part, "required", required);
        json_object_array_add(list, part);
    }
    put(schema, "allOf", list);
    k->used[F_ALL_OF]++;
    return schema;
}

static struct json_object *make_ref(struct maker *k)
{
    static const char *const refs[] = {"#/$defs/one", "#/$defs/two", "#/$defs/three", "#"};
    struct json_object *schema = json_object_new_object();
    put(schema, "$ref", json_object_new_string(refs[pick(k, 4)]));
    if (pick(k, 3) == 0) put(schema, "description", json_object_new_string("about it"));
    k->used[F_REF]++;
    return schema;
}

static struct json_object *make_types(struct maker *k)
{
    struct json_object *schema = json_object_new_object(), *list = json_object_new_array();
    static const char *const types[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    for (uint32_t i = 0, n = 1 + pick(k, 3); i < n; i++)
        json_object_array_add(list, json_object_new_string(types[pick(k, 7)]));
    put(schema, "type", list);
    if (pick(k, 2)) put(schema, "maxLength", json_object_new_int(7));
    if (pick(k, 2)) put(schema, "minimum", json_object_new_int(0));
    k->used[F_TYPE_LIST]++;
    return schema;
}

static struct json_object *make(struct maker *k, int depth)
{
    switch (pick(k, depth > 0 ? 20 : 9)) {
    case 0:
    case 1: return make_string(k);
    case 2: return make_integer(k);
    case 3: return make_number(k);
    case 4: k->used[F_BOOLEAN]++; return typed("boolean");
    case 5: k->used[F_NULL]++; return typed("null");
    case 6: return make_fixed(k);
    case 7: return make_types(k);
    case 8: k->used[F_ANYTHING]++; return pick(k, 2) ? json_object_new_object() : json_object_new_boolean(true);
    case 9:
    case 10: return make_array(k, depth);
    case 11: return make_all_of(k, depth);
    case 12:
    case 13: return make_union(k, depth);
    case 14: return make_ref(k);
    default: return make_object(k, depth);
    }
}

static struct json_object *make_root(struct maker *k)
{
    struct json_object *root = make_object(k, 3), *defs = json_object_new_object();
    put(defs, "one", make(k, 2));
    put(defs, "two", make_object(k, 2));
    put(defs, "three",
        json_of("{\"type\": \"object\", \"properties\": {\"next\": {\"anyOf\": [{\"$ref\": "
                "\"#/$defs/three\"}, {\"type\": \"null\"}]}, \"v\": {\"type\": \"integer\"}}, "
                "\"required\": [\"next\"], \"additionalProperties\": false}"));
    put(root, "$defs", defs);
    return root;
}

/* ---- walks ---- */

struct totals {
    uint32_t schemas, refused, whole, cut, checked, tokens;
};

static struct json_object *parse(const char *text, size_t n, struct err *err)
{
    struct alloc alloc = {0};
    struct json_object *doc = NULL;
    if (!json_doc_parse(&doc, &alloc, &json_rules_request, "output", text, n, err)) return NULL;
    return doc ? doc : json_object_new_string("(null)"); /* the root is an object: this fails validation */
}

static void check_output(struct json_object *schema, const struct buf *out, uint64_t key)
{
    struct err err = {0};
    char why[256];
    struct json_object *doc = parse(out->data, out->bytes, &err);
    if (!doc) fail_msg("schema %llu: not JSON: %s\n%s", (unsigned long long)key, err.text, out->data);
    if (!schema_holds(schema, schema, doc, why))
        fail_msg("schema %llu: %s is violated\n%s\n%s", (unsigned long long)key, why,
                 json_object_to_json_string(schema), out->data);
    json_object_put(doc);
}

static void walk_schema(struct constrained *c, struct json_object *schema, uint64_t key, struct totals *totals)
{
    struct err err = {0};
    struct constraint *constraint = NULL;
    struct numbers numbers = {.key = key};
    struct constraint_request request = {.kind = CONSTRAINT_SCHEMA, .value = schema};
    request.blanks = key % 5 == 0 ? JSON_BLANKS_FIXED : JSON_BLANKS_ANY;
    totals->schemas++;
    if (!constraint_new(&constraint, &c->alloc, &request, &c->ids, &err)) {
        assert_int_equal(err.kind, ERR_USER);
        /* A reference into itself, or required members that never end. */
        if (!strstr(err.text, "nothing that ends") && !strstr(err.text, "refers back to itself"))
            fail_msg("schema %llu: %s\n%s", (unsigned long long)key, err.text, json_object_to_json_string(schema));
        totals->refused++;
        return;
    }
    for (int i = 0; i < 3; i++) {
        struct buf out;
        buf_init(&out, &c->alloc, 1 << 20);
        struct walk walk = {&numbers, i == 0 ? 0 : 40, 1500, 29, &out, 0, 0};
        bool whole = constrained_walk(c, constraint, &walk);
        totals->whole += whole;
        totals->cut += !whole;
        totals->checked += walk.n_checked;
        totals->tokens += walk.n_tokens;
        if (whole) check_output(schema, &out, key);
        buf_fini(&out);
    }
    constraint_drop(constraint);
}

static void walks_end_in_valid_json(void **state)
{
    (void)state;
    static const char *const names[] = {"string",
                                        "length",
                                        "pattern",
                                        "format",
                                        "integer",
                                        "bounds of integers",
                                        "number",
                                        "bounds of numbers",
                                        "exclusive bounds",
                                        "boolean",
                                        "null",
                                        "enum",
                                        "const",
                                        "array",
                                        "counts of items",
                                        "prefixItems",
                                        "object",
                                        "optional members",
                                        "unicode keys",
                                        "additional members",
                                        "additional members with a schema",
                                        "anyOf with null",
                                        "oneOf",
                                        "allOf",
                                        "$ref",
                                        "anything",
                                        "list of types"};
    struct constrained c;
    struct totals totals = {0};
    struct numbers numbers = {.key = 20260101};
    struct maker maker = {.numbers = &numbers};
    constrained_init(&c);
    for (uint64_t key = 0; key < 300; key++) {
        struct json_object *schema = make_root(&maker);
        walk_schema(&c, schema, key, &totals);
        json_object_put(schema);
    }
    print_message("key %llu: %u schemas (%u refused: nothing that ends satisfies them), %u whole answers, %u cut, "
                  "%u tokens, %u masks equal to brute force\n",
                  (unsigned long long)numbers.key, totals.schemas, totals.refused, totals.whole, totals.cut,
                  totals.tokens, totals.checked);
    for (int f = 0; f < N_FEATURES; f++) {
        if (maker.used[f] < 5) print_error("%s was made %u times\n", names[f], maker.used[f]);
        assert_true(maker.used[f] >= 5);
    }
    assert_true(totals.refused < 60);
    assert_true(totals.whole > 600);
    assert_true(totals.cut * 20 < totals.whole);
    constrained_fini(&c);
}

/* Wrong on purpose: answers to the first schema are held against the second, which asks for more. */
static void a_weaker_constraint_is_noticed(void **state)
{
    (void)state;
    static const struct {
        const char *weak, *strong;
    } pairs[] = {
        {"{\"type\":\"integer\"}", "{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}"},
        {"{\"type\":\"number\"}", "{\"type\":\"number\",\"exclusiveMinimum\":0}"},
        {"{\"type\":\"string\"}", "{\"type\":\"string\",\"maxLength\":4}"},
        {"{\"type\":\"string\"}", "{\"type\":\"string\",\"pattern\":\"^[a-z]*$\"}"},
        {"{\"type\":\"string\",\"maxLength\":10}", "{\"type\":\"string\",\"format\":\"date\"}"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}}}", "{\"required\":[\"a\"]}"},
        {"{\"type\":\"object\",\"additionalProperties\":true}", "{\"additionalProperties\":false}"},
        {"{\"type\":\"array\"}", "{\"items\":{\"type\":\"null\"},\"maxItems\":2}"},
        {"{\"enum\":[1,2,3]}", "{\"enum\":[1,2]}"},
        {"{}", "{\"type\":\"object\"}"},
    };
    struct constrained c;
    struct numbers numbers = {.key = 3};
    constrained_init(&c);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct err err = {0};
        char why[256];
        uint32_t n_seen = 0;
        struct json_object *strong = json_of(pairs[i].strong);
        struct constraint *constraint = constrained_schema(&c, pairs[i].weak, &err);
        assert_non_null(constraint);
        for (int round = 0; round < 60; round++) {
            struct buf out;
            buf_init(&out, &c.alloc, 1 << 20);
            struct walk walk = {&numbers, 10, 500, 0, &out, 0, 0};
            if (constrained_walk(&c, constraint, &walk)) {
                struct json_object *doc = json_of(out.data);
                n_seen += !schema_holds(strong, strong, doc, why);
                json_object_put(doc);
            }
            buf_fini(&out);
        }
        if (n_seen == 0) fail_msg("no answer to %s violates %s", pairs[i].weak, pairs[i].strong);
        constraint_drop(constraint);
        json_object_put(strong);
    }
    constrained_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weaker_constraint_is_noticed),
        cmocka_unit_test(walks_end_in_valid_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
