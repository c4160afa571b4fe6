#include "gram/schema_int.h"

#include "gram/regex_text.h"
#include "gram/string_format.h"
#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <math.h>
#include <string.h>

/* ---- keywords ---- */

enum treatment {
    IGNORED,
    REFERENCE, /* dealt with when the part says so in `done` */
    VALUE,     /* says which types or values */
    CONTAINER, /* speaks of members or items */
    REFUSED,
};

struct keyword {
    const char *name;
    enum treatment treatment;
    unsigned done, type; /* type: the one it speaks of */
};

static const struct keyword keywords[] = {
    {"$ref", REFERENCE, DONE_REF, 0},
    {"allOf", REFERENCE, DONE_ALL_OF, 0},
    {"anyOf", REFERENCE, DONE_ANY_OF, 0},
    {"oneOf", REFERENCE, DONE_ONE_OF, 0},
    {"type", VALUE, 0, 0},
    {"enum", VALUE, 0, 0},
    {"const", VALUE, 0, 0},
    {"minLength", VALUE, 0, TYPE_STRING},
    {"maxLength", VALUE, 0, TYPE_STRING},
    {"pattern", VALUE, 0, TYPE_STRING},
    {"format", IGNORED, 0, 0}, /* looked at by itself: most formats are annotations */
    {"minimum", VALUE, 0, TYPE_NUMBER | TYPE_INTEGER},
    {"maximum", VALUE, 0, TYPE_NUMBER | TYPE_INTEGER},
    {"exclusiveMinimum", VALUE, 0, TYPE_NUMBER | TYPE_INTEGER},
    {"exclusiveMaximum", VALUE, 0, TYPE_NUMBER | TYPE_INTEGER},
    {"properties", CONTAINER, 0, TYPE_OBJECT},
    {"required", CONTAINER, 0, TYPE_OBJECT},
    {"additionalProperties", CONTAINER, 0, TYPE_OBJECT},
    {"items", CONTAINER, 0, TYPE_ARRAY},
    {"prefixItems", CONTAINER, 0, TYPE_ARRAY},
    {"minItems", CONTAINER, 0, TYPE_ARRAY},
    {"maxItems", CONTAINER, 0, TYPE_ARRAY},
    {"not", REFUSED, 0, 0},
    {"if", REFUSED, 0, 0},
    {"then", REFUSED, 0, 0},
    {"else", REFUSED, 0, 0},
    {"dependentRequired", REFUSED, 0, 0},
    {"dependentSchemas", REFUSED, 0, 0},
    {"dependencies", REFUSED, 0, 0},
    {"patternProperties", REFUSED, 0, 0},
    {"propertyNames", REFUSED, 0, 0},
    {"contains", REFUSED, 0, 0},
    {"minContains", REFUSED, 0, 0},
    {"maxContains", REFUSED, 0, 0},
    {"uniqueItems", REFUSED, 0, 0},
    {"unevaluatedProperties", REFUSED, 0, 0},
    {"unevaluatedItems", REFUSED, 0, 0},
    {"additionalItems", REFUSED, 0, 0},
    {"minProperties", REFUSED, 0, 0},
    {"maxProperties", REFUSED, 0, 0},
    {"multipleOf", REFUSED, 0, 0},
    {"contentEncoding", REFUSED, 0, 0},
    {"contentMediaType", REFUSED, 0, 0},
    {"contentSchema", REFUSED, 0, 0},
    {"$dynamicRef", REFUSED, 0, 0},
    {"$recursiveRef", REFUSED, 0, 0},
};

