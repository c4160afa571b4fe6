#include "gram/schema_int.h"

#include "fmt/json_text.h"
#include <json-c/json_object.h>
#include <math.h>
#include <string.h>

/* ---- strings ---- */

/* Pattern and format, and the lengths. */
static uint32_t text_term(struct schema *s, const struct schema_facts *f, enum spelling spelling)
{
    struct regular *r = &s->builder->regular;
    uint32_t term = spelling == SPELL_RAW ? f->text_raw : f->text;
    if (f->min_length == 0 && f->max_length == REGULAR_MANY) return term;
    return regular_and(r, term, regular_repeat(r, code_any_term(r, spelling), f->min_length, f->max_length));
}

static uint32_t string_node(struct schema *s, const struct schema_facts *f, enum spelling spelling)
{
    struct builder *b = s->builder;
    struct regular *r = &b->regular;
    uint32_t quote = spelling == SPELL_RAW ? REGULAR_EMPTY : regular_text(r, "\"");
    if (f->has_text) return build_term(b, regular_seq(r, quote, regular_close(r, text_term(s, f, spelling), quote)));
    if (spelling == SPELL_JSON) return json_string_node(s->nodes, b, f->min_length, f->max_length);
    uint32_t unit = code_any_term(r, SPELL_RAW);
    if (f->min_length == 0 && f->max_length == REGULAR_MANY) return build_term(b, regular_many(r, unit));
    return build_count(b, unit, REGULAR_EMPTY, f->min_length, f->max_length);
}

/* ---- enum and const ---- */

static bool matches(struct regular *r, uint32_t term, const char *text, size_t n)
{
    for (size_t i = 0; i < n && term != REGULAR_NOTHING; i++) term = regular_derive(r, term, (unsigned char)text[i]);
    return regular_has_empty(r, term);
}

static size_t count_codes(const char *text, size_t n)
{
    size_t codes = 0;
    for (size_t i = 0; i < n; i++) codes += ((unsigned char)text[i] & 0xC0) != 0x80;
    return codes;
}

static bool string_fits(struct schema *s, const struct schema_facts *f, struct json_object *value)
{
    const char *text = json_object_get_string(value);
    size_t n = (size_t)json_object_get_string_len(value), codes = count_codes(text, n);
    if (codes < f->min_length || (f->max_length != REGULAR_MANY && codes > f->max_length)) return false;
    return !f->has_text || matches(&s->builder->regular, f->text_raw, text, n);
}

static bool number_fits(struct schema *s, const struct schema_facts *f, struct json_object *value, bool *fits,
                        struct err *err)
{
    struct decimal at;
    const struct number_range *range = &f->range;
    *fits = true;
    if (!range->low.at && !range->high.at) return true;
    if (!decimal_read(&at, s->builder->alloc, value, err)) return false;
    int low = range->low.at ? decimal_compare(&at, range->low.at) : 1;
    int high = range->high.at ? decimal_compare(range->high.at, &at) : 1;
    *fits = low >= range->low.exclusive && high >= range->high.exclusive;
    return true;
}

/* Whether a value of enum or const satisfies all else that is said. */
static bool value_fits(struct schema *s, const struct schema_parts *parts, const struct schema_facts *f,
                       struct json_object *value, bool *fits, struct err *err)
{
    *fits = false;
    switch (json_object_get_type(value)) {
    case json_type_null: *fits = f->types & TYPE_NULL; return true;
    case json_type_boolean: *fits = f->types & TYPE_BOOLEAN; return true;
    case json_type_int: return !(f->types & TYPE_INTEGER) || number_fits(s, f, value, fits, err);
    case json_type_double: {
        double number = json_object_get_double(value);
        if (!(f->types & (number == floor(number) ? TYPE_INTEGER : TYPE_NUMBER))) return true;
        return number_fits(s, f, value, fits, err);
    }
    case json_type_string: *fits = (f->types & TYPE_STRING) && string_fits(s, f, value); return true;
    case json_type_array: *fits = f->types & TYPE_ARRAY; break;
    case json_type_object: *fits = f->types & TYPE_OBJECT; break;
    }
    if (*fits && f->has_containers)
        return schema_refuse(s, err, "unsupported_schema", parts->at[0].path, "enum",
                             "objects and arrays beside keywords about members or items are not supported");
    return true;
}

