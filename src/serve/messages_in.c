#include "serve/messages_in.h"

#include "fmt/json_build.h"
#include "serve/fields.h"
#include <json-c/json_object.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 64 << 20, WHERE_BYTES = 96 };

/* The member of a message that says what in the request it was made of. */
#define WHERE "where"

struct reading {
    struct call *call;
    struct json_object *out; /* call->messages */
    struct problem *problem;
};

static bool no_memory(struct reading *r)
{
    return problem_set(r->problem, PROBLEM_INTERNAL, NULL, "no memory for the messages");
}

static bool wrong(struct reading *r, enum problem_kind kind, const char *where, const char *what)
{
    return problem_set(r->problem, kind, where, "%s: %s", where, what);
}

/* --- making messages --- */

/* A new message at the end of the list, still without content; NULL: no memory. The template does not look at WHERE. */
static struct json_object *add_message(struct reading *r, const char *role, const char *where)
{
    struct json_object *message = json_object_new_object();
    if (message && json_build_words(message, "role", role) && json_build_words(message, WHERE, where) &&
        json_object_array_add(r->out, message) == 0)
        return message;
    json_object_put(message);
    return NULL;
}

static bool add_words(struct reading *r, const char *role, const char *where, const struct buf *text)
{
    struct json_object *message = add_message(r, role, where);
    return (message && json_build_text(message, "content", text->data, text->bytes)) || no_memory(r);
}

/* --- blocks --- */

static bool is_media(const char *type)
{
    return strcmp(type, "image") == 0 || strcmp(type, "document") == 0 || strcmp(type, "audio") == 0 ||
           strcmp(type, "video") == 0 || strcmp(type, "file") == 0;
}

static bool bad_block(struct reading *r, const char *where, const char *type)
{
    if (is_media(type)) return wrong(r, PROBLEM_CONTENT, where, "this model reads text only");
    return problem_set(r->problem, PROBLEM_INVALID_VALUE, where, "%s: a block of type '%.50s' cannot be used here",
                       where, type);
}

static bool block_text(struct reading *r, struct json_object *block, const char *where, struct buf *out)
{
    struct err err = {0};
    struct json_object *text = json_object_object_get(block, "text");
    if (!json_object_is_type(text, json_type_string))
        return wrong(r, PROBLEM_INVALID_TYPE, where, "text must be a string");
    return buf_add(out, json_object_get_string(text), (size_t)json_object_get_string_len(text), &err) ||
           problem_from(r->problem, PROBLEM_INVALID_VALUE, &err);
}

/* What a search found, as text: its title, where it is, and its texts. */
static bool search_text(struct reading *r, struct json_object *block, const char *where, struct buf *out)
{
    struct err err = {0};
    struct json_object *content = NULL;
    if (!field_list(block, "content", &content, r->problem)) return problem_inside(r->problem, where);
    if (!buf_printf(out, &err, "%s\n%s\n", field_word(block, "title"), field_word(block, "source")))
        return problem_from(r->problem, PROBLEM_INVALID_VALUE, &err);
    size_t n = content ? json_object_array_length(content) : 0;
    for (size_t i = 0; i < n; i++)
        if (!block_text(r, json_object_array_get_idx(content, i), where, out)) return false;
    return true;
}

/* A billing line that changes with every request would make every prompt a new one. */
static bool is_volatile(struct json_object *block)
{
    return strncmp(field_word(block, "text"), "x-anthropic-", 12) == 0;
}

static bool add_system(struct reading *r, struct json_object *system, const char *where)
{
    struct err err = {0};
    struct buf text;
    bool ok = true;
    if (!system) return true;
    bool is_list = json_object_is_type(system, json_type_array);
    if (!is_list && !json_object_is_type(system, json_type_string))
        return wrong(r, PROBLEM_INVALID_TYPE, where, "must be a string or a list of text blocks");
    buf_init(&text, r->call->server->alloc, TEXT_BYTES_MAX);
    if (!is_list)
        ok = buf_add(&text, json_object_get_string(system), (size_t)json_object_get_string_len(system), &err) ||
             problem_from(r->problem, PROBLEM_INVALID_VALUE, &err);
    size_t n = is_list ? json_object_array_length(system) : 0;
    bool is_first = true;
    for (size_t i = 0; i < n && ok; i++) {
        char place[WHERE_BYTES];
        struct json_object *block = json_object_array_get_idx(system, i);
        snprintf(place, sizeof place, "%.60s[%zu]", where, i);
        if (!field_is(block, "type", "text")) ok = bad_block(r, place, field_word(block, "type"));
        if (!ok || is_volatile(block)) continue;
        if (!is_first && !buf_add_char(&text, '\n', &err)) ok = no_memory(r);
        is_first = false;
        ok = ok && block_text(r, block, place, &text);
    }
    if (ok && text.bytes > 0) ok = add_words(r, "system", where, &text);
    buf_fini(&text);
    return ok;
}

