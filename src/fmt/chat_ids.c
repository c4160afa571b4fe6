#include "fmt/chat_ids.h"

bool chat_ids_find(struct chat_ids *ids, const struct tokenizer *tokenizer, struct err *err)
{
    for (int i = 0; i < CHAT_CONTROL_COUNT; i++) {
        const char *text = chat_control_text((enum chat_control)i);
        if (tokenizer_id(tokenizer, text, &ids->id[i])) continue;
        if (i != CHAT_BOX && i != CHAT_BOX_END)
            return err_set(err, ERR_DATA, "the tokenizer has no added token %s, which the chat template needs", text);
        ids->id[i] = UINT32_MAX;
    }
    return true;
}

enum chat_control chat_ids_control(const struct chat_ids *ids, uint32_t id)
{
    for (int i = 0; i < CHAT_CONTROL_COUNT; i++)
        if (ids->id[i] == id && id != UINT32_MAX) return (enum chat_control)i;
    return CHAT_TEXT;
}

bool chat_ids_encode(const struct chat_ids *ids, const struct chat_prompt *prompt, struct encoder *encoder,
                     enum encode_mode mode, struct token_list *out, struct err *err)
{
    const char *text = prompt->text.data;
    if (mode == ENCODE_ALL) return encoder_encode(encoder, text, prompt->text.bytes, mode, out, err);
    size_t before = out->n;
    for (size_t i = 0; i < prompt->n_runs; i++) {
        const struct chat_run *run = &prompt->runs[i];
        bool ok = run->ids                    ? token_list_add(out, run->ids, run->n_ids, err)
                  : run->control == CHAT_TEXT ? encoder_encode(encoder, text + run->start, run->bytes, mode, out, err)
                                              : token_list_add(out, &ids->id[run->control], 1, err);
        if (ok) continue;
        out->n = before;
        return false;
    }
    return true;
}
