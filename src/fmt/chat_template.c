#include "fmt/chat_template.h"

#include "base/utf8.h"
#include "fmt/chat_tools.h"
#include "fmt/json_build.h"
#include "fmt/json_doc.h"
#include "fmt/json_text.h"
#include <json-c/linkhash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tools_intro[] =
    "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n";
static const char tools_format[] = "</tools>\n\nFor each function call, output the function name and arguments within "
                                   "the following XML format:\n";

/* A stretch of text that somebody else owns. */
struct span {
    const char *text;
    size_t bytes;
};

struct renderer {
    struct chat_prompt *prompt;
    struct alloc *alloc;
    const struct chat_options *options;
    struct json_object *messages;
    size_t n_messages;
    uint32_t *order;   /* [n_messages] tool results stand where the calls they answer stand */
    size_t after_user; /* index of the first message after the last user message */
    struct chat_tools tools;
    const struct chat_own_turn *own; /* [n_own] */
    size_t n_own;
    struct buf joined; /* the content of one message whose parts were joined */
    struct err *err;
};

/* What was appended to the prompt's text since `start` is one more run, or part of the text run before it. */
static bool close_run(struct renderer *r, enum chat_control control, size_t start)
{
    struct chat_prompt *p = r->prompt;
    size_t bytes = p->text.bytes - start;
    if (bytes == 0) return true;
    struct chat_run *last = p->n_runs ? &p->runs[p->n_runs - 1] : NULL;
    if (control == CHAT_TEXT && last && last->control == CHAT_TEXT && !last->ids) {
        last->bytes += bytes;
        return true;
    }
    if (p->n_runs == p->runs_room) {
        size_t room = p->runs_room ? 2 * p->runs_room : 64;
        struct chat_run *runs = alloc_resize(r->alloc, p->runs, room * sizeof *runs, r->err);
        if (!runs) return false;
        p->runs = runs;
        p->runs_room = room;
    }
    p->runs[p->n_runs++] = (struct chat_run){.control = control, .start = start, .bytes = bytes};
    return true;
}

static bool put_control(struct renderer *r, enum chat_control control)
{
    size_t start = r->prompt->text.bytes;
    return buf_add_text(&r->prompt->text, chat_control_text(control), r->err) && close_run(r, control, start);
}

static bool put_controls(struct renderer *r, const enum chat_control *controls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!put_control(r, controls[i])) return false;
    return true;
}
#define PUT_CONTROLS(r, ...)                                  \
    put_controls(r, (const enum chat_control[]){__VA_ARGS__}, \
                 sizeof((const enum chat_control[]){__VA_ARGS__}) / sizeof(enum chat_control))

static bool put_text(struct renderer *r, const char *text, size_t bytes)
{
    size_t start = r->prompt->text.bytes;
    return buf_add(&r->prompt->text, text, bytes, r->err) && close_run(r, CHAT_TEXT, start);
}

static bool put_words(struct renderer *r, const char *words)
{
    return put_text(r, words, strlen(words));
}

/* A string raw, any other value as JSON. */
static bool put_value(struct renderer *r, struct json_object *value)
{
    if (json_object_is_type(value, json_type_string))
        return put_text(r, json_object_get_string(value), (size_t)json_object_get_string_len(value));
    size_t start = r->prompt->text.bytes;
    return json_text_add(&r->prompt->text, value, JSON_PYTHON, r->err) && close_run(r, CHAT_TEXT, start);
}

static bool put_tool(struct renderer *r, const struct chat_tool *tool)
{
    return put_value(r, tool->function) && put_words(r, "\n");
}

