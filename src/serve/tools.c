#include "serve/tools.h"

#include "fmt/json_build.h"
#include "fmt/json_doc.h"
#include "serve/fields.h"
#include "serve/jot.h"
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 128, DROPPED_BYTES_MAX = 2048 };

const char *tools_flat_name(char out[TOOL_NAME_MAX], const char *namespace, const char *name)
{
    snprintf(out, TOOL_NAME_MAX, "%.128s%s%.128s", namespace ? namespace : "", namespace ? "__" : "", name);
    return out;
}

struct reading {
    struct tools *tools;
    const struct tools_reader *with;
    size_t n; /* shown so far */
    struct problem *problem;
};

static bool no_memory(struct problem *problem)
{
    return problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the tools of the request");
}

static bool name_is_legal(const char *name)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
    size_t n = strlen(name);
    return n > 0 && n <= NAME_MAX_BYTES && strspn(name, legal) == n;
}

/* The name is taken over into the arena: `shown` entries may be rebuilt. */
static bool show(struct reading *r, struct json_object *entry, struct tool_origin origin, const char *where)
{
    struct err err = {0};
    struct problem *problem = r->problem;
    if (!name_is_legal(origin.name))
        return problem_set(problem, PROBLEM_INVALID_VALUE, where,
                           "%s: the name of a tool must be 1 to %d letters, digits, or _ - . :", where, NAME_MAX_BYTES);
    if (r->n == CHAT_TOOLS_MAX)
        return problem_set(problem, PROBLEM_INVALID_VALUE, "tools", "tools: at most %d are accepted", CHAT_TOOLS_MAX);
    origin.name = arena_text(r->with->arena, origin.name, strlen(origin.name), &err);
    if (origin.namespace)
        origin.namespace = arena_text(r->with->arena, origin.namespace, strlen(origin.namespace), &err);
    if (err.kind || !json_build_share_element(r->tools->shown, entry)) return no_memory(problem);
    r->tools->origins[r->n++] = origin;
    return true;
}

/* {"name", "description", "parameters"} with the flat name, from any of the flat forms. */
static struct json_object *flat_function(const char *name, struct json_object *description, struct json_object *schema)
{
    struct json_object *function = json_object_new_object();
    if (!function || !json_build_words(function, "name", name) ||
        (description && !json_build_share(function, "description", description)) ||
        (schema && !json_build_share(function, "parameters", schema))) {
        json_object_put(function);
        return NULL;
    }
    return function;
}

/* What a custom tool's input must look like is documentation for the model, behind its description. */
static struct json_object *custom_description(const struct reading *r, struct json_object *custom)
{
    struct buf text;
    struct err err = {0};
    struct json_object *format = json_object_object_get(custom, "format"), *out = NULL;
    struct json_object *grammar = json_object_object_get(format, "grammar"); /* chat nests it once more */
    const char *definition = field_word(grammar ? grammar : format, "definition");
    const char *syntax = field_word(grammar ? grammar : format, "syntax");
    buf_init(&text, r->with->alloc, 1 << 20);
    bool ok = buf_add_text(&text, field_word(custom, "description"), &err);
    if (ok && *definition)
        ok = buf_printf(&text, &err, "%sThe input follows this %s grammar:\n", text.bytes ? "\n" : "", syntax) &&
             buf_add_text(&text, definition, &err);
    if (ok) out = json_object_new_string_len(text.data ? text.data : "", (int)text.bytes);
    buf_fini(&text);
    return out;
}

static struct json_object *input_schema(void)
{
    struct json_object *schema = json_object_new_object(), *properties = json_object_new_object();
    struct json_object *input = json_object_new_object(), *required = json_object_new_array();
    bool ok = schema && properties && input && required && json_build_words(input, "type", "string") &&
              json_build_words(schema, "type", "object") &&
              json_build_element(required, json_object_new_string("input")) &&
              json_build_share(properties, "input", input) && json_build_share(schema, "properties", properties) &&
              json_build_share(schema, "required", required);
    json_object_put(properties);
    json_object_put(input);
    json_object_put(required);
    if (ok) return schema;
    json_object_put(schema);
    return NULL;
}

static bool read_strict(struct reading *r, struct json_object *tool, bool *is_strict, const char *where)
{
    struct json_object *value = json_object_object_get(tool, "strict");
    if (!value) return true;
    *is_strict = json_object_get_boolean(value);
    return json_object_is_type(value, json_type_boolean) ||
           problem_set(r->problem, PROBLEM_INVALID_TYPE, where, "%s: strict must be true or false", where);
}