/* --- tool results --- */

/* References to tools that a search found: kept as they are, for the template. */
static bool are_references(struct json_object *content)
{
    return json_object_is_type(content, json_type_array) && json_object_array_length(content) > 0 &&
           field_is(json_object_array_get_idx(content, 0), "type", "tool_reference");
}

static bool result_text(struct reading *r, struct json_object *content, const char *where, struct buf *text)
{
    size_t n = json_object_is_type(content, json_type_array) ? json_object_array_length(content) : 0;
    struct err err = {0};
    if (json_object_is_type(content, json_type_string))
        return buf_add(text, json_object_get_string(content), (size_t)json_object_get_string_len(content), &err) ||
               problem_from(r->problem, PROBLEM_INVALID_VALUE, &err);
    if (content && !json_object_is_type(content, json_type_array))
        return wrong(r, PROBLEM_INVALID_TYPE, where, "content must be a string or a list of blocks");
    for (size_t i = 0; i < n; i++) {
        char place[WHERE_BYTES];
        struct json_object *block = json_object_array_get_idx(content, i);
        snprintf(place, sizeof place, "%.60s.content[%zu]", where, i);
        bool ok = field_is(block, "type", "text")            ? block_text(r, block, place, text)
                  : field_is(block, "type", "search_result") ? search_text(r, block, place, text)
                                                             : bad_block(r, place, field_word(block, "type"));
        if (!ok) return false;
    }
    return true;
}

static bool add_result(struct reading *r, struct json_object *block, const char *where)
{
    struct buf text;
    struct json_object *content = json_object_object_get(block, "content"), *message = add_message(r, "tool", where);
    const char *id = field_word(block, "tool_use_id");
    if (!message || (*id && !json_build_words(message, "tool_call_id", id))) return no_memory(r);
    if (are_references(content)) return json_build_member(message, "content", json_object_get(content)) || no_memory(r);
    buf_init(&text, r->call->server->alloc, TEXT_BYTES_MAX);
    bool ok = result_text(r, content, where, &text);
    if (ok) ok = json_build_text(message, "content", text.data, text.bytes) || no_memory(r);
    buf_fini(&text);
    return ok;
}

/* --- turns --- */

/* First the results of tools, in their order, then one message with the texts. */
static bool add_user(struct reading *r, struct json_object *blocks, const char *where)
{
    struct buf text;
    size_t n = json_object_array_length(blocks), n_texts = 0, n_results = 0;
    bool ok = true;
    buf_init(&text, r->call->server->alloc, TEXT_BYTES_MAX);
    for (size_t i = 0; i < n && ok; i++) {
        char place[WHERE_BYTES];
        struct json_object *block = json_object_array_get_idx(blocks, i);
        const char *type = field_word(block, "type");
        snprintf(place, sizeof place, "%.60s.content[%zu]", where, i);
        if (strcmp(type, "tool_result") == 0) {
            n_results++;
            ok = add_result(r, block, place);
        } else if (strcmp(type, "text") == 0) {
            n_texts++;
            ok = block_text(r, block, place, &text);
        } else if (strcmp(type, "search_result") == 0) {
            n_texts++;
            ok = search_text(r, block, place, &text);
        } else {
            ok = bad_block(r, place, type);
        }
    }
    if (ok && (n_texts > 0 || n_results == 0)) ok = add_words(r, "user", where, &text);
    buf_fini(&text);
    return ok;
}

static bool check_call(struct reading *r, struct json_object *block, const char *where)
{
    struct json_object *input = json_object_object_get(block, "input");
    if (!*field_word(block, "name")) return wrong(r, PROBLEM_MISSING_FIELD, where, "a call needs a name");
    return !input || json_object_is_type(input, json_type_object) ||
           wrong(r, PROBLEM_INVALID_TYPE, where, "input must be an object");
}

static bool add_call(struct reading *r, struct json_object *calls, struct json_object *block)
{
    struct json_object *call = json_object_new_object(), *function = json_object_new_object();
    struct json_object *input = json_object_object_get(block, "input");
    const char *name = field_word(block, "name"), *id = field_word(block, "id");
    bool ok = call && function && json_build_words(function, "name", name) &&
              (!input || json_build_member(function, "arguments", json_object_get(input))) &&
              json_build_words(call, "id", id) && json_build_words(call, "type", "function") &&
              json_build_share(call, "function", function) && json_build_share_element(calls, call);
    json_object_put(function);
    json_object_put(call);
    return ok || no_memory(r);
}

struct turn {
    struct buf text, reasoning;
    struct json_object *calls;
};

