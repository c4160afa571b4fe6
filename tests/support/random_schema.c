#include "support/random_schema.h"

#include "support/check.h"

static uint32_t pick(struct schema_maker *k, uint32_t n)
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

static struct json_object *make(struct schema_maker *k, int depth);

static struct json_object *make_string(struct schema_maker *k)
{
    static const char *const patterns[] = {
        "^[a-z]{2,5}$",  "^(red|green|blue)$", "\\d{3}",          "^\\w+@\\w+$",
        "a.c",           "^[^\"\\\\]*$",       "^é+[ü日]?$",      "^.{0,3}$",
        "^\\s*$|^x{2}$", "[\\u4e00-\\u9fff]",  "^(?:ab|\\\\n)+$",
    };
    static const char *const formats[] = {"date", "time",  "date-time", "duration", "uuid",   "ipv4",
                                          "ipv6", "email", "hostname",  "uri",      "unknown"};
    struct json_object *schema = typed("string");
    k->used[SCHEMA_STRING]++;
    uint32_t kind = pick(k, 5);
    if (kind == 1 || kind == 4) {
        uint32_t min = pick(k, 6);
        k->used[SCHEMA_LENGTH]++;
        if (pick(k, 2)) put(schema, "minLength", json_object_new_int((int)min));
        if (pick(k, 3)) put(schema, "maxLength", json_object_new_int((int)(min + 6 + pick(k, 20))));
    }
    if (kind == 2 || kind == 4) {
        /* Those that any length satisfies, when there is a length too. */
        static const uint32_t open[] = {2, 4, 5, 9};
        uint32_t p = kind == 4 ? open[pick(k, 4)] : pick(k, sizeof patterns / sizeof *patterns);
        put(schema, "pattern", json_object_new_string(patterns[p]));
        k->used[SCHEMA_PATTERN]++;
    }
    if (kind == 3) {
        put(schema, "format", json_object_new_string(formats[pick(k, sizeof formats / sizeof *formats)]));
        k->used[SCHEMA_FORMAT]++;
    }
    return schema;
}

static struct json_object *make_integer(struct schema_maker *k)
{
    struct json_object *schema = typed("integer");
    k->used[SCHEMA_INTEGER]++;
    if (pick(k, 3) == 0) return schema;
    int64_t low = (int64_t)pick(k, 4000) - 2000, wide = pick(k, 3) ? pick(k, 300) : (int64_t)pick(k, 1u << 31) << 18;
    k->used[SCHEMA_INTEGER_BOUNDS]++;
    if (pick(k, 4)) put(schema, "minimum", json_object_new_int64(low));
    if (pick(k, 4)) put(schema, pick(k, 2) ? "maximum" : "exclusiveMaximum", json_object_new_int64(low + 1 + wide));
    return schema;
}

static struct json_object *make_number(struct schema_maker *k)
{
    static const double lows[] = {-273.15, -1, 0, 0.1, 1e-7, 3, 99.5, -1e6, -0.5, 1.0 / 3};
    struct json_object *schema = typed("number");
    k->used[SCHEMA_NUMBER]++;
    if (pick(k, 3) == 0) return schema;
    double low = lows[pick(k, sizeof lows / sizeof *lows)], high = low + lows[3 + pick(k, 4)];
    bool exclusive = pick(k, 2);
    k->used[SCHEMA_NUMBER_BOUNDS]++;
    k->used[SCHEMA_EXCLUSIVE] += exclusive;
    if (pick(k, 4)) put(schema, exclusive ? "exclusiveMinimum" : "minimum", json_object_new_double(low));
    if (pick(k, 4)) put(schema, pick(k, 2) ? "exclusiveMaximum" : "maximum", json_object_new_double(high));
    return schema;
}

static struct json_object *make_value(struct schema_maker *k)
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

static struct json_object *make_fixed(struct schema_maker *k)
{
    struct json_object *schema = json_object_new_object();
    if (pick(k, 3) == 0) {
        put(schema, "const", make_value(k));
        k->used[SCHEMA_CONST]++;
        return schema;
    }
    struct json_object *list = json_object_new_array();
    for (uint32_t i = 0, n = 1 + pick(k, 8); i < n; i++) json_object_array_add(list, make_value(k));
    put(schema, "enum", list);
    k->used[SCHEMA_ENUM]++;
    return schema;
}

