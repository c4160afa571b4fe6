/* Random schemas, random walks along the masks: what comes out must be JSON, and an independent validator must agree.
 */
#include "base/buf.h"
#include "fmt/json_doc.h"
#include "support/check.h"
#include "support/constrained.h"
#include "support/random_schema.h"
#include "support/schema_check.h"

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
    struct constrained c;
    struct totals totals = {0};
    struct numbers numbers = {.key = 20260101};
    struct schema_maker maker = {.numbers = &numbers};
    constrained_init(&c);
    for (uint64_t key = 0; key < 300; key++) {
        struct json_object *schema = schema_make(&maker);
        walk_schema(&c, schema, key, &totals);
        json_object_put(schema);
    }
    print_message("key %llu: %u schemas (%u refused: nothing that ends satisfies them), %u whole answers, %u cut, "
                  "%u tokens, %u masks equal to brute force\n",
                  (unsigned long long)numbers.key, totals.schemas, totals.refused, totals.whole, totals.cut,
                  totals.tokens, totals.checked);
    for (enum schema_feature f = 0; f < SCHEMA_FEATURES; f++) {
        if (maker.used[f] < 5) print_error("%s was made %u times\n", schema_feature_name(f), maker.used[f]);
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