static bool put_tools_block(struct renderer *r)
{
    if (!r->tools.n_tools) return true;
    if (!put_control(r, CHAT_SYSTEM) || !put_words(r, tools_intro)) return false;
    for (size_t i = 0; i < r->tools.n_tools; i++)
        if (!r->tools.tools[i].is_deferred && !put_tool(r, &r->tools.tools[i])) return false;
    if (!put_words(r, tools_format) || !put_control(r, CHAT_CALL) || !put_words(r, "{function-name}")) return false;
    static const char *const pairs[][2] = {{"{arg-key-1}", "{arg-value-1}"}, {"{arg-key-2}", "{arg-value-2}"}};
    for (size_t i = 0; i < 2; i++)
        if (!put_control(r, CHAT_KEY) || !put_words(r, pairs[i][0]) || !PUT_CONTROLS(r, CHAT_KEY_END, CHAT_VALUE) ||
            !put_words(r, pairs[i][1]) || !put_control(r, CHAT_VALUE_END))
            return false;
    return put_words(r, "...") && put_control(r, CHAT_CALL_END);
}

static bool is_text(struct json_object *value, const char *text)
{
    size_t bytes = strlen(text);
    return json_object_is_type(value, json_type_string) && (size_t)json_object_get_string_len(value) == bytes &&
           memcmp(json_object_get_string(value), text, bytes) == 0;
}

static struct span span_of(struct json_object *string)
{
    return (struct span){json_object_get_string(string), (size_t)json_object_get_string_len(string)};
}

/* The text of one part of a content list. */
static bool part_text(struct renderer *r, struct json_object *part, struct span *text, const char *where)
{
    static const char *const kinds[][2] = {
        {"text", "text"}, {"input_text", "text"}, {"output_text", "text"}, {"refusal", "refusal"}};
    if (json_object_is_type(part, json_type_string)) {
        *text = span_of(part);
        return true;
    }
    struct json_object *type = json_object_object_get(part, "type");
    if (!json_object_is_type(type, json_type_string))
        return err_set(r->err, ERR_USER, "%s: a part must be a string or an object with a type", where);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!is_text(type, kinds[i][0])) continue;
        struct json_object *member = json_object_object_get(part, kinds[i][1]);
        if (!json_object_is_type(member, json_type_string))
            return err_set(r->err, ERR_USER, "%s: %s must be a string", where, kinds[i][1]);
        *text = span_of(member);
        return true;
    }
    return err_set(r->err, ERR_USER, "%s: a part of type '%.100s' cannot be used here: this model reads text only",
                   where, json_object_get_string(type));
}

/* The text of a content: a string, null, or parts joined without anything between them. Borrowed until the next call.
 */
static bool content_text(struct renderer *r, struct json_object *content, struct span *text, const char *where)
{
    *text = (struct span){"", 0};
    if (!content) return true;
    if (json_object_is_type(content, json_type_string)) {
        *text = span_of(content);
        return true;
    }
    if (!json_object_is_type(content, json_type_array))
        return err_set(r->err, ERR_USER, "%s: must be a string, null or a list of parts", where);
    buf_clear(&r->joined);
    size_t n = json_object_array_length(content);
    for (size_t i = 0; i < n; i++) {
        char place[96];
        struct span part = {0};
        snprintf(place, sizeof place, "%s[%zu]", where, i);
        if (!part_text(r, json_object_array_get_idx(content, i), &part, place)) return false;
        if (!buf_add(&r->joined, part.text, part.bytes, r->err)) return false;
    }
    if (r->joined.bytes) *text = (struct span){r->joined.data, r->joined.bytes};
    return true;
}

static const char *find_last(struct span in, const char *mark)
{
    size_t n = strlen(mark);
    const char *last = NULL, *from = in.text, *end = in.text + in.bytes;
    for (const char *at; (at = memmem(from, (size_t)(end - from), mark, n)); from = at + n) last = at;
    return last;
}

/* Content that still holds its reasoning: what is before the first </think>, from after the last <think> in it, is the
 * reasoning; what follows the last </think> is the content. */
static void split_inline(struct span *content, struct span *reasoning)
{
    static const char open[] = "<think>", close[] = "</think>";
    const char *first = memmem(content->text, content->bytes, close, sizeof close - 1);
    if (!first) return;
    const char *after = find_last(*content, close) + sizeof close - 1;
    *reasoning = (struct span){content->text, (size_t)(first - content->text)};
    const char *opened = find_last(*reasoning, open);
    if (opened) {
        opened += sizeof open - 1;
        *reasoning = (struct span){opened, (size_t)(first - opened)};
    }
    *content = (struct span){after, content->bytes - (size_t)(after - content->text)};
}

