/* An answer as a turn that a later prompt may repeat. */
#include "serve/own_turns.h"

#include "fmt/json_build.h"
#include "serve/call.h"
#include <json-c/json_object.h>
#include <string.h>

/* Reasoning, then text, then calls, each at most once but for the calls: the order in which the template writes them.
 */
static bool has_order(const struct call *call)
{
    enum answer_part last = ANSWER_REASONING;
    for (size_t i = 0; i < call->n_items; i++) {
        enum answer_part part = call->items[i].part;
        if (part < last || (i > 0 && part == last && part != ANSWER_CALL)) return false;
        last = part;
    }
    return call->n_items > 0 && last == ANSWER_CALL;
}

/* The ids behind </think>, whose end is the end of a call; nothing in them but the markers of calls. */
static bool split_ids(const struct call *call, const struct service_result *result, struct own_turn *turn)
{
    const struct chat_ids *chat = &call->model->text->chat;
    uint32_t at = 0;
    while (call->starts_in_think && at < result->n_ids && result->ids[at] != chat->id[CHAT_THINK_END]) at++;
    turn->thought = result->ids;
    turn->n_thought = at;
    at += call->starts_in_think;
    if (at >= result->n_ids || result->ids[result->n_ids - 1] != chat->id[CHAT_CALL_END]) return false;
    turn->rest = result->ids + at;
    turn->n_rest = result->n_ids - at;
    for (size_t i = 0; i < turn->n_rest; i++)
        if (turn->rest[i] == chat->id[CHAT_THINK] || turn->rest[i] == chat->id[CHAT_THINK_END]) return false;
    return (turn->n_thought > 0) == (turn->reasoning_bytes > 0);
}

/* As it comes back in a message: under the id that the client was told, with the name that the prompt has. */
static struct json_object *call_object(const struct call *call, const struct item *item)
{
    struct json_object *object = json_object_new_object(), *function = json_object_new_object();
    const char *id = call->protocol->call_prefix[0] ? item->id : item->call_id;
    bool ok = object && function && json_build_words(object, "id", id) &&
              json_build_text(function, "name", item->tool->name, item->tool->name_bytes) &&
              json_build_text(function, "arguments", item->text.data, item->text.bytes) &&
              json_build_share(object, "function", function);
    json_object_put(function);
    if (ok) return object;
    json_object_put(object);
    return NULL;
}

static struct json_object *calls_of(const struct call *call)
{
    struct json_object *calls = json_object_new_array();
    for (size_t i = 0; calls && i < call->n_items; i++) {
        if (call->items[i].part != ANSWER_CALL) continue;
        if (json_build_element(calls, call_object(call, &call->items[i]))) continue;
        json_object_put(calls);
        return NULL;
    }
    return calls;
}

void own_turns_keep_answer(struct own_turns *turns, const struct call *call, const struct service_result *result)
{
    struct own_turn turn = {.reasoning = "", .content = ""};
    if (!call->is_chat || call->chat.no_generation_prompt || !has_order(call)) return;
    for (size_t i = 0; i < call->n_items; i++) {
        const struct item *item = &call->items[i];
        if (item->text.bytes == 0) continue;
        if (item->part == ANSWER_REASONING)
            turn.reasoning = item->text.data, turn.reasoning_bytes = item->text.bytes;
        else if (item->part == ANSWER_CONTENT)
            turn.content = item->text.data, turn.content_bytes = item->text.bytes;
    }
    if (!split_ids(call, result, &turn)) return;
    turn.calls = calls_of(call);
    if (turn.calls) own_turns_keep(turns, &turn);
    json_object_put(turn.calls);
}