static const struct keyword *keyword_of(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

/* A keyword that forbids nothing with this value. */
static bool is_neutral(const char *name, struct json_object *value)
{
    if (strcmp(name, "uniqueItems") == 0)
        return json_object_is_type(value, json_type_boolean) && !json_object_get_boolean(value);
    if (strcmp(name, "minProperties") == 0 || strcmp(name, "minContains") == 0)
        return json_object_is_type(value, json_type_int) && json_object_get_int64(value) == 0;
    if (strcmp(name, "patternProperties") == 0 || strncmp(name, "dependent", 9) == 0)
        return json_object_is_type(value, json_type_object) && json_object_object_length(value) == 0;
    return false;
}

static const struct lh_entry *first_member(struct json_object *object)
{
    return json_object_get_object(object)->head;
}

bool schema_check_keywords(const struct schema *s, const struct schema_part *part, struct err *err)
{
    for (const struct lh_entry *e = first_member(part->schema); e; e = e->next) {
        const struct keyword *keyword = keyword_of(lh_entry_k(e));
        if (!keyword || keyword->treatment != REFUSED || is_neutral(keyword->name, lh_entry_v(e))) continue;
        return schema_refuse(s, err, "unsupported_schema", part->path, keyword->name,
                             "this keyword cannot be enforced");
    }
    return true;
}

bool schema_says_nothing(const struct schema_part *part)
{
    for (const struct lh_entry *e = first_member(part->schema); e; e = e->next) {
        const struct keyword *keyword = keyword_of(lh_entry_k(e));
        if (!keyword) continue;
        if (keyword->treatment == REFERENCE ? !(part->done & keyword->done) : keyword->treatment != IGNORED)
            return false;
        if (strcmp(keyword->name, "format") == 0) return false;
    }
    return true;
}

/* A whole number of a keyword, at most max; *value is left alone when the keyword is not there. */
static bool read_count(const struct schema *s, const struct schema_part *part, const char *key, uint32_t max,
                       uint32_t *value, bool *found, struct err *err)
{
    struct json_object *number;
    *found = json_object_object_get_ex(part->schema, key, &number);
    if (!*found) return true;
    bool is_number = json_object_is_type(number, json_type_int) || json_object_is_type(number, json_type_double);
    double wide = is_number ? json_object_get_double(number) : -1;
    if (wide < 0 || wide != floor(wide))
        return schema_refuse(s, err, "invalid_schema", part->path, key, "this must be a whole number");
    if (wide > max)
        return schema_refuse(s, err, "unsupported_schema", part->path, key, "this may be %u at most", (unsigned)max);
    *value = (uint32_t)wide;
    return true;
}

/* ---- types ---- */

static unsigned type_of_name(struct json_object *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {
        {"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN},
        {"integer", TYPE_INTEGER}, {"number", TYPE_NUMBER | TYPE_INTEGER},
        {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
        {"object", TYPE_OBJECT},
    };
    if (!json_object_is_type(name, json_type_string)) return 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, json_object_get_string(name)) == 0) return types[i].type;
    return 0;
}

static bool read_types(const struct schema *s, const struct schema_part *part, struct json_object *value,
                       unsigned *types, struct err *err)
{
    bool is_list = json_object_is_type(value, json_type_array);
    size_t n = is_list ? json_object_array_length(value) : 1;
    unsigned all = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned type = type_of_name(is_list ? json_object_array_get_idx(value, i) : value);
        if (!type) return schema_refuse(s, err, "invalid_schema", part->path, "type", "this is not the name of a type");
        all |= type;
    }
    if (!all) return schema_refuse(s, err, "invalid_schema", part->path, "type", "the list of types is empty");
    *types &= all;
    return true;
}

/* Without `type`, the types that keywords speak of. */
static unsigned hinted_types(const struct schema_parts *parts)
{
    unsigned types = 0;
    for (uint32_t i = 0; i < parts->n; i++)
        for (const struct lh_entry *e = first_member(parts->at[i].schema); e; e = e->next) {
            const struct keyword *keyword = keyword_of(lh_entry_k(e));
            if (keyword) types |= keyword->type;
        }
    return types;
}

/* ---- enum and const ---- */

