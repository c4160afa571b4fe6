#define PCRE2_CODE_UNIT_WIDTH 8
#include "support/schema_check.h"

#include <arpa/inet.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct validator {
    struct json_object *root;
    char *why;
    int depth;
};

static bool holds(struct validator *v, struct json_object *schema, struct json_object *value);

static bool wrong(struct validator *v, const char *what)
{
    snprintf(v->why, 256, "%s", what);
    return false;
}

static struct json_object *get(struct json_object *object, const char *key)
{
    return json_object_object_get(object, key);
}

static bool has(struct json_object *object, const char *key)
{
    return json_object_object_get_ex(object, key, NULL);
}

static bool is(struct json_object *value, enum json_type type)
{
    return json_object_is_type(value, type);
}

static bool is_type(struct json_object *value, const char *name)
{
    if (strcmp(name, "null") == 0) return value == NULL;
    if (strcmp(name, "boolean") == 0) return is(value, json_type_boolean);
    if (strcmp(name, "string") == 0) return is(value, json_type_string);
    if (strcmp(name, "array") == 0) return is(value, json_type_array);
    if (strcmp(name, "object") == 0) return is(value, json_type_object);
    if (strcmp(name, "number") == 0) return is(value, json_type_int) || is(value, json_type_double);
    if (is(value, json_type_int)) return true;
    double d = is(value, json_type_double) ? json_object_get_double(value) : 0.5;
    return d == (double)(long long)d;
}

static bool search(const char *pattern, const char *text, size_t n)
{
    int code;
    PCRE2_SIZE offset;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX, &code, &offset, NULL);
    if (!re) abort();
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
    int found = pcre2_match(re, (PCRE2_SPTR)text, n, 0, 0, data, NULL);
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    return found >= 0;
}

static bool is_date(const char *t, size_t n)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int y, m, d, used = 0;
    if (n != 10 || sscanf(t, "%4d-%2d-%2d%n", &y, &m, &d, &used) != 3 || used != 10 || t[4] != '-' || t[7] != '-')
        return false;
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return y >= 1 && m >= 1 && m <= 12 && d >= 1 && d <= days[m - 1] + (m == 2 && leap);
}

static bool is_time(const char *t, size_t n)
{
    int h, m, s, used = 0;
    if (n < 9 || sscanf(t, "%2d:%2d:%2d%n", &h, &m, &s, &used) != 3 || used != 8) return false;
    if (h > 23 || m > 59 || s > 59) return false;
    size_t at = 8;
    if (t[at] == '.') at += 1 + strspn(t + at + 1, "0123456789");
    if (at + 1 == n && t[at] == 'Z') return true;
    return at + 6 == n && strchr("+-", t[at]) && sscanf(t + at + 1, "%2d:%2d", &h, &m) == 2 && h < 24 && m < 60;
}

static bool is_uuid(const char *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? t[i] != '-' : !strchr("0123456789abcdefABCDEF", t[i])) return false;
    }
    return n == 36;
}

static bool is_host(const char *t, size_t n)
{
    size_t label = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && t[i] != '.') {
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", t[i])) return false;
            label++;
            continue;
        }
        if (label == 0 || label > 63 || t[i - label] == '-' || t[i - 1] == '-') return false;
        label = 0;
    }
    return n <= 253;
}

static bool is_format(const char *name, const char *t, size_t n)
{
    unsigned char address[16];
    const char *at = strchr(t, '@'), *scheme = strstr(t, "://");
    if (strlen(t) != n) return false;
    if (strcmp(name, "date") == 0) return is_date(t, n);
    if (strcmp(name, "time") == 0) return is_time(t, n);
    if (strcmp(name, "date-time") == 0) return n > 11 && is_date(t, 10) + 0 && t[10] == 'T' && is_time(t + 11, n - 11);
    if (strcmp(name, "uuid") == 0) return is_uuid(t, n);
    if (strcmp(name, "ipv4") == 0) return inet_pton(AF_INET, t, address) == 1;
    if (strcmp(name, "ipv6") == 0) return inet_pton(AF_INET6, t, address) == 1;
    if (strcmp(name, "hostname") == 0) return is_host(t, n);
    if (strcmp(name, "email") == 0) return at && at > t && !strchr(t, ' ') && is_host(at + 1, strlen(at + 1));
    if (strcmp(name, "uri") == 0) return scheme && scheme > t && scheme[3] && !strpbrk(t, " \"<>\\^`{|}");
    if (strcmp(name, "duration") == 0) return n > 2 && t[0] == 'P' && strspn(t + 1, "0123456789YMDWTHS") == n - 1;
    return true;
}

static bool string_holds(struct validator *v, struct json_object *schema, struct json_object *value)
{
    const char *text = json_object_get_string(value);
    size_t n = (size_t)json_object_get_string_len(value), codes = 0;
    for (size_t i = 0; i < n; i++) codes += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (has(schema, "minLength") && codes < (size_t)json_object_get_int64(get(schema, "minLength")))
        return wrong(v, "minLength");
    if (has(schema, "maxLength") && codes > (size_t)json_object_get_int64(get(schema, "maxLength")))
        return wrong(v, "maxLength");
    if (has(schema, "pattern") && !search(json_object_get_string(get(schema, "pattern")), text, n))
        return wrong(v, "pattern");
    if (has(schema, "format") && !is_format(json_object_get_string(get(schema, "format")), text, n))
        return wrong(v, "format");
    return true;
}

