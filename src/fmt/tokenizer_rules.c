/* What a tokenizer.json says around its vocabulary: normalizer, split pattern, template and decoder. */
#include "fmt/tokenizer_int.h"
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

static const char *type_of(struct json_object *object)
{
    struct json_object *type = json_object_object_get(object, "type");
    return json_object_is_type(type, json_type_string) ? json_object_get_string(type) : "";
}

static bool is_type(struct json_object *object, const char *type)
{
    return json_object_is_type(object, json_type_object) && strcmp(type_of(object), type) == 0;
}

/* For a message: the type of an object, or else its text. */
static struct quoted describe(struct json_object *value)
{
    if (!json_object_is_type(value, json_type_object)) return load_quote_json(value);
    return load_quote(type_of(value), strlen(type_of(value)));
}

static bool is_false(struct json_object *object, const char *name)
{
    struct json_object *value = json_object_object_get(object, name);
    return json_object_is_type(value, json_type_boolean) && !json_object_get_boolean(value);
}

bool load_check_normalizer(struct json_object *root, struct err *err)
{
    struct json_object *normalizer = json_object_object_get(root, "normalizer");
    if (!normalizer) return true;
    return load_refuse(err, "normalizer", "is %s, which is not implemented: only null is", describe(normalizer).text);
}

static bool check_split(struct tokenizer *tokenizer, struct json_object *split, const char *path, struct err *err)
{
    struct json_object *pattern = NULL, *behavior;
    if (!is_type(split, "Split")) return load_refuse(err, path, "is %s instead of \"Split\"", describe(split).text);
    pattern = json_object_object_get(json_object_object_get(split, "pattern"), "Regex");
    if (!json_object_is_type(pattern, json_type_string))
        return load_refuse(err, path, "has no regular expression in pattern.Regex");
    behavior = json_object_object_get(split, "behavior");
    if (!json_object_is_type(behavior, json_type_string) || strcmp(json_object_get_string(behavior), "Isolated") != 0)
        return load_refuse(err, path, "its behavior is %s, only \"Isolated\" is implemented",
                           load_quote_json(behavior).text);
    if (!is_false(split, "invert")) return load_refuse(err, path, "its invert is not false, which is not implemented");
    const char *regex = json_object_get_string(pattern);
    if (pretoken_family_find(regex, (size_t)json_object_get_string_len(pattern), &tokenizer->family)) return true;
    return load_refuse(err, path,
                       "its pattern is %.300s, and that is not one that weir has a scanner for (those of GLM, Llama 3 "
                       "and Qwen); a pattern that is only near would give wrong ids",
                       json_object_to_json_string(pattern));
}

bool load_pre_tokenizer(struct tokenizer *tokenizer, struct json_object *root, struct err *err)
{
    struct json_object *pre = json_object_object_get(root, "pre_tokenizer"), *list, *bytes;
    if (!is_type(pre, "Sequence"))
        return load_refuse(err, "pre_tokenizer", "is %s instead of a \"Sequence\" of \"Split\" and \"ByteLevel\"",
                           describe(pre).text);
    list = json_object_object_get(pre, "pretokenizers");
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) != 2)
        return load_refuse(err, "pre_tokenizer.pretokenizers", "must be two: \"Split\" and \"ByteLevel\"");
    if (!check_split(tokenizer, json_object_array_get_idx(list, 0), "pre_tokenizer.pretokenizers[0]", err))
        return false;
    bytes = json_object_array_get_idx(list, 1);
    if (!is_type(bytes, "ByteLevel"))
        return load_refuse(err, "pre_tokenizer.pretokenizers[1]", "is %s instead of \"ByteLevel\"",
                           describe(bytes).text);
    if (!is_false(bytes, "add_prefix_space") || !is_false(bytes, "use_regex"))
        return load_refuse(err, "pre_tokenizer.pretokenizers[1]",
                           "add_prefix_space and use_regex must be there and be false");
    return true;
}

