/* One message of the assistant collects what follows on itself: reasoning, a text, calls. Anything else ends it. */
#include "serve/responses_in.h"

#include "fmt/json_build.h"
#include "fmt/json_doc.h"
#include "serve/fields.h"
#include "serve/responses_store.h"
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 64 << 20, WHERE_BYTES = 96, REFERENCES_MAX = 4096 };

struct reading {
    struct call *call;
    struct json_object *out;   /* call->messages */
    struct json_object *turn;  /* the assistant's, borrowed; NULL: none is open */
    struct json_object *calls; /* of the turn, borrowed; NULL: none yet */
    struct json_object *known; /* ids of all calls so far, as keys; ours */
    struct problem *problem;
};

static bool no_memory(struct reading *r)
{
    return problem_set(r->problem, PROBLEM_INTERNAL, NULL, "no memory for the input");
}

static struct json_object *add_message(struct reading *r, const char *role)
{
    struct json_object *message = json_object_new_object();
    r->turn = r->calls = NULL;
    if (message && json_build_words(message, "role", role) && json_object_array_add(r->out, message) == 0)
        return message;
    json_object_put(message);
    return NULL;
}

/* The open turn of the assistant, or a new one. */
static struct json_object *turn_of(struct reading *r)
{
    if (!r->turn) r->turn = add_message(r, "assistant");
    return r->turn;
}

/* --- items --- */

/* The content is the thought itself. Where it is empty or left out, the summary is all that there is: of our own
 * answers it holds the whole thought when it was asked for. */
static bool add_reasoning(struct reading *r, struct json_object *item, const char *where)
{
    struct buf text;
    struct err err = {0};
    struct json_object *summary = NULL, *parts = NULL;
    if (!field_list(item, "summary", &summary, r->problem) || !field_list(item, "content", &parts, r->problem))
        return problem_inside(r->problem, where);
    if (!parts || json_object_array_length(parts) == 0) parts = summary;
    buf_init(&text, r->call->server->alloc, TEXT_BYTES_MAX);
    size_t n = parts ? json_object_array_length(parts) : 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++)
        ok = buf_add_text(&text, field_word(json_object_array_get_idx(parts, i), "text"), &err);
    /* A thought that stands behind a text begins another turn. */
    if (r->turn && (r->calls || json_object_object_get(r->turn, "content"))) r->turn = NULL;
    if (ok && text.bytes > 0) ok = turn_of(r) && json_build_text(r->turn, "reasoning_content", text.data, text.bytes);
    buf_fini(&text);
    return ok || no_memory(r);
}

static bool need_content(struct reading *r, struct json_object *item, const char *where)
{
    return json_object_object_get(item, "content") ||
           problem_set(r->problem, PROBLEM_MISSING_FIELD, where, "%s: a message needs a content", where);
}

static bool add_assistant(struct reading *r, struct json_object *item)
{
    if (r->turn && (r->calls || json_object_object_get(r->turn, "content"))) r->turn = NULL;
    if (!turn_of(r)) return no_memory(r);
    return json_build_member(r->turn, "content", json_object_get(json_object_object_get(item, "content"))) ||
           no_memory(r);
}

static bool add_plain(struct reading *r, struct json_object *item, const char *where)
{
    const char *role = field_word(item, "role");
    struct json_object *content = json_object_object_get(item, "content");
    if (!need_content(r, item, where)) return false;
    if (strcmp(role, "assistant") == 0) return add_assistant(r, item);
    if (strcmp(role, "user") != 0 && strcmp(role, "system") != 0 && strcmp(role, "developer") != 0)
        return problem_set(r->problem, PROBLEM_INVALID_VALUE, where, "%s: the role '%.30s' is not supported", where,
                           role);
    struct json_object *message = add_message(r, role);
    return (message && json_build_member(message, "content", json_object_get(content))) || no_memory(r);
}

/* A call in the turn; `arguments` changes hands. */
static bool add_call(struct reading *r, struct json_object *item, const char *name, struct json_object *arguments)
{
    char flat[TOOL_NAME_MAX];
    const char *namespace = field_word(item, "namespace"), *id = field_word(item, "call_id");
    struct json_object *call = json_object_new_object(), *function = json_object_new_object();
    bool ok = call && function && arguments && turn_of(r);
    if (ok && !r->calls) {
        r->calls = json_object_new_array();
        ok = json_build_member(r->turn, "tool_calls", r->calls);
        if (!ok) r->calls = NULL;
    }
    ok = ok && json_build_words(function, "name", tools_flat_name(flat, *namespace ? namespace : NULL, name)) &&
         json_build_share(function, "arguments", arguments) && json_build_words(call, "id", id) &&
         json_build_words(call, "type", "function") && json_build_share(call, "function", function) &&
         json_build_share_element(r->calls, call) && json_build_member(r->known, id, json_object_new_boolean(1));
    json_object_put(arguments);
    json_object_put(function);
    json_object_put(call);
    return ok || no_memory(r);
}