/* A new reference to the arguments object of a call, or NULL in *arguments for a call without any. */
static bool call_arguments(struct renderer *r, struct json_object *given, struct json_object **arguments,
                           const char *where)
{
    *arguments = NULL;
    if (json_object_is_type(given, json_type_string)) {
        struct span text = span_of(given);
        text.text = utf8_strip(text.text, &text.bytes);
        if (!text.bytes) return true;
        if (!json_doc_parse(arguments, r->alloc, &json_rules_request, where, text.text, text.bytes, r->err))
            return false;
    } else {
        *arguments = json_object_get(given);
    }
    if (json_object_is_type(*arguments, json_type_object)) return true;
    bool is_absent = !given;
    json_object_put(*arguments);
    *arguments = NULL;
    return is_absent || err_set(r->err, ERR_USER, "%s: must be a JSON object, or its text", where);
}

static bool put_call(struct renderer *r, struct json_object *call, const char *where)
{
    struct json_object *function = call, *name, *arguments = NULL;
    char place[96];
    if (json_object_object_get(call, "function")) function = json_object_object_get(call, "function");
    name = json_object_object_get(function, "name");
    if (!json_object_is_type(name, json_type_string) || json_object_get_string_len(name) == 0)
        return err_set(r->err, ERR_USER, "%s: a call needs the name of its function", where);
    snprintf(place, sizeof place, "%s.function.arguments", where);
    if (!call_arguments(r, json_object_object_get(function, "arguments"), &arguments, place)) return false;
    if (!put_control(r, CHAT_CALL) || !put_value(r, name)) goto fail;
    for (const struct lh_entry *e = arguments ? json_object_get_object(arguments)->head : NULL; e; e = e->next)
        if (!put_control(r, CHAT_KEY) || !put_words(r, lh_entry_k(e)) || !PUT_CONTROLS(r, CHAT_KEY_END, CHAT_VALUE) ||
            !put_value(r, lh_entry_v(e)) || !put_control(r, CHAT_VALUE_END))
            goto fail;
    json_object_put(arguments);
    return put_control(r, CHAT_CALL_END);
fail:
    json_object_put(arguments);
    return false;
}

static bool put_calls(struct renderer *r, size_t index, struct json_object *calls)
{
    if (!calls) return true;
    if (!json_object_is_type(calls, json_type_array))
        return err_set(r->err, ERR_USER, "messages[%zu].tool_calls: must be an array", index);
    size_t n = json_object_array_length(calls);
    for (size_t i = 0; i < n; i++) {
        char where[64];
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", index, i);
        if (!put_call(r, json_object_array_get_idx(calls, i), where)) return false;
    }
    return true;
}

static const struct chat_own_turn *own_turn(const struct renderer *r, size_t index)
{
    for (size_t i = 0; i < r->n_own; i++)
        if (r->own[i].message == index) return &r->own[i];
    return NULL;
}

/* The runs from `first` on, which follow a control token, are one whose ids are known. */
static void know_ids(struct renderer *r, size_t first, const uint32_t *ids, size_t n)
{
    struct chat_prompt *p = r->prompt;
    if (p->n_runs == first || n == 0) return;
    struct chat_run *run = &p->runs[first];
    *run = (struct chat_run){
        .start = run->start, .bytes = p->text.bytes - run->start, .control = CHAT_TEXT, .ids = ids, .n_ids = n};
    p->n_runs = first + 1;
}

