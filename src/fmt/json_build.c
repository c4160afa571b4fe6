#include "fmt/json_build.h"

#include <string.h>

bool json_build_share(struct json_object *object, const char *key, struct json_object *value)
{
    if (json_object_object_add(object, key, json_object_get(value)) == 0) return true;
    json_object_put(value);
    return false;
}

bool json_build_share_element(struct json_object *array, struct json_object *value)
{
    if (json_object_array_add(array, json_object_get(value)) == 0) return true;
    json_object_put(value);
    return false;
}

bool json_build_member(struct json_object *object, const char *key, struct json_object *value)
{
    bool ok = value && json_build_share(object, key, value);
    json_object_put(value);
    return ok;
}

bool json_build_element(struct json_object *array, struct json_object *value)
{
    bool ok = value && json_build_share_element(array, value);
    json_object_put(value);
    return ok;
}

bool json_build_text(struct json_object *object, const char *key, const char *text, size_t bytes)
{
    return json_build_member(object, key, json_object_new_string_len(text ? text : "", (int)bytes));
}

bool json_build_words(struct json_object *object, const char *key, const char *words)
{
    return json_build_text(object, key, words, strlen(words));
}