static bool add_function_call(struct reading *r, struct json_object *item, const char *where)
{
    struct json_object *arguments = json_object_object_get(item, "arguments");
    const char *name = field_word(item, "name");
    if (!*name) return problem_set(r->problem, PROBLEM_MISSING_FIELD, where, "%s: a call needs a name", where);
    return add_call(r, item, name, arguments ? json_object_get(arguments) : json_object_new_string("{}"));
}

/* What a custom tool got is the argument `input`; what a shell was to do stands as it is. */
static bool add_custom_call(struct reading *r, struct json_object *item, const char *where)
{
    const char *name = field_word(item, "name");
    struct json_object *arguments = json_object_new_object(), *input = json_object_object_get(item, "input");
    if (!*name) {
        json_object_put(arguments);
        return problem_set(r->problem, PROBLEM_MISSING_FIELD, where, "%s: a call needs a name", where);
    }
    if (arguments && !json_build_member(arguments, "input", json_object_get(input))) {
        json_object_put(arguments);
        return problem_set(r->problem, PROBLEM_MISSING_FIELD, where, "%s: a custom tool call needs an input", where);
    }
    return add_call(r, item, name, arguments);
}

static bool add_shell_call(struct reading *r, struct json_object *item, const char *where)
{
    struct json_object *action = json_object_object_get(item, "action");
    (void)where;
    return add_call(r, item, "local_shell",
                    json_object_is_type(action, json_type_object) ? json_object_get(action) : json_object_new_object());
}

static bool add_output(struct reading *r, struct json_object *item, const char *where)
{
    const char *id = field_word(item, "call_id");
    struct json_object *output = json_object_object_get(item, "output");
    if (!*id) id = field_word(item, "id");
    if (!json_object_object_get_ex(r->known, id, NULL))
        return problem_set(r->problem, PROBLEM_INVALID_VALUE, where, "%s: call_id '%.60s' answers no call before it",
                           where, id);
    struct json_object *message = add_message(r, "tool");
    return (message && json_build_words(message, "tool_call_id", id) &&
            (!output || json_build_member(message, "content", json_object_get(output)))) ||
           no_memory(r);
}

typedef bool item_fn(struct reading *r, struct json_object *item, const char *where);

static bool skip(struct reading *r, struct json_object *item, const char *where)
{
    (void)r;
    (void)item;
    (void)where;
    return true;
}

/* `member`: what a message or a call in one is made from; NULL: the item makes none. */
static const struct kind {
    const char *type;
    item_fn *add;
    bool is_call;
    const char *member;
} kinds[] = {
    {"message", add_plain, false, "content"},
    {"", add_plain, false, "content"}, /* a message may leave its type out */
    {"reasoning", add_reasoning, false, NULL},
    {"function_call", add_function_call, true, "arguments"},
    {"function_call_output", add_output, false, "output"},
    {"custom_tool_call", add_custom_call, true, "input"},
    {"custom_tool_call_output", add_output, false, "output"},
    {"local_shell_call", add_shell_call, true, "action"},
    {"local_shell_call_output", add_output, false, "output"},
    {"compaction", skip, false, NULL}, /* these only annotate */
    {"web_search_call", skip, false, NULL},
    {"file_search_call", skip, false, NULL},
    {"image_generation_call", skip, false, NULL},
    {"code_interpreter_call", skip, false, NULL},
    {"mcp_list_tools", skip, false, NULL},
};

/* NULL: there is none. */
static const struct kind *kind_of(struct json_object *item)
{
    const char *type = field_word(item, "type");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0) return &kinds[i];
    return NULL;
}

static void name_item(char where[WHERE_BYTES], const struct call *call, size_t index)
{
    if (index < call->n_previous_items)
        snprintf(where, WHERE_BYTES, "previous_response_id");
    else
        snprintf(where, WHERE_BYTES, "input[%zu]", index - call->n_previous_items);
}

