#include "serve/fields.h"

#include "run/sampling_json.h"
#include <inttypes.h>
#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <string.h>

static bool wrong_type(struct problem *problem, const char *name, const char *what)
{
    return problem_set(problem, PROBLEM_INVALID_TYPE, name, "%s: must be %s", name, what);
}

bool field_text(struct json_object *object, const char *name, const char **out, struct problem *problem)
{
    struct json_object *value = json_object_object_get(object, name);
    if (!value) return true;
    if (!json_object_is_type(value, json_type_string)) return wrong_type(problem, name, "a string");
    *out = json_object_get_string(value);
    return true;
}

bool field_bool(struct json_object *object, const char *name, bool *out, struct problem *problem)
{
    struct json_object *value = json_object_object_get(object, name);
    if (!value) return true;
    if (!json_object_is_type(value, json_type_boolean)) return wrong_type(problem, name, "true or false");
    *out = json_object_get_boolean(value);
    return true;
}

bool field_object(struct json_object *object, const char *name, struct json_object **out, struct problem *problem)
{
    struct json_object *value = json_object_object_get(object, name);
    if (!value) return true;
    if (!json_object_is_type(value, json_type_object)) return wrong_type(problem, name, "an object");
    *out = value;
    return true;
}

bool field_list(struct json_object *object, const char *name, struct json_object **out, struct problem *problem)
{
    struct json_object *value = json_object_object_get(object, name);
    if (!value) return true;
    if (!json_object_is_type(value, json_type_array)) return wrong_type(problem, name, "an array");
    *out = value;
    return true;
}

bool field_integer(struct json_object *object, const char *name, int64_t least, int64_t most, int64_t *out,
                   struct problem *problem)
{
    struct json_object *value = json_object_object_get(object, name);
    if (!value) return true;
    if (!json_object_is_type(value, json_type_int)) return wrong_type(problem, name, "an integer");
    int64_t number = json_object_get_int64(value);
    if (number < least || number > most)
        return problem_set(problem, PROBLEM_INVALID_VALUE, name,
                           "%s: %" PRId64 " is not legal; must be %" PRId64 " to %" PRId64, name, number, least, most);
    *out = number;
    return true;
}

const char *field_word(struct json_object *object, const char *name)
{
    struct json_object *value = json_object_object_get(object, name);
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

bool field_is(struct json_object *object, const char *name, const char *word)
{
    return strcmp(field_word(object, name), word) == 0;
}

/* A value that asks for nothing. */
static bool is_neutral(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null: return true;
    case json_type_boolean: return !json_object_get_boolean(value);
    case json_type_int: return json_object_get_int64(value) == 0;
    case json_type_string: return json_object_get_string_len(value) == 0;
    case json_type_array: return json_object_array_length(value) == 0;
    case json_type_object: return json_object_object_length(value) == 0;
    default: return false;
    }
}

static const struct field_rule *find_rule(const struct field_rules *rules, const char *name)
{
    for (size_t list = 0; list < 2; list++)
        for (const struct field_rule *rule = rules->rules[list]; rule && rule->name; rule++)
            if (strcmp(rule->name, name) == 0) return rule;
    return NULL;
}

static bool check_rule(const struct field_rules *rules, const char *name, struct json_object *value,
                       struct problem *problem)
{
    const struct field_rule *rule = find_rule(rules, name);
    if (!rule && rules->strict)
        return problem_set(problem, PROBLEM_INVALID_VALUE, name, "%s: this server knows no such field", name);
    bool is_refused = rule && rule->use == FIELD_REFUSED && !is_neutral(value);
    bool is_never = rule && rule->use == FIELD_NEVER && value;
    if (!is_refused && !is_never) return true;
    return problem_set(problem, PROBLEM_UNSUPPORTED, name, "%s: not supported by this server%s%s", name,
                       rule->hint ? "; " : "", rule->hint ? rule->hint : "");
}

static enum problem_kind kind_of(enum sampling_fault fault)
{
    if (fault == SAMPLING_WRONG_TYPE) return PROBLEM_INVALID_TYPE;
    return fault == SAMPLING_UNSUPPORTED ? PROBLEM_UNSUPPORTED : PROBLEM_INVALID_VALUE;
}

bool fields_read(struct json_object *body, const struct field_rules *rules, struct sampling *sampling,
                 struct arena *arena, struct problem *problem)
{
    bool has_new_limit = json_object_object_get(body, "max_completion_tokens") != NULL;
    for (const struct lh_entry *e = json_object_get_object(body)->head; e; e = e->next) {
        const char *name = lh_entry_k(e);
        struct json_object *value = lh_entry_v(e);
        struct err err = {0};
        enum sampling_fault fault = SAMPLING_FINE;
        bool is_sampling = false;
        struct sampling unused = *sampling;
        bool is_weaker = has_new_limit && strcmp(name, "max_tokens") == 0; /* checked all the same */
        if (!sampling_json_member(is_weaker ? &unused : sampling, arena, name, value, &is_sampling, &fault, &err)) {
            problem_from(problem, kind_of(fault), &err);
            return false;
        }
        if (!is_sampling && !check_rule(rules, name, value, problem)) return false;
    }
    return true;
}
