#include "fmt/tokenizer_config.h"

#include "fmt/json_doc.h"
#include "fmt/tokenizer_int.h"
#include <inttypes.h>
#include <json-c/json_object_iterator.h>
#include <stdio.h>
#include <string.h>

struct comparison {
    const struct tokenizer *tokenizer;
    const char *name; /* of the file */
    struct buf *warnings;
    uint32_t n_warnings;
};

/* One entry: the id is the key. Writes what is wrong with it, or nothing. */
static bool compare_entry(const struct comparison *c, const char *key, struct json_object *entry, struct buf *out,
                          struct err *err)
{
    struct json_object *text = json_object_object_get(entry, "content"), *special;
    if (!json_object_is_type(text, json_type_string)) return buf_add_text(out, "has no content", err);
    const char *content = json_object_get_string(text);
    size_t bytes = (size_t)json_object_get_string_len(text);
    struct quoted quoted = load_quote(content, bytes);
    uint32_t id = trie_find(&c->tokenizer->added, content, bytes);
    char digits[16];
    if (id == NO_ID) return buf_printf(out, err, "is %s, which is no added token of tokenizer.json", quoted.text);
    snprintf(digits, sizeof digits, "%" PRIu32, id);
    if (strcmp(digits, key) != 0)
        return buf_printf(out, err, "is %s, which has id %s in tokenizer.json", quoted.text, digits);
    special = json_object_object_get(entry, "special");
    bool is_special = tokenizer_token(c->tokenizer, id).kind == TOKEN_SPECIAL;
    if (json_object_is_type(special, json_type_boolean) && json_object_get_boolean(special) != is_special)
        return buf_printf(out, err, "is %s, which is %sspecial in tokenizer.json", quoted.text,
                          is_special ? "" : "not ");
    return true;
}

static bool compare_list(struct comparison *c, struct json_object *list, struct buf *scratch, struct err *err)
{
    struct json_object_iterator at = json_object_iter_begin(list), end = json_object_iter_end(list);
    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *key = json_object_iter_peek_name(&at);
        buf_clear(scratch);
        if (!compare_entry(c, key, json_object_iter_peek_value(&at), scratch, err)) return false;
        if (scratch->bytes == 0) continue;
        if (c->n_warnings++ >= TOKENIZER_CONFIG_WARNINGS_MAX) continue;
        if (!buf_printf(c->warnings, err, "%s: added_tokens_decoder: id %s %s\n", c->name,
                        load_quote(key, strlen(key)).text, scratch->data))
            return false;
    }
    if (c->n_warnings <= TOKENIZER_CONFIG_WARNINGS_MAX) return true;
    return buf_printf(c->warnings, err, "%s: added_tokens_decoder: %" PRIu32 " more like these\n", c->name,
                      c->n_warnings - TOKENIZER_CONFIG_WARNINGS_MAX);
}

bool tokenizer_config_compare(const struct tokenizer *tokenizer, struct alloc *alloc, const char *name,
                              const char *json, size_t bytes, struct buf *warnings, struct err *err)
{
    struct comparison c = {.tokenizer = tokenizer, .name = name, .warnings = warnings};
    struct json_object *root = NULL, *list = NULL;
    struct buf scratch;
    if (!json_doc_parse(&root, alloc, &json_rules_file, name, json, bytes, err)) return false;
    buf_init(&scratch, alloc, 1024);
    if (json_object_is_type(root, json_type_object)) list = json_object_object_get(root, "added_tokens_decoder");
    bool ok = !json_object_is_type(list, json_type_object) || compare_list(&c, list, &scratch, err);
    buf_fini(&scratch);
    json_object_put(root);
    return ok;
}