static bool add_item(struct reading *r, struct json_object *item, size_t index)
{
    char where[WHERE_BYTES];
    const struct kind *kind = kind_of(item);
    struct input_place *place = &r->call->input_places[index];
    name_item(where, r->call, index);
    if (!json_object_is_type(item, json_type_object))
        return problem_set(r->problem, PROBLEM_INVALID_TYPE, where, "%s: must be an object", where);
    if (!kind)
        return problem_set(r->problem, PROBLEM_INVALID_VALUE, where, "%s: items of type '%.50s' are not supported",
                           where, field_word(item, "type"));
    if (!kind->add(r, item, where)) return false;
    *place = (struct input_place){SIZE_MAX, SIZE_MAX};
    if (kind->member) place->message = json_object_array_length(r->out) - 1;
    if (kind->is_call) place->call = json_object_array_length(r->calls) - 1;
    return true;
}

/* The template knows messages, and nothing of the items that they were made from. */
bool responses_blame(const struct call *call, struct problem *problem)
{
    static const char in_call[] = ".function.arguments";
    const struct problem told = *problem;
    char where[WHERE_BYTES], param[sizeof told.param];
    size_t message, at_call = SIZE_MAX, i = 0, n = json_object_array_length(call->input_items);
    int used = 0, more = 0;
    if (sscanf(told.param, "messages[%zu]%n", &message, &used) != 1 || used == 0) return false;
    if (sscanf(told.param + used, ".tool_calls[%zu]%n", &at_call, &more) == 1) used += more;
    while (i < n && (call->input_places[i].message != message || call->input_places[i].call != at_call)) i++;
    if (i == n) return false;
    name_item(where, call, i);
    const char *member = kind_of(json_object_array_get_idx(call->input_items, i))->member, *rest = told.param + used;
    const char *inner = at_call == SIZE_MAX ? ".content" : in_call;
    size_t skipped = strncmp(rest, inner, strlen(inner)) == 0 ? strlen(inner) : 0;
    snprintf(param, sizeof param, "%s.%s%s", where, member, rest + skipped);
    return problem_set(problem, told.kind, param, "%s%s", param, told.text + strlen(told.param));
}

/* --- the list of items --- */

static bool append_copies(struct json_object *to, struct json_object *from)
{
    size_t n = json_object_is_type(from, json_type_array) ? json_object_array_length(from) : 0;
    for (size_t i = 0; i < n; i++)
        if (!json_build_share_element(to, json_object_array_get_idx(from, i))) return false;
    return true;
}

/* A response out of the store, parsed: what it was made from, and itself. */
struct stored {
    struct json_object *items, *response;
};

static void drop_stored(struct stored *stored)
{
    json_object_put(stored->items);
    json_object_put(stored->response);
    *stored = (struct stored){0};
}

typedef bool get_fn(struct response_store *store, const char *id, struct buf *response, struct buf *input,
                    struct err *err);

static bool read_stored(struct call *call, get_fn *get, const char *id, struct stored *stored, struct problem *problem)
{
    struct err err = {0};
    struct buf response, input;
    struct alloc *alloc = call->server->alloc;
    struct json_rules rules = json_rules_request;
    drop_stored(stored);
    rules.bytes_max = RESPONSE_STORE_BYTES_MAX;
    buf_init(&response, alloc, RESPONSE_STORE_BYTES_MAX);
    buf_init(&input, alloc, RESPONSE_STORE_BYTES_MAX);
    bool ok = get(call->server->responses, id, &response, &input, &err);
    if (!ok) problem_from(problem, PROBLEM_NOT_FOUND, &err);
    if (ok) {
        ok = json_doc_parse(&stored->items, alloc, &rules, "stored input", input.data, input.bytes, &err) &&
             json_doc_parse(&stored->response, alloc, &rules, "stored response", response.data, response.bytes, &err);
        if (!ok) problem_set(problem, PROBLEM_INTERNAL, NULL, "the stored response cannot be read");
    }
    buf_fini(&response);
    buf_fini(&input);
    return ok;
}

static bool append_previous(struct call *call, struct problem *problem)
{
    struct stored stored = {0};
    bool ok = read_stored(call, response_store_get, call->previous_id, &stored, problem);
    if (!ok) snprintf(problem->param, sizeof problem->param, "previous_response_id");
    if (ok && (!append_copies(call->input_items, stored.items) ||
               !append_copies(call->input_items, json_object_object_get(stored.response, "output"))))
        ok = problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the input");
    drop_stored(&stored);
    return ok;
}