static bool add_form(struct schema *s, struct json_object *value, enum json_style style, struct build_word *word,
                     struct err *err)
{
    struct buf text;
    buf_init(&text, s->builder->alloc, SCHEMA_BYTES_MAX * 8);
    bool ok = json_text_add(&text, value, style, err);
    char *copy = ok ? arena_text(&s->builder->scratch, text.data, text.bytes, err) : NULL;
    *word = (struct build_word){copy, text.bytes, 0, GRAM_NONE};
    buf_fini(&text);
    return copy != NULL;
}

/* Whether a pattern for white space takes nothing as well as one space. */
static bool may_be_spaced(const struct schema *s)
{
    struct regular *r = &s->builder->regular;
    uint32_t pattern = s->nodes->spacing.pattern;
    return regular_has_empty(r, pattern) && regular_has_empty(r, regular_derive(r, pattern, ' '));
}

/* A string without quotes, or JSON: with blanks, and without where they may be left out. */
static bool add_words(struct schema *s, struct json_object *value, enum spelling spelling, struct build_word *words,
                      uint32_t *n, struct err *err)
{
    if (spelling == SPELL_RAW && json_object_is_type(value, json_type_string)) {
        words[(*n)++] =
            (struct build_word){json_object_get_string(value), (size_t)json_object_get_string_len(value), 0, GRAM_NONE};
        return true;
    }
    enum json_blanks blanks = s->nodes->spacing.blanks;
    bool is_container = json_object_is_type(value, json_type_array) || json_object_is_type(value, json_type_object);
    bool is_spaced = !is_container || blanks != JSON_BLANKS_PATTERN || may_be_spaced(s);
    if (is_spaced && !add_form(s, value, JSON_PYTHON, &words[(*n)++], err)) return false;
    if (!is_container || blanks == JSON_BLANKS_FIXED) return true;
    return add_form(s, value, JSON_COMPACT, &words[(*n)++], err);
}

static bool emit_values(struct schema *s, const struct schema_parts *parts, const struct schema_facts *f,
                        enum spelling spelling, uint32_t *node, struct err *err)
{
    struct build_word *words = arena_get_array(&s->builder->scratch, (uint64_t)f->n_values * 2, sizeof *words, err);
    uint32_t n = 0;
    if (!words) return false;
    for (uint32_t i = 0; i < f->n_values; i++) {
        bool fits;
        if (!value_fits(s, parts, f, f->values[i], &fits, err)) return false;
        if (fits && !add_words(s, f->values[i], spelling, words, &n, err)) return false;
    }
    *node = n ? build_words(s->builder, words, n) : build_union(s->builder, NULL, 0);
    return true;
}

/* ---- everything ---- */

static uint32_t literal_words(struct schema *s, unsigned types)
{
    struct build_word words[3];
    uint32_t n = 0;
    if (types & TYPE_NULL) words[n++] = (struct build_word){"null", 4, 0, GRAM_NONE};
    if (types & TYPE_BOOLEAN) {
        words[n++] = (struct build_word){"true", 4, 0, GRAM_NONE};
        words[n++] = (struct build_word){"false", 5, 0, GRAM_NONE};
    }
    return build_words(s->builder, words, n);
}

static uint32_t number_node(struct schema *s, const struct schema_facts *f)
{
    struct number_range range = f->range;
    range.is_integer = !(f->types & TYPE_NUMBER);
    return build_term(s->builder, number_range_term(&s->builder->regular, &range));
}

bool schema_emit(struct schema *s, const struct schema_parts *parts, enum spelling spelling, uint32_t *node,
                 struct err *err)
{
    struct schema_facts f;
    uint32_t nodes[5], n = 0;
    if (!schema_facts_of(s, parts, spelling, &f, err)) return false;
    if (f.has_values) return emit_values(s, parts, &f, spelling, node, err);
    bool any_string = (f.types & TYPE_STRING) && !f.has_text && f.min_length == 0 && f.max_length == REGULAR_MANY;
    if (f.types & TYPE_STRING) nodes[n++] = string_node(s, &f, spelling);
    if (spelling == SPELL_RAW && any_string) { /* every other value reads as a string too */
        *node = nodes[0];
        return true;
    }
    if (parts->n == 0) {
        *node = s->nodes->any;
        return true;
    }
    if (f.types & (TYPE_NULL | TYPE_BOOLEAN)) nodes[n++] = literal_words(s, f.types);
    if (f.types & (TYPE_NUMBER | TYPE_INTEGER)) nodes[n++] = number_node(s, &f);
    if ((f.types & TYPE_ARRAY) && !schema_items(s, parts, &f, &nodes[n++], err)) return false;
    if ((f.types & TYPE_OBJECT) && !schema_members(s, parts, NULL, &nodes[n++], err)) return false;
    *node = build_union(s->builder, nodes, n);
    return true;
}