static bool put_assistant(struct renderer *r, size_t index, struct json_object *message, struct span content)
{
    struct span reasoning = {"", 0};
    struct json_object *given = json_object_object_get(message, "reasoning_content");
    if (json_object_is_type(given, json_type_string))
        reasoning = span_of(given);
    else if (given)
        return err_set(r->err, ERR_USER, "messages[%zu].reasoning_content: must be a string", index);
    else
        split_inline(&content, &reasoning);

    if (!PUT_CONTROLS(r, CHAT_ASSISTANT, CHAT_THINK)) return false;
    bool is_shown = index >= r->after_user || r->options->keep_reasoning;
    const struct chat_own_turn *own = own_turn(r, index);
    size_t first = r->prompt->n_runs;
    if (is_shown && !put_text(r, reasoning.text, reasoning.bytes)) return false;
    if (own && own->reasoning_bytes == reasoning.bytes && memcmp(own->reasoning, reasoning.text, reasoning.bytes) == 0)
        know_ids(r, first, own->thought, own->n_thought);
    if (!put_control(r, CHAT_THINK_END)) return false;
    first = r->prompt->n_runs;
    content.text = utf8_strip(content.text, &content.bytes);
    if (!put_text(r, content.text, content.bytes) ||
        !put_calls(r, index, json_object_object_get(message, "tool_calls")))
        return false;
    if (own) know_ids(r, first, own->rest, own->n_rest);
    return true;
}

/* The tools that a search found: they were declared as deferred and are shown here. */
static bool put_references(struct renderer *r, struct json_object *list, const char *where)
{
    size_t n = json_object_array_length(list);
    if (!put_control(r, CHAT_RESPONSE) || !put_words(r, "<tools>\n")) return false;
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(list, i), *name = json_object_object_get(item, "name");
        if (!name) name = json_object_object_get(item, "tool_name");
        if (!is_text(json_object_object_get(item, "type"), "tool_reference") ||
            !json_object_is_type(name, json_type_string))
            return err_set(r->err, ERR_USER, "%s[%zu]: must be a tool_reference with a name, as the first part is",
                           where, i);
        struct span text = span_of(name);
        const struct chat_tool *tool = chat_tools_find(&r->tools, text.text, text.bytes);
        if (!tool)
            return err_set(r->err, ERR_USER, "%s[%zu]: refers to the tool '%.100s', which is not declared", where, i,
                           text.text);
        if (!put_tool(r, tool)) return false;
    }
    return put_words(r, "</tools>") && put_control(r, CHAT_RESPONSE_END);
}

static bool put_response(struct renderer *r, struct json_object *content, const char *where)
{
    struct span text;
    return content_text(r, content, &text, where) && put_control(r, CHAT_RESPONSE) &&
           put_text(r, text.text, text.bytes) && put_control(r, CHAT_RESPONSE_END);
}

static bool put_outputs(struct renderer *r, struct json_object *list, const char *where)
{
    size_t n = json_object_array_length(list);
    for (size_t i = 0; i < n; i++) {
        char place[96];
        struct json_object *output;
        snprintf(place, sizeof place, "%s[%zu].output", where, i);
        if (!json_object_object_get_ex(json_object_array_get_idx(list, i), "output", &output))
            return err_set(r->err, ERR_USER, "%s: missing, but the first part has one", place);
        if (!put_response(r, output, place)) return false;
    }
    return true;
}

static bool put_tool_result(struct renderer *r, size_t index, struct json_object *content)
{
    char where[64];
    snprintf(where, sizeof where, "messages[%zu].content", index);
    struct json_object *first = NULL;
    if (json_object_is_type(content, json_type_array)) first = json_object_array_get_idx(content, 0);
    if (json_object_object_get_ex(first, "output", NULL)) return put_outputs(r, content, where);
    if (is_text(json_object_object_get(first, "type"), "tool_reference")) return put_references(r, content, where);
    return put_response(r, content, where);
}

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_UNKNOWN };

static enum role role_of(struct json_object *message)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    struct json_object *role = json_object_object_get(message, "role");
    for (int i = 0; i < ROLE_UNKNOWN; i++)
        if (is_text(role, names[i])) return (enum role)i;
    return is_text(role, "developer") ? ROLE_SYSTEM : ROLE_UNKNOWN;
}