static bool read_custom(struct reading *r, struct json_object *entry, const char *namespace, const char *where)
{
    struct json_object *inner = json_object_object_get(entry, "custom");
    struct json_object *custom = json_object_is_type(inner, json_type_object) ? inner : entry;
    const char *name = field_word(custom, "name");
    char flat[TOOL_NAME_MAX];
    bool is_strict = false;
    if (!read_strict(r, custom, &is_strict, where)) return false;
    if (is_strict)
        return problem_set(r->problem, PROBLEM_UNSUPPORTED, where, "%s: strict is not supported for custom tools",
                           where);
    struct json_object *description = custom_description(r, custom), *schema = input_schema();
    struct json_object *function =
        description && schema ? flat_function(tools_flat_name(flat, namespace, name), description, schema) : NULL;
    json_object_put(description);
    json_object_put(schema);
    bool ok = function ? show(r, function,
                              (struct tool_origin){.name = name, .namespace = namespace, .is_custom = true}, where)
                       : no_memory(r->problem);
    json_object_put(function);
    return ok;
}

static struct json_object *schema_of(struct json_object *function)
{
    struct json_object *schema = json_object_object_get(function, "parameters");
    return schema ? schema : json_object_object_get(function, "input_schema");
}

static bool read_function(struct reading *r, struct json_object *entry, const char *namespace, const char *where)
{
    struct json_object *inner = json_object_object_get(entry, "function");
    struct json_object *function = json_object_is_type(inner, json_type_object) ? inner : entry;
    struct json_object *schema = schema_of(function);
    const char *name = field_word(function, "name");
    bool is_strict = false;
    char flat[TOOL_NAME_MAX];
    if (schema && !json_object_is_type(schema, json_type_object))
        return problem_set(r->problem, PROBLEM_INVALID_TYPE, where, "%s: the parameters must be an object", where);
    if (!read_strict(r, function, &is_strict, where)) return false;
    const struct tool_origin origin = {.name = name, .namespace = namespace, .is_strict = is_strict};
    if (!namespace) return show(r, entry, origin, where);
    struct json_object *description = json_object_object_get(function, "description");
    struct json_object *renamed = flat_function(tools_flat_name(flat, namespace, name), description, schema);
    bool ok = renamed ? show(r, renamed, origin, where) : no_memory(r->problem);
    json_object_put(renamed);
    return ok;
}

/* Run by the vendor's servers, or by clients with schemas that only the vendor's model knows: not shown. */
static bool drop(struct reading *r, const char *type, const char *where)
{
    struct err err;
    if (r->with->strict)
        return problem_set(r->problem, PROBLEM_UNSUPPORTED, where, "%s: tools of type '%.50s' are not supported", where,
                           type);
    size_t n = strspn(type, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
    /* A list that does not fit says less. */
    if (n > 0 && n < 64 &&
        !buf_printf(&r->tools->dropped, &err, "%s%.*s", r->tools->dropped.bytes ? ", " : "", (int)n, type))
        return true;
    return true;
}

static bool read_entry(struct reading *r, struct json_object *entry, const char *namespace, const char *where);

static bool read_namespace(struct reading *r, struct json_object *entry, const char *where)
{
    struct json_object *list = NULL;
    const char *name = field_word(entry, "name");
    if (!field_list(entry, "tools", &list, r->problem)) return problem_inside(r->problem, where);
    if (!name_is_legal(name))
        return problem_set(r->problem, PROBLEM_INVALID_VALUE, where, "%s: the namespace needs a legal name", where);
    size_t n = list ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        char place[96];
        snprintf(place, sizeof place, "%.60s.tools[%zu]", where, i);
        if (!read_entry(r, json_object_array_get_idx(list, i), name, place)) return false;
    }
    return true;
}

static bool read_entry(struct reading *r, struct json_object *entry, const char *namespace, const char *where)
{
    const char *type = field_word(entry, "type");
    bool responses = r->with->wire == TOOLS_RESPONSES;
    if (!json_object_is_type(entry, json_type_object))
        return problem_set(r->problem, PROBLEM_INVALID_TYPE, where, "%s: must be an object", where);
    if (responses && !namespace && strcmp(type, "namespace") == 0) return read_namespace(r, entry, where);
    if (responses && strcmp(type, "local_shell") == 0)
        return problem_set(r->problem, PROBLEM_UNSUPPORTED, where, "%s: local_shell is not supported", where);
    /* Anthropic calls a plain function custom. */
    bool is_custom = strcmp(type, "custom") == 0 && r->with->wire != TOOLS_MESSAGES;
    if (is_custom) return read_custom(r, entry, namespace, where);
    bool is_function = !*type || strcmp(type, "function") == 0 || strcmp(type, "custom") == 0;
    bool has_schema = schema_of(entry) || json_object_object_get(entry, "function");
    return is_function || has_schema ? read_function(r, entry, namespace, where) : drop(r, type, where);
}