static struct json_object *make_array(struct schema_maker *k, int depth)
{
    struct json_object *schema = typed("array");
    k->used[SCHEMA_ARRAY]++;
    if (pick(k, 4)) put(schema, "items", make(k, depth - 1));
    if (pick(k, 4) == 0) {
        struct json_object *prefix = json_object_new_array();
        for (uint32_t i = 0, n = 1 + pick(k, 3); i < n; i++) json_object_array_add(prefix, make(k, depth - 1));
        put(schema, "prefixItems", prefix);
        k->used[SCHEMA_PREFIX]++;
    }
    if (pick(k, 2)) {
        uint32_t min = pick(k, 3);
        if (pick(k, 2)) put(schema, "minItems", json_object_new_int((int)min));
        if (pick(k, 2)) put(schema, "maxItems", json_object_new_int((int)(min + pick(k, 4))));
        k->used[SCHEMA_ITEM_COUNTS]++;
    }
    return schema;
}

static struct json_object *make_object(struct schema_maker *k, int depth)
{
    static const char *const keys[] = {"a", "ab", "abc", "name", "é日", "with \"quote\"", "", "b/c~d", "\n", "name2"};
    struct json_object *schema = typed("object"), *members = json_object_new_object(),
                       *required = json_object_new_array();
    k->used[SCHEMA_OBJECT]++;
    for (uint32_t i = 0, n = pick(k, 5); i < n; i++) {
        uint32_t key = pick(k, sizeof keys / sizeof *keys);
        if (json_object_object_get_ex(members, keys[key], NULL)) continue;
        put(members, keys[key], make(k, depth - 1));
        k->used[SCHEMA_UNICODE_KEY] += key == 4;
        if (pick(k, 2))
            json_object_array_add(required, json_object_new_string(keys[key]));
        else
            k->used[SCHEMA_OPTIONAL]++;
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
        k->used[SCHEMA_ADDITIONAL]++;
    } else if (more == 2) {
        put(schema, "additionalProperties", make(k, depth - 1));
        k->used[SCHEMA_ADDITIONAL_SCHEMA]++;
    }
    return schema;
}

static struct json_object *make_union(struct schema_maker *k, int depth)
{
    struct json_object *schema = json_object_new_object(), *list = json_object_new_array();
    bool one_of = pick(k, 3) == 0;
    for (uint32_t i = 0, n = 1 + pick(k, 3); i < n; i++) json_object_array_add(list, make(k, depth - 1));
    if (pick(k, 2)) {
        json_object_array_add(list, typed("null"));
        k->used[SCHEMA_ANY_OF_NULL] += !one_of;
    }
    k->used[SCHEMA_ONE_OF] += one_of;
    put(schema, one_of ? "oneOf" : "anyOf", list);
    put(schema, "title", json_object_new_string("A title"));
    return schema;
}

static struct json_object *make_all_of(struct schema_maker *k, int depth)
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
    k->used[SCHEMA_ALL_OF]++;
    return schema;
}

static struct json_object *make_ref(struct schema_maker *k)
{
    static const char *const refs[] = {"#/$defs/one", "#/$defs/two", "#/$defs/three", "#"};
    struct json_object *schema = json_object_new_object();
    put(schema, "$ref", json_object_new_string(refs[pick(k, 4)]));
    if (pick(k, 3) == 0) put(schema, "description", json_object_new_string("about it"));
    k->used[SCHEMA_REF]++;
    return schema;
}

static struct json_object *make_types(struct schema_maker *k)
{
    struct json_object *schema = json_object_new_object(), *list = json_object_new_array();
    static const char *const types[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    for (uint32_t i = 0, n = 1 + pick(k, 3); i < n; i++)
        json_object_array_add(list, json_object_new_string(types[pick(k, 7)]));
    put(schema, "type", list);
    if (pick(k, 2)) put(schema, "maxLength", json_object_new_int(7));
    if (pick(k, 2)) put(schema, "minimum", json_object_new_int(0));
    k->used[SCHEMA_TYPE_LIST]++;
    return schema;
}

static struct json_object *make(struct schema_maker *k, int depth)
{
    switch (pick(k, depth > 0 ? 20 : 9)) {
    case 0:
    case 1: return make_string(k);
    case 2: return make_integer(k);
    case 3: return make_number(k);
    case 4: k->used[SCHEMA_BOOLEAN]++; return typed("boolean");
    case 5: k->used[SCHEMA_NULL]++; return typed("null");
    case 6: return make_fixed(k);
    case 7: return make_types(k);
    case 8: k->used[SCHEMA_ANYTHING]++; return pick(k, 2) ? json_object_new_object() : json_object_new_boolean(true);
    case 9:
    case 10: return make_array(k, depth);
    case 11: return make_all_of(k, depth);
    case 12:
    case 13: return make_union(k, depth);
    case 14: return make_ref(k);
    default: return make_object(k, depth);
    }
}

struct json_object *schema_make(struct schema_maker *maker)
{
    struct schema_maker *k = maker;
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

const char *schema_feature_name(enum schema_feature feature)
{
    static const char *const names[SCHEMA_FEATURES] = {"string",
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
    return names[feature];
}