static bool add_block(struct reading *r, struct turn *turn, struct json_object *block, const char *where)
{
    struct err err = {0};
    const char *type = field_word(block, "type");
    if (strcmp(type, "text") == 0) return block_text(r, block, where, &turn->text);
    if (strcmp(type, "tool_use") == 0) return check_call(r, block, where) && add_call(r, turn->calls, block);
    if (strcmp(type, "redacted_thinking") == 0) return true;
    if (strcmp(type, "thinking") != 0) return bad_block(r, where, type);
    struct json_object *thinking = json_object_object_get(block, "thinking");
    if (!json_object_is_type(thinking, json_type_string))
        return wrong(r, PROBLEM_INVALID_TYPE, where, "thinking must be a string");
    return buf_add(&turn->reasoning, json_object_get_string(thinking), (size_t)json_object_get_string_len(thinking),
                   &err) ||
           problem_from(r->problem, PROBLEM_INVALID_VALUE, &err);
}

static bool put_turn(struct reading *r, const struct turn *turn, const char *where)
{
    struct json_object *message = add_message(r, "assistant", where);
    bool ok = message && json_build_text(message, "content", turn->text.data, turn->text.bytes);
    if (ok && turn->reasoning.bytes > 0)
        ok = json_build_text(message, "reasoning_content", turn->reasoning.data, turn->reasoning.bytes);
    if (ok && json_object_array_length(turn->calls) > 0) ok = json_build_share(message, "tool_calls", turn->calls);
    return ok || no_memory(r);
}

static bool add_assistant(struct reading *r, struct json_object *blocks, const char *where)
{
    struct alloc *alloc = r->call->server->alloc;
    struct turn turn = {.calls = json_object_new_array()};
    size_t n = json_object_array_length(blocks);
    bool ok = turn.calls || no_memory(r);
    buf_init(&turn.text, alloc, TEXT_BYTES_MAX);
    buf_init(&turn.reasoning, alloc, TEXT_BYTES_MAX);
    for (size_t i = 0; i < n && ok; i++) {
        char place[WHERE_BYTES];
        snprintf(place, sizeof place, "%.60s.content[%zu]", where, i);
        ok = add_block(r, &turn, json_object_array_get_idx(blocks, i), place);
    }
    ok = ok && put_turn(r, &turn, where);
    buf_fini(&turn.text);
    buf_fini(&turn.reasoning);
    json_object_put(turn.calls);
    return ok;
}

static bool add_one(struct reading *r, struct json_object *message, const char *where)
{
    struct json_object *content = json_object_object_get(message, "content");
    const char *role = field_word(message, "role");
    bool is_text = json_object_is_type(content, json_type_string);
    if (!json_object_is_type(message, json_type_object))
        return wrong(r, PROBLEM_INVALID_TYPE, where, "must be an object");
    if (strcmp(role, "system") == 0) return add_system(r, content, where);
    if (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
        return problem_set(r->problem, PROBLEM_INVALID_VALUE, where,
                           "%s: the role '%.30s' is not supported; there are user, assistant and system", where, role);
    if (is_text) {
        struct json_object *copy = add_message(r, role, where);
        return (copy && json_build_member(copy, "content", json_object_get(content))) || no_memory(r);
    }
    if (!json_object_is_type(content, json_type_array))
        return wrong(r, PROBLEM_INVALID_TYPE, where, "content must be a string or a list of blocks");
    return *role == 'u' ? add_user(r, content, where) : add_assistant(r, content, where);
}

bool messages_read(struct call *call, bool *prefills, struct problem *problem)
{
    struct json_object *messages = NULL;
    struct reading r = {.call = call, .problem = problem};
    if (!field_list(call->body, "messages", &messages, problem)) return false;
    size_t n = messages ? json_object_array_length(messages) : 0;
    if (!messages) return problem_set(problem, PROBLEM_MISSING_FIELD, "messages", "messages: missing");
    if (n == 0) return problem_set(problem, PROBLEM_INVALID_VALUE, "messages", "messages: there must be at least one");
    r.out = call->messages = json_object_new_array();
    if (!r.out) return no_memory(&r);
    if (!add_system(&r, json_object_object_get(call->body, "system"), "system")) return false;
    for (size_t i = 0; i < n; i++) {
        char where[48];
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (!add_one(&r, json_object_array_get_idx(messages, i), where)) return false;
    }
    *prefills = field_is(json_object_array_get_idx(messages, n - 1), "role", "assistant");
    return true;
}

/* The template counts the messages that were made, which are others than those of the request. */
bool messages_blame(const struct call *call, struct problem *problem)
{
    const struct problem told = *problem;
    char param[sizeof told.param];
    size_t message;
    int used = 0;
    if (sscanf(told.param, "messages[%zu]%n", &message, &used) != 1 || used == 0) return false;
    const char *where = field_word(json_object_array_get_idx(call->messages, message), WHERE);
    int n = snprintf(param, sizeof param, "%s%s", where, told.param + used);
    if (n >= (int)sizeof param) return false;
    return problem_set(problem, told.kind, param, "%s%s", param, told.text + strlen(told.param));
}
