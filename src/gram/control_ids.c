#include "gram/control_ids.h"

#include "base/assert.h"

struct control_ids control_ids_of(const struct chat_ids *chat, const uint32_t *eos, uint32_t n_eos)
{
    ASSERT(n_eos <= CONTROL_EOS_MAX);
    struct control_ids ids = {
        .n_eos = n_eos,
        .think_end = chat->id[CHAT_THINK_END],
        .tool_call = chat->id[CHAT_CALL],
        .tool_call_end = chat->id[CHAT_CALL_END],
        .arg_key = chat->id[CHAT_KEY],
        .arg_key_end = chat->id[CHAT_KEY_END],
        .arg_value = chat->id[CHAT_VALUE],
        .arg_value_end = chat->id[CHAT_VALUE_END],
    };
    for (uint32_t i = 0; i < n_eos; i++) ids.eos[i] = eos[i];
    return ids;
}

bool control_ids_ends(const struct control_ids *ids, uint32_t id)
{
    for (uint32_t i = 0; i < ids->n_eos; i++)
        if (ids->eos[i] == id) return true;
    return false;
}
