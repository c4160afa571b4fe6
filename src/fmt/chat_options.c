#include "fmt/chat_options.h"

#include <json-c/json_object.h>
#include <string.h>

bool chat_options_effort(struct chat_options *options, const char *name, const char *word, struct err *err)
{
    static const struct {
        const char *word;
        bool thinking;
        enum chat_effort effort;
    } words[] = {
        {"none", false, CHAT_EFFORT_MAX},   {"minimal", false, CHAT_EFFORT_MAX}, {"low", true, CHAT_EFFORT_HIGH},
        {"medium", true, CHAT_EFFORT_HIGH}, {"high", true, CHAT_EFFORT_HIGH},    {"xhigh", true, CHAT_EFFORT_MAX},
        {"max", true, CHAT_EFFORT_MAX},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i].word) != 0) continue;
        options->thinking = words[i].thinking;
        options->effort = words[i].effort;
        return true;
    }
    return err_set(err, ERR_USER, "%s: '%s' is none of none, minimal, low, medium, high, xhigh, max", name, word);
}

/* False when the member is there and no boolean; *is_given when it is one. */
static bool read_bool(struct json_object *object, const char *key, bool *value, bool *is_given, struct err *err)
{
    struct json_object *member = json_object_object_get(object, key);
    *is_given = member != NULL;
    if (!member) return true;
    if (!json_object_is_type(member, json_type_boolean))
        return err_set(err, ERR_USER, "%s: must be true or false", key);
    *value = json_object_get_boolean(member);
    return true;
}

/* `name`: the member as the client sees it. */
static bool read_effort(struct chat_options *options, struct json_object *member, const char *name, struct err *err)
{
    if (!member) return true;
    if (!json_object_is_type(member, json_type_string)) return err_set(err, ERR_USER, "%s: must be a string", name);
    return chat_options_effort(options, name, json_object_get_string(member), err);
}

/* Anthropic's object, or a boolean as in chat_template_kwargs. */
static bool read_thinking(struct chat_options *options, struct json_object *object, struct err *err)
{
    struct json_object *member = json_object_object_get(object, "thinking");
    bool is_given;
    if (!json_object_is_type(member, json_type_object))
        return read_bool(object, "thinking", &options->thinking, &is_given, err);
    struct json_object *type = json_object_object_get(member, "type");
    const char *word = json_object_is_type(type, json_type_string) ? json_object_get_string(type) : "";
    bool is_off = strcmp(word, "disabled") == 0;
    if (!is_off && strcmp(word, "enabled") != 0 && strcmp(word, "adaptive") != 0)
        return err_set(err, ERR_USER, "thinking.type: must be enabled, adaptive or disabled");
    options->thinking = !is_off;
    return true;
}

bool chat_options_read(struct chat_options *options, struct json_object *request, struct err *err)
{
    struct json_object *kwargs = json_object_object_get(request, "chat_template_kwargs");
    struct json_object *reasoning = json_object_object_get(request, "reasoning");
    bool is_given, clears = false;
    if (kwargs && !json_object_is_type(kwargs, json_type_object))
        return err_set(err, ERR_USER, "chat_template_kwargs: must be an object");
    /* From the weakest to the strongest: each later one overwrites. */
    if (!read_effort(options, json_object_object_get(reasoning, "effort"), "reasoning.effort", err) ||
        !read_effort(options, json_object_object_get(request, "reasoning_effort"), "reasoning_effort", err) ||
        !read_effort(options, json_object_object_get(kwargs, "reasoning_effort"),
                     "chat_template_kwargs.reasoning_effort", err) ||
        !read_thinking(options, request, err) ||
        !read_bool(request, "enable_thinking", &options->thinking, &is_given, err) ||
        !read_thinking(options, kwargs, err) ||
        !read_bool(kwargs, "enable_thinking", &options->thinking, &is_given, err))
        return false;
    struct json_object *const places[] = {request, kwargs};
    for (size_t i = 0; i < 2; i++) {
        if (!read_bool(places[i], "clear_thinking", &clears, &is_given, err)) return false;
        if (is_given) options->keep_reasoning = !clears;
    }
    return true;
}