static bool number_holds(struct validator *v, struct json_object *schema, struct json_object *value)
{
    double x = json_object_get_double(value);
    if (has(schema, "minimum") && !(x >= json_object_get_double(get(schema, "minimum")))) return wrong(v, "minimum");
    if (has(schema, "maximum") && !(x <= json_object_get_double(get(schema, "maximum")))) return wrong(v, "maximum");
    if (has(schema, "exclusiveMinimum") && !(x > json_object_get_double(get(schema, "exclusiveMinimum"))))
        return wrong(v, "exclusiveMinimum");
    if (has(schema, "exclusiveMaximum") && !(x < json_object_get_double(get(schema, "exclusiveMaximum"))))
        return wrong(v, "exclusiveMaximum");
    return true;
}

static bool array_holds(struct validator *v, struct json_object *schema, struct json_object *value)
{
    size_t n = json_object_array_length(value), n_prefix = 0;
    struct json_object *prefix = get(schema, "prefixItems");
    if (prefix) n_prefix = json_object_array_length(prefix);
    if (has(schema, "minItems") && n < (size_t)json_object_get_int64(get(schema, "minItems")))
        return wrong(v, "minItems");
    if (has(schema, "maxItems") && n > (size_t)json_object_get_int64(get(schema, "maxItems")))
        return wrong(v, "maxItems");
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(value, i);
        if (i < n_prefix ? !holds(v, json_object_array_get_idx(prefix, i), item)
                         : has(schema, "items") && !holds(v, get(schema, "items"), item))
            return false;
    }
    return true;
}

static bool object_holds(struct validator *v, struct json_object *schema, struct json_object *value)
{
    struct json_object *required = get(schema, "required"), *members = get(schema, "properties");
    for (size_t i = 0; required && i < json_object_array_length(required); i++)
        if (!has(value, json_object_get_string(json_object_array_get_idx(required, i)))) return wrong(v, "required");
    json_object_object_foreach(value, key, item)
    {
        if (members && has(members, key)) {
            if (!holds(v, get(members, key), item)) return false;
        } else if (has(schema, "additionalProperties") && !holds(v, get(schema, "additionalProperties"), item)) {
            return wrong(v, "additionalProperties");
        }
    }
    return true;
}

static bool any_holds(struct validator *v, struct json_object *list, struct json_object *value, bool all)
{
    size_t n = json_object_array_length(list), n_hold = 0;
    for (size_t i = 0; i < n; i++) n_hold += holds(v, json_object_array_get_idx(list, i), value);
    return (all ? n_hold == n : n_hold > 0) || wrong(v, all ? "allOf" : "anyOf");
}

static bool is_one_of(struct json_object *list, struct json_object *value)
{
    for (size_t i = 0; i < json_object_array_length(list); i++)
        if (json_object_equal(json_object_array_get_idx(list, i), value)) return true;
    return false;
}

static bool type_holds(struct json_object *type, struct json_object *value)
{
    if (!is(type, json_type_array)) return is_type(value, json_object_get_string(type));
    for (size_t i = 0; i < json_object_array_length(type); i++)
        if (is_type(value, json_object_get_string(json_object_array_get_idx(type, i)))) return true;
    return false;
}

static bool holds(struct validator *v, struct json_object *schema, struct json_object *value)
{
    struct json_object *target;
    if (is(schema, json_type_boolean)) return json_object_get_boolean(schema) || wrong(v, "false");
    if (v->depth > 1000) return wrong(v, "endless");
    v->depth++;
    bool ok = true;
    if (has(schema, "$ref")) {
        const char *pointer = json_object_get_string(get(schema, "$ref")) + 1;
        target = v->root;
        if (pointer[0] && json_pointer_get(v->root, pointer, &target) != 0) {
            fprintf(stderr, "no such reference: %s\n", pointer);
            abort();
        }
        ok = holds(v, target, value);
    }
    if (ok && has(schema, "type") && !type_holds(get(schema, "type"), value)) ok = wrong(v, "type");
    if (ok && has(schema, "enum") && !is_one_of(get(schema, "enum"), value)) ok = wrong(v, "enum");
    if (ok && has(schema, "const") && !json_object_equal(get(schema, "const"), value)) ok = wrong(v, "const");
    if (ok && has(schema, "anyOf")) ok = any_holds(v, get(schema, "anyOf"), value, false);
    if (ok && has(schema, "oneOf")) ok = any_holds(v, get(schema, "oneOf"), value, false);
    if (ok && has(schema, "allOf")) ok = any_holds(v, get(schema, "allOf"), value, true);
    if (ok && is(value, json_type_string)) ok = string_holds(v, schema, value);
    if (ok && (is(value, json_type_int) || is(value, json_type_double))) ok = number_holds(v, schema, value);
    if (ok && is(value, json_type_array)) ok = array_holds(v, schema, value);
    if (ok && is(value, json_type_object)) ok = object_holds(v, schema, value);
    v->depth--;
    return ok;
}

bool schema_holds(struct json_object *root, struct json_object *schema, struct json_object *value, char why[256])
{
    struct validator v = {root, why, 0};
    why[0] = 0;
    return holds(&v, schema, value);
}