/* Its flags have no effect on decoding. */
bool load_check_decoder(struct json_object *root, struct err *err)
{
    struct json_object *decoder = json_object_object_get(root, "decoder");
    if (is_type(decoder, "ByteLevel")) return true;
    return load_refuse(err, "decoder", "is %s, only \"ByteLevel\" is implemented", describe(decoder).text);
}

/* One item of a template for a single text: a special token in front, or the text itself. */
static bool template_item(struct tokenizer *tokenizer, struct json_object *item, const char *path, bool *seen_text,
                          struct err *err)
{
    struct json_object *token = NULL, *name;
    uint32_t id;
    if (json_object_is_type(item, json_type_object) && json_object_object_get(item, "Sequence")) {
        if (*seen_text) return load_refuse(err, path, "the text comes twice");
        *seen_text = true;
        return true;
    }
    if (json_object_is_type(item, json_type_object)) token = json_object_object_get(item, "SpecialToken");
    name = json_object_object_get(token, "id");
    if (!json_object_is_type(name, json_type_string))
        return load_refuse(err, path, "is neither a \"Sequence\" nor a \"SpecialToken\" with an id");
    if (*seen_text) return load_refuse(err, path, "tokens behind the text are not implemented");
    if (tokenizer->n_prefix == TOKENIZER_PREFIX_MAX)
        return load_refuse(err, path, "more than %u tokens in front of the text", TOKENIZER_PREFIX_MAX);
    if (!tokenizer_id(tokenizer, json_object_get_string(name), &id))
        return load_refuse(err, path, "%s is not among added_tokens", describe(name).text);
    tokenizer->prefix[tokenizer->n_prefix++] = id;
    return true;
}

static bool load_template(struct tokenizer *tokenizer, struct json_object *object, const char *where, struct err *err)
{
    struct json_object *single = json_object_object_get(object, "single");
    bool seen_text = false;
    char path[96];
    if (!json_object_is_type(single, json_type_array)) return load_refuse(err, where, "single is not an array");
    if (tokenizer->n_prefix > 0) return load_refuse(err, where, "is a second template");
    for (size_t i = 0; i < json_object_array_length(single); i++) {
        snprintf(path, sizeof path, "%s.single[%zu]", where, i);
        if (!template_item(tokenizer, json_object_array_get_idx(single, i), path, &seen_text, err)) return false;
    }
    if (!seen_text) return load_refuse(err, where, "single does not hold the text");
    return true;
}

static bool load_processor(struct tokenizer *tokenizer, struct json_object *object, const char *path, struct err *err)
{
    if (is_type(object, "ByteLevel")) return true; /* it only moves offsets, which nobody here asks for */
    if (is_type(object, "TemplateProcessing")) return load_template(tokenizer, object, path, err);
    return load_refuse(err, path, "is %s, only \"ByteLevel\" and \"TemplateProcessing\" are implemented",
                       describe(object).text);
}

bool load_post_processor(struct tokenizer *tokenizer, struct json_object *root, struct err *err)
{
    struct json_object *post = json_object_object_get(root, "post_processor");
    if (is_type(post, "Sequence")) {
        struct json_object *list = json_object_object_get(post, "processors");
        if (!json_object_is_type(list, json_type_array))
            return load_refuse(err, "post_processor.processors", "not an array");
        for (size_t i = 0; i < json_object_array_length(list); i++) {
            char path[64];
            snprintf(path, sizeof path, "post_processor.processors[%zu]", i);
            if (!load_processor(tokenizer, json_object_array_get_idx(list, i), path, err)) return false;
        }
    } else if (post && !load_processor(tokenizer, post, "post_processor", err)) {
        return false;
    }
    uint32_t mask, start;
    if (tokenizer->n_prefix == 0 && tokenizer_id(tokenizer, "[gMASK]", &mask) &&
        tokenizer_id(tokenizer, "<sop>", &start)) {
        tokenizer->prefix[tokenizer->n_prefix++] = mask;
        tokenizer->prefix[tokenizer->n_prefix++] = start;
    }
    return true;
}