static bool holds(struct json_object *const *values, uint32_t n, struct json_object *value)
{
    for (uint32_t i = 0; i < n; i++)
        if (json_object_equal(values[i], value)) return true;
    return false;
}

/* Keeps the values that are in this list too; the first list is taken whole. */
static bool meet_values(const struct schema *s, struct schema_facts *facts, struct json_object *list,
                        struct json_object *single, struct err *err)
{
    uint32_t n = list ? (uint32_t)json_object_array_length(list) : 1, kept = 0;
    struct json_object **values = arena_get_array(&s->builder->scratch, n, sizeof *values, err);
    if (!values) return false;
    for (uint32_t i = 0; i < n; i++) values[i] = list ? json_object_array_get_idx(list, i) : single;
    if (facts->has_values) {
        for (uint32_t i = 0; i < facts->n_values; i++)
            if (holds(values, n, facts->values[i])) facts->values[kept++] = facts->values[i];
        facts->n_values = kept;
        return true;
    }
    facts->has_values = true;
    facts->values = values;
    facts->n_values = n;
    return true;
}

static bool read_values(const struct schema *s, const struct schema_part *part, struct schema_facts *facts,
                        struct err *err)
{
    struct json_object *value;
    if (json_object_object_get_ex(part->schema, "enum", &value)) {
        if (!json_object_is_type(value, json_type_array) || json_object_array_length(value) == 0)
            return schema_refuse(s, err, "invalid_schema", part->path, "enum", "this must be a list of values");
        if (!meet_values(s, facts, value, NULL, err)) return false;
    }
    if (json_object_object_get_ex(part->schema, "const", &value)) return meet_values(s, facts, NULL, value, err);
    return true;
}

/* ---- numbers ---- */

static bool read_bound(const struct schema *s, const struct schema_part *part, const char *key, bool is_low,
                       struct number_bound *bound, struct err *err)
{
    struct json_object *value;
    bool exclusive = key[0] == 'e';
    if (!json_object_object_get_ex(part->schema, key, &value)) return true;
    if (!json_object_is_type(value, json_type_int) && !json_object_is_type(value, json_type_double))
        return schema_refuse(s, err, "invalid_schema", part->path, key, "this must be a number");
    struct decimal *at = arena_get(&s->builder->scratch, sizeof *at, err);
    struct err why = {0};
    if (!at) return false;
    if (!decimal_read(at, s->builder->alloc, value, &why)) {
        if (why.kind == ERR_USER) return schema_refuse(s, err, "unsupported_schema", part->path, key, "%s", why.text);
        if (err) *err = why;
        return false;
    }
    int order = bound->at ? decimal_compare(at, bound->at) : 0;
    bool tighter = !bound->at || (is_low ? order > 0 : order < 0) || (order == 0 && exclusive);
    if (tighter) *bound = (struct number_bound){at, exclusive};
    return true;
}

static bool read_range(const struct schema *s, const struct schema_part *part, struct number_range *range,
                       struct err *err)
{
    return read_bound(s, part, "minimum", true, &range->low, err) &&
           read_bound(s, part, "maximum", false, &range->high, err) &&
           read_bound(s, part, "exclusiveMinimum", true, &range->low, err) &&
           read_bound(s, part, "exclusiveMaximum", false, &range->high, err);
}

/* ---- strings ---- */

static bool meet_text(const struct schema *s, struct schema_facts *facts, enum spelling spelling,
                      struct regex_text *regex, struct err *err)
{
    struct regular *r = &s->builder->regular;
    uint32_t raw, spelled;
    regex->spelling = SPELL_RAW;
    if (!regex_text_term(r, regex, &raw, err)) return false;
    regex->spelling = spelling;
    if (!regex_text_term(r, regex, &spelled, err)) return false;
    facts->text_raw = facts->has_text ? regular_and(r, facts->text_raw, raw) : raw;
    facts->text = facts->has_text ? regular_and(r, facts->text, spelled) : spelled;
    facts->has_text = true;
    return regular_ok(r, err);
}