static bool check_names(const struct tools *tools, struct problem *problem)
{
    for (size_t i = 0; i < tools->chat.n_tools; i++) {
        const struct chat_tool *tool = &tools->chat.tools[i];
        if (chat_tools_find(&tools->chat, tool->name, tool->name_bytes) != tool)
            return problem_set(problem, PROBLEM_INVALID_VALUE, "tools", "tools: two of them are called '%.128s'",
                               tool->name);
    }
    return true;
}

static bool read_list(struct reading *r, struct json_object *list)
{
    struct err err = {0};
    struct tools *tools = r->tools;
    size_t n = json_object_array_length(list);
    tools->shown = json_object_new_array();
    tools->origins = arena_get_array(r->with->arena, CHAT_TOOLS_MAX, sizeof *tools->origins, &err);
    if (!tools->shown || !tools->origins) return no_memory(r->problem);
    for (size_t i = 0; i < n; i++) {
        char where[32];
        snprintf(where, sizeof where, "tools[%zu]", i);
        if (!read_entry(r, json_object_array_get_idx(list, i), NULL, where)) return false;
    }
    if (!chat_tools_init(&tools->chat, r->with->alloc, tools->shown, &err))
        return problem_from(r->problem, PROBLEM_INVALID_VALUE, &err);
    return check_names(tools, r->problem);
}

/* --- tool_choice --- */

static const struct chat_tool *find_choice(const struct tools *tools, struct json_object *choice)
{
    static const char *const inner[] = {"function", "custom"};
    char flat[TOOL_NAME_MAX];
    const char *name = field_word(choice, "name"), *namespace = field_word(choice, "namespace");
    for (size_t i = 0; i < 2 && !*name; i++) name = field_word(json_object_object_get(choice, inner[i]), "name");
    tools_flat_name(flat, *namespace ? namespace : NULL, name);
    return chat_tools_find(&tools->chat, flat, strlen(flat));
}

static bool choose_named(struct tools *tools, struct json_object *choice, struct problem *problem)
{
    tools->named = find_choice(tools, choice);
    tools->choice = TOOLS_NAMED;
    if (tools->named) return true;
    if (tools->dropped.bytes > 0) /* it may be one of those */
        return problem_set(problem, PROBLEM_UNSUPPORTED, "tool_choice",
                           "tool_choice: names a tool that is not among those this server can offer; left out: %s",
                           tools->dropped.data);
    return problem_set(problem, PROBLEM_INVALID_VALUE, "tool_choice",
                       "tool_choice: names a tool that is not among tools");
}

/* Only these are shown, in the order of the declaration. */
static bool keep_only(struct tools *tools, struct alloc *alloc, struct json_object *list, struct problem *problem)
{
    struct err err = {0};
    size_t n = json_object_array_length(list), n_kept = 0;
    struct json_object *kept = json_object_new_array();
    if (!kept) return no_memory(problem);
    for (size_t t = 0; t < tools->chat.n_tools; t++) {
        bool is_allowed = false;
        for (size_t i = 0; i < n; i++)
            is_allowed = is_allowed || find_choice(tools, json_object_array_get_idx(list, i)) == &tools->chat.tools[t];
        if (!is_allowed) continue;
        tools->origins[n_kept++] = tools->origins[t];
        if (!json_build_share_element(kept, json_object_array_get_idx(tools->shown, t))) {
            json_object_put(kept);
            return no_memory(problem);
        }
    }
    json_object_put(tools->shown);
    tools->shown = kept;
    chat_tools_fini(&tools->chat);
    if (!chat_tools_init(&tools->chat, alloc, kept, &err)) return problem_from(problem, PROBLEM_INVALID_VALUE, &err);
    return true;
}

static bool choose_allowed(struct tools *tools, struct alloc *alloc, struct json_object *choice,
                           struct problem *problem)
{
    struct json_object *inner = json_object_object_get(choice, "allowed_tools"), *list = NULL;
    struct json_object *from = json_object_is_type(inner, json_type_object) ? inner : choice;
    const char *mode = "auto";
    if (!field_list(from, "tools", &list, problem) || !field_text(from, "mode", &mode, problem))
        return problem_inside(problem, from == inner ? "tool_choice.allowed_tools" : "tool_choice");
    if (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0)
        return problem_set(problem, PROBLEM_INVALID_VALUE, "tool_choice",
                           "tool_choice: the mode of allowed_tools must be auto or required, not '%.50s'", mode);
    tools->choice = strcmp(mode, "required") == 0 ? TOOLS_REQUIRED : TOOLS_AUTO;
    if (!list)
        return problem_set(problem, PROBLEM_MISSING_FIELD, "tool_choice", "tool_choice: allowed_tools needs tools");
    size_t n = json_object_array_length(list);
    for (size_t i = 0; i < n; i++)
        if (!find_choice(tools, json_object_array_get_idx(list, i)) && tools->dropped.bytes == 0)
            return problem_set(problem, PROBLEM_INVALID_VALUE, "tool_choice",
                               "tool_choice: number %zu of allowed_tools is not among tools", i);
    if (!keep_only(tools, alloc, list, problem)) return false;
    return tools->chat.n_tools > 0 || tools->choice == TOOLS_AUTO ||
           problem_set(problem, PROBLEM_INVALID_VALUE, "tool_choice",
                       "tool_choice: none of allowed_tools can be called, and one is required");
}