static bool put_message(struct renderer *r, size_t index, bool is_first_result)
{
    struct json_object *message = json_object_array_get_idx(r->messages, index);
    struct json_object *content = json_object_object_get(message, "content");
    enum role role = role_of(message);
    if (role == ROLE_TOOL)
        return (!is_first_result || put_control(r, CHAT_OBSERVATION)) && put_tool_result(r, index, content);
    struct span text;
    char where[64];
    snprintf(where, sizeof where, "messages[%zu].content", index);
    if (!content_text(r, content, &text, where)) return false;
    if (role == ROLE_ASSISTANT) return put_assistant(r, index, message, text);
    return put_control(r, role == ROLE_USER ? CHAT_USER : CHAT_SYSTEM) && put_text(r, text.text, text.bytes);
}

/* Refuses what the template would leave out without a word, and finds the last user message. */
static bool check_messages(struct renderer *r)
{
    if (!json_object_is_type(r->messages, json_type_array))
        return err_set(r->err, ERR_USER, "messages: must be an array");
    r->n_messages = json_object_array_length(r->messages);
    for (size_t i = 0; i < r->n_messages; i++) {
        struct json_object *message = json_object_array_get_idx(r->messages, i);
        struct json_object *role = json_object_object_get(message, "role");
        if (!json_object_is_type(role, json_type_string))
            return err_set(r->err, ERR_USER, "messages[%zu]: must be an object with a role", i);
        if (role_of(message) == ROLE_UNKNOWN)
            return err_set(r->err, ERR_USER,
                           "messages[%zu].role: '%.100s' is none of system, developer, user, assistant, tool", i,
                           json_object_get_string(role));
        if (role_of(message) == ROLE_USER) r->after_user = i + 1;
    }
    return true;
}

struct ranked {
    uint32_t rank, index; /* place of the call among its siblings; message that answers it */
};