static bool read_text(const struct schema *s, const struct schema_part *part, enum spelling spelling,
                      struct schema_facts *facts, struct err *err)
{
    struct json_object *value;
    static const char *const keys[] = {"pattern", "format"};
    for (int k = 0; k < 2; k++) {
        if (!json_object_object_get_ex(part->schema, keys[k], &value)) continue;
        if (!json_object_is_type(value, json_type_string))
            return schema_refuse(s, err, "invalid_schema", part->path, keys[k], "this must be a string");
        const char *text = json_object_get_string(value);
        const char *known = k == 0 ? text : string_format_regex(text);
        if (!known) continue;
        struct regex_text regex = {.where = "", .text = known, .searches = k == 0};
        regex.bytes = k == 0 ? (size_t)json_object_get_string_len(value) : strlen(known);
        struct err why = {0};
        if (meet_text(s, facts, spelling, &regex, &why)) continue;
        const char *what = strstr(why.text, ": ");
        if (why.kind == ERR_USER && what)
            return schema_refuse(s, err, why.text[0] == 'i' ? "invalid_schema" : "unsupported_schema", part->path,
                                 keys[k], "%s", what[1] && what[2] == ':' ? what + 4 : what + 2);
        if (err) *err = why;
        return false;
    }
    return true;
}

/* ---- all of it ---- */

static bool read_counts(const struct schema *s, const struct schema_part *part, struct schema_facts *f, struct err *err)
{
    const struct {
        const char *key;
        uint32_t limit;
        uint32_t *value;
        bool is_min;
    } counts[] = {
        {"minLength", SCHEMA_LENGTH_MAX, &f->min_length, true},
        {"maxLength", SCHEMA_LENGTH_MAX, &f->max_length, false},
        {"minItems", SCHEMA_ITEMS_MAX, &f->min_items, true},
        {"maxItems", SCHEMA_ITEMS_MAX, &f->max_items, false},
    };
    for (int i = 0; i < 4; i++) {
        uint32_t value = 0;
        bool found;
        if (!read_count(s, part, counts[i].key, counts[i].limit, &value, &found, err)) return false;
        if (found && (counts[i].is_min ? value > *counts[i].value : value < *counts[i].value)) *counts[i].value = value;
    }
    if (f->min_length > f->max_length)
        return schema_refuse(s, err, "invalid_schema", part->path, "maxLength", "this is less than minLength");
    if (f->min_items > f->max_items)
        return schema_refuse(s, err, "invalid_schema", part->path, "maxItems", "this is less than minItems");
    return true;
}

bool schema_facts_of(const struct schema *s, const struct schema_parts *parts, enum spelling spelling,
                     struct schema_facts *facts, struct err *err)
{
    bool has_type = false;
    *facts = (struct schema_facts){.types = TYPE_ALL, .max_length = REGULAR_MANY, .max_items = REGULAR_MANY};
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct schema_part *part = &parts->at[i];
        struct json_object *type;
        if (json_object_object_get_ex(part->schema, "type", &type)) {
            has_type = true;
            if (!read_types(s, part, type, &facts->types, err)) return false;
        }
        if (!read_values(s, part, facts, err) || !read_range(s, part, &facts->range, err) ||
            !read_text(s, part, spelling, facts, err) || !read_counts(s, part, facts, err))
            return false;
        for (const struct lh_entry *e = first_member(part->schema); e; e = e->next) {
            const struct keyword *keyword = keyword_of(lh_entry_k(e));
            if (keyword && keyword->treatment == CONTAINER) facts->has_containers = true;
        }
    }
    unsigned hinted = hinted_types(parts);
    if (facts->has_text) hinted |= TYPE_STRING;
    if (!has_type && !facts->has_values && hinted) facts->types = hinted;
    return true;
}