/* Borrowed, or NULL. */
static struct json_object *find_item(struct json_object *list, const char *id)
{
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++)
        if (field_is(json_object_array_get_idx(list, i), "id", id)) return json_object_array_get_idx(list, i);
    return NULL;
}

static struct json_object *find_in_stored(const struct stored *stored, const char *id)
{
    struct json_object *item = find_item(json_object_object_get(stored->response, "output"), id);
    return item ? item : find_item(stored->items, id);
}

static bool resolve(struct call *call, size_t index, struct stored *stored, struct problem *problem)
{
    char where[WHERE_BYTES];
    struct json_object *reference = json_object_array_get_idx(call->input_items, index);
    const char *id = field_word(reference, "id");
    name_item(where, call, index);
    if (!*id)
        return problem_set(problem, PROBLEM_MISSING_FIELD, where, "%s: a reference needs the id of an item", where);
    struct json_object *item = find_in_stored(stored, id);
    if (!item) {
        if (!read_stored(call, response_store_get_by_item, id, stored, problem)) {
            if (problem->kind == PROBLEM_NOT_FOUND) problem->kind = PROBLEM_INVALID_VALUE; /* the URL is right */
            snprintf(problem->param, sizeof problem->param, "%s", where);
            return false;
        }
        item = find_in_stored(stored, id);
    }
    if (!item)
        return problem_set(problem, PROBLEM_INVALID_VALUE, where, "%s: there is no stored item '%.60s'", where, id);
    return json_object_array_put_idx(call->input_items, index, json_object_get(item)) == 0 ||
           problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the input");
}

/* References become the items that they mean. Those of one conversation are all in its last response, which is kept at
 * hand. */
static bool resolve_references(struct call *call, struct problem *problem)
{
    struct stored stored = {0};
    size_t n = json_object_array_length(call->input_items), n_references = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        if (!field_is(json_object_array_get_idx(call->input_items, i), "type", "item_reference")) continue;
        if (++n_references > REFERENCES_MAX)
            ok = problem_set(problem, PROBLEM_INVALID_VALUE, "input", "input: more than %d references", REFERENCES_MAX);
        else
            ok = resolve(call, i, &stored, problem);
    }
    drop_stored(&stored);
    return ok;
}

/* A text is one message of the user. */
static bool append_text(struct call *call, struct json_object *text)
{
    struct json_object *item = json_object_new_object();
    bool ok = item && json_build_words(item, "type", "message") && json_build_words(item, "role", "user") &&
              json_build_share(item, "content", text) && json_build_share_element(call->input_items, item);
    json_object_put(item);
    return ok;
}

static bool read_items(struct call *call, struct problem *problem)
{
    struct json_object *input = json_object_object_get(call->body, "input");
    call->input_items = json_object_new_array();
    if (!call->input_items) return problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the input");
    if (call->previous_id && !append_previous(call, problem)) return false;
    call->n_previous_items = json_object_array_length(call->input_items);
    if (!input && !call->previous_id) return problem_set(problem, PROBLEM_MISSING_FIELD, "input", "input: missing");
    bool is_text = json_object_is_type(input, json_type_string);
    if (input && !is_text && !json_object_is_type(input, json_type_array))
        return problem_set(problem, PROBLEM_INVALID_TYPE, "input", "input: must be a string or a list of items");
    bool ok = is_text ? append_text(call, input) : append_copies(call->input_items, input);
    if (!ok) return problem_set(problem, PROBLEM_INTERNAL, NULL, "no memory for the input");
    return resolve_references(call, problem);
}

bool responses_read(struct call *call, struct problem *problem)
{
    const char *instructions = NULL;
    struct err err = {0};
    struct reading r = {.call = call, .problem = problem};
    if (!field_text(call->body, "instructions", &instructions, problem) || !read_items(call, problem)) return false;
    r.out = call->messages = json_object_new_array();
    r.known = json_object_new_object();
    size_t n = json_object_array_length(call->input_items);
    call->input_places = arena_get_array(&call->arena, n + 1, sizeof *call->input_places, &err);
    bool ok = (r.out && r.known && call->input_places) || no_memory(&r);
    if (ok && instructions) {
        struct json_object *message = add_message(&r, "system");
        ok = (message && json_build_member(message, "content",
                                           json_object_get(json_object_object_get(call->body, "instructions")))) ||
             no_memory(&r);
    }
    for (size_t i = 0; i < n && ok; i++) ok = add_item(&r, json_object_array_get_idx(call->input_items, i), i);
    json_object_put(r.known);
    return ok;
}
