#include "fmt/chat_tools.h"

#include "fmt/json_build.h"
#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <string.h>

static bool copy_members(struct json_object *to, struct json_object *from)
{
    for (const struct lh_entry *e = json_object_get_object(from)->head; e; e = e->next) {
        const char *key = lh_entry_k(e);
        if (strcmp(key, "strict") == 0 || strcmp(key, "defer_loading") == 0) continue;
        if (!json_build_share(to, key, lh_entry_v(e))) return false;
    }
    return true;
}

/* Other wire forms name the schema `input_schema`, or carry a `type` beside the members. */
static bool rebuild(struct json_object *to, struct json_object *from, const char *schema_key)
{
    const char *const keys[][2] = {{"name", "name"}, {"description", "description"}, {"parameters", schema_key}};
    for (size_t i = 0; i < 3; i++) {
        struct json_object *member;
        if (json_object_object_get_ex(from, keys[i][1], &member) && !json_build_share(to, keys[i][0], member))
            return false;
    }
    return true;
}

static bool is_text(struct json_object *value, const char *text)
{
    return json_object_is_type(value, json_type_string) && strcmp(json_object_get_string(value), text) == 0;
}

static bool make_function(struct json_object *to, struct json_object *from, bool is_bare)
{
    struct json_object *schema;
    if (json_object_object_get_ex(from, "input_schema", &schema) && !json_object_object_get(from, "parameters"))
        return rebuild(to, from, "input_schema");
    if (is_bare && is_text(json_object_object_get(from, "type"), "function")) return rebuild(to, from, "parameters");
    return copy_members(to, from);
}

static bool tool_init(struct chat_tool *tool, struct json_object *declared, size_t index, struct err *err)
{
    struct json_object *from = declared, *inner = NULL, *name;
    bool is_wrapped =
        json_object_is_type(declared, json_type_object) && json_object_object_get_ex(declared, "function", &inner);
    if (is_wrapped) from = inner;
    if (!json_object_is_type(from, json_type_object))
        return err_set(err, ERR_USER, "tools[%zu]%s: must be an object", index, is_wrapped ? ".function" : "");
    name = json_object_object_get(from, "name");
    if (!json_object_is_type(name, json_type_string) || json_object_get_string_len(name) == 0)
        return err_set(err, ERR_USER, "tools[%zu]: the function needs a name", index);
    tool->name = json_object_get_string(name);
    tool->name_bytes = (size_t)json_object_get_string_len(name);
    tool->is_deferred = json_object_get_boolean(json_object_object_get(from, "defer_loading"));
    tool->function = json_object_new_object();
    if (!tool->function || !make_function(tool->function, from, !is_wrapped))
        return err_set(err, ERR_NOMEM, "tools[%zu]: no memory for a copy", index);
    tool->parameters = json_object_object_get(tool->function, "parameters");
    return true;
}

bool chat_tools_init(struct chat_tools *tools, struct alloc *alloc, struct json_object *list, struct err *err)
{
    *tools = (struct chat_tools){.alloc = alloc};
    if (!list) return true;
    if (!json_object_is_type(list, json_type_array)) return err_set(err, ERR_USER, "tools: must be an array");
    size_t n = json_object_array_length(list);
    if (n > CHAT_TOOLS_MAX)
        return err_set(err, ERR_USER, "tools: %zu tools, at most %d are accepted", n, CHAT_TOOLS_MAX);
    tools->tools = alloc_get_array(alloc, n, sizeof *tools->tools, err);
    if (!tools->tools) return false;
    for (size_t i = 0; i < n; i++) {
        tools->n_tools++;
        if (!tool_init(&tools->tools[i], json_object_array_get_idx(list, i), i, err)) goto fail;
    }
    return true;
fail:
    chat_tools_fini(tools);
    return false;
}

void chat_tools_fini(struct chat_tools *tools)
{
    for (size_t i = 0; i < tools->n_tools; i++) json_object_put(tools->tools[i].function);
    if (tools->tools) alloc_put(tools->alloc, tools->tools);
    *tools = (struct chat_tools){0};
}

const struct chat_tool *chat_tools_find(const struct chat_tools *tools, const char *name, size_t bytes)
{
    for (size_t i = 0; i < tools->n_tools; i++) {
        const struct chat_tool *tool = &tools->tools[i];
        if (tool->name_bytes == bytes && memcmp(tool->name, name, bytes) == 0) return tool;
    }
    return NULL;
}