static bool is_word(const char *word)
{
    static const char *const words[] = {"required", "any", "function", "custom", "tool", "allowed_tools"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return false;
}

static bool read_choice(struct tools *tools, struct alloc *alloc, struct json_object *choice, struct problem *problem)
{
    bool is_object = json_object_is_type(choice, json_type_object);
    const char *word = is_object                                       ? field_word(choice, "type")
                       : json_object_is_type(choice, json_type_string) ? json_object_get_string(choice)
                                                                       : "";
    bool no_parallel = false;
    if (choice && !is_object && !json_object_is_type(choice, json_type_string))
        return problem_set(problem, PROBLEM_INVALID_TYPE, "tool_choice", "tool_choice: must be a string or an object");
    if (is_object && !field_bool(choice, "disable_parallel_tool_use", &no_parallel, problem))
        return problem_inside(problem, "tool_choice");
    tools->one_call = tools->one_call || no_parallel;
    if (!choice || strcmp(word, "auto") == 0) return true;
    if (strcmp(word, "none") == 0) {
        tools->choice = TOOLS_NONE;
        return true;
    }
    if (!is_word(word))
        return problem_set(problem, is_object ? PROBLEM_UNSUPPORTED : PROBLEM_INVALID_VALUE, "tool_choice",
                           "tool_choice: '%.50s' is not supported", word);
    if (tools->chat.n_tools == 0)
        return problem_set(problem, PROBLEM_INVALID_VALUE, "tool_choice",
                           "tool_choice: there are no tools; it must be auto, none, or absent");
    if (strcmp(word, "required") == 0 || strcmp(word, "any") == 0) {
        tools->choice = TOOLS_REQUIRED;
        return true;
    }
    if (is_object && (strcmp(word, "function") == 0 || strcmp(word, "custom") == 0 || strcmp(word, "tool") == 0))
        return choose_named(tools, choice, problem);
    if (is_object && strcmp(word, "allowed_tools") == 0) return choose_allowed(tools, alloc, choice, problem);
    return problem_set(problem, is_object ? PROBLEM_UNSUPPORTED : PROBLEM_INVALID_VALUE, "tool_choice",
                       "tool_choice: '%.50s' is not supported", word);
}

bool tools_read(struct tools *tools, const struct tools_reader *reader, struct json_object *body,
                struct problem *problem)
{
    struct json_object *list = NULL;
    bool parallel = true;
    struct reading r = {.tools = tools, .with = reader, .problem = problem};
    *tools = (struct tools){0};
    buf_init(&tools->dropped, reader->alloc, DROPPED_BYTES_MAX);
    if (!field_list(body, "tools", &list, problem) || !field_bool(body, "parallel_tool_calls", &parallel, problem))
        return false;
    if (list && !read_list(&r, list)) return false;
    tools->one_call = !parallel;
    return read_choice(tools, reader->alloc, json_object_object_get(body, "tool_choice"), problem);
}

void tools_fini(struct tools *tools)
{
    chat_tools_fini(&tools->chat);
    json_object_put(tools->shown);
    tools->shown = NULL;
    buf_fini(&tools->dropped);
}

const struct tool_origin *tools_origin(const struct tools *tools, const struct chat_tool *tool)
{
    return &tools->origins[tool - tools->chat.tools];
}

void tools_put_input(struct jot *json, struct alloc *alloc, const char *arguments, size_t bytes)
{
    struct json_object *object = NULL;
    struct err err;
    if (json->err.kind == ERR_NONE &&
        json_doc_parse(&object, alloc, &json_rules_request, "arguments", arguments, bytes, &err)) {
        struct json_object *input = json_object_object_get(object, "input");
        if (json_object_is_type(input, json_type_string)) {
            jot_text(json, json_object_get_string(input), (size_t)json_object_get_string_len(input));
            json_object_put(object);
            return;
        }
    }
    json_object_put(object);
    jot_text(json, arguments, bytes); /* it gave something else than was declared: the client sees it as it is */
}