static int compare_ranks(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The place of each id among the calls of a message, as an object from id to index. */
static struct json_object *call_places(struct json_object *calls, struct err *err)
{
    struct json_object *places = json_object_new_object();
    size_t n = json_object_is_type(calls, json_type_array) ? json_object_array_length(calls) : 0;
    for (size_t i = 0; places && i < n; i++) {
        struct json_object *id = json_object_object_get(json_object_array_get_idx(calls, i), "id");
        if (!json_object_is_type(id, json_type_string)) continue;
        if (json_build_member(places, json_object_get_string(id), json_object_new_int64((int64_t)i))) continue;
        json_object_put(places);
        places = NULL;
    }
    if (!places) err_set(err, ERR_NOMEM, "no memory to order tool results");
    return places;
}

/* The template knows results by their place only. Those with an id are put, among the places that they have, into the
 * order of the calls that they answer; those without stay where they are. */
static bool order_results(struct renderer *r, struct ranked *ranked, size_t from, size_t to)
{
    struct json_object *caller = json_object_array_get_idx(r->messages, from - 1);
    struct json_object *places = call_places(json_object_object_get(caller, "tool_calls"), r->err), *place;
    if (!places) return false;
    size_t n = 0, next = 0;
    for (size_t i = from; i < to; i++) {
        struct json_object *message = json_object_array_get_idx(r->messages, i);
        struct json_object *id = json_object_object_get(message, "tool_call_id");
        r->order[i] = (uint32_t)i;
        if (json_object_is_type(id, json_type_string) &&
            json_object_object_get_ex(places, json_object_get_string(id), &place)) {
            ranked[n++] = (struct ranked){(uint32_t)json_object_get_int64(place), (uint32_t)i};
            r->order[i] = UINT32_MAX;
        }
    }
    qsort(ranked, n, sizeof *ranked, compare_ranks);
    for (size_t i = from; i < to; i++)
        if (r->order[i] == UINT32_MAX) r->order[i] = ranked[next++].index;
    json_object_put(places);
    return true;
}

static bool order_messages(struct renderer *r)
{
    r->order = alloc_get_array(r->alloc, r->n_messages, sizeof *r->order, r->err);
    struct ranked *ranked = r->order ? alloc_get_array(r->alloc, r->n_messages, sizeof *ranked, r->err) : NULL;
    bool ok = ranked != NULL;
    for (size_t i = 0, end; ok && i < r->n_messages; i = end) {
        for (end = i; end < r->n_messages; end++)
            if (role_of(json_object_array_get_idx(r->messages, end)) != ROLE_TOOL) break;
        if (end > i && i > 0) {
            ok = order_results(r, ranked, i, end);
            continue;
        }
        if (end == i) end++;
        for (size_t k = i; k < end; k++) r->order[k] = (uint32_t)k;
    }
    alloc_put(r->alloc, ranked);
    return ok;
}

static bool render(struct renderer *r)
{
    if (!check_messages(r) || !order_messages(r)) return false;
    if (!PUT_CONTROLS(r, CHAT_GMASK, CHAT_SOP)) return false;
    const char *effort = r->options->effort == CHAT_EFFORT_HIGH ? "Reasoning Effort: High" : "Reasoning Effort: Max";
    if (r->options->thinking && !(put_control(r, CHAT_SYSTEM) && put_words(r, effort))) return false;
    if (!put_tools_block(r)) return false;
    bool was_result = false;
    for (size_t i = 0; i < r->n_messages; i++) {
        if (!put_message(r, r->order[i], !was_result)) return false;
        was_result = role_of(json_object_array_get_idx(r->messages, i)) == ROLE_TOOL;
    }
    if (r->options->no_generation_prompt) return true;
    return PUT_CONTROLS(r, CHAT_ASSISTANT, CHAT_THINK) && (r->options->thinking || put_control(r, CHAT_THINK_END));
}

bool chat_prompt_render(struct chat_prompt *prompt, struct alloc *alloc, const struct chat_request *request,
                        struct err *err)
{
    struct renderer r = {.prompt = prompt,
                         .alloc = alloc,
                         .options = &request->options,
                         .messages = request->messages,
                         .own = request->own,
                         .n_own = request->n_own,
                         .err = err};
    *prompt = (struct chat_prompt){.alloc = alloc};
    buf_init(&prompt->text, alloc, CHAT_PROMPT_BYTES_MAX);
    buf_init(&r.joined, alloc, CHAT_PROMPT_BYTES_MAX);
    bool ok = chat_tools_init(&r.tools, alloc, request->tools, err) && render(&r);
    chat_tools_fini(&r.tools);
    buf_fini(&r.joined);
    alloc_put(alloc, r.order);
    if (!ok && err && err->kind == ERR_BUSY) {
        err->kind = ERR_USER; /* waiting would not make it shorter */
        err_context(err, "the prompt is too long");
    }
    return ok;
}

void chat_prompt_fini(struct chat_prompt *prompt)
{
    buf_fini(&prompt->text);
    if (prompt->runs) alloc_put(prompt->alloc, prompt->runs);
    prompt->runs = NULL;
    prompt->n_runs = prompt->runs_room = 0;
}

bool chat_prompt_ends_in_think(const struct chat_prompt *prompt)
{
    return prompt->n_runs && prompt->runs[prompt->n_runs - 1].control == CHAT_THINK;
}

bool chat_messages_add(struct json_object *messages, const struct chat_words *words, struct err *err)
{
    size_t bad;
    if (!utf8_check(words->text, words->text_bytes, &bad))
        return err_set(err, ERR_USER, "the text of the message is not valid UTF-8 at byte %zu", bad);
    struct json_object *message = json_object_new_object();
    if (!message || !json_build_words(message, "role", words->role) ||
        !json_build_text(message, "content", words->text, words->text_bytes))
        goto fail;
    if (words->reasoning && !json_build_text(message, "reasoning_content", words->reasoning, words->reasoning_bytes))
        goto fail;
    if (json_object_array_add(messages, message) == 0) return true;
fail:
    json_object_put(message);
    return err_set(err, ERR_NOMEM, "no memory for a message");
}
