#ifndef GRAM_CONTROL_IDS_H
#define GRAM_CONTROL_IDS_H
/* The control tokens that constraints speak of, as ids. Values only. */
#include "fmt/chat_ids.h"

enum { CONTROL_EOS_MAX = 8, CONTROL_NO_ID = UINT32_MAX };

struct control_ids {
    uint32_t eos[CONTROL_EOS_MAX]; /* end an answer */
    uint32_t n_eos;
    uint32_t think_end;
    uint32_t tool_call, tool_call_end, arg_key, arg_key_end, arg_value, arg_value_end;
};

/* The ids of a chat model, with the ids that end its answers (at most CONTROL_EOS_MAX). */
struct control_ids control_ids_of(const struct chat_ids *chat, const uint32_t *eos, uint32_t n_eos);

bool control_ids_ends(const struct control_ids *ids, uint32_t id);

#endif
