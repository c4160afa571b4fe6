#include "run/text_model.h"

#include "run/sampling_json.h"
#include <inttypes.h>
#include <string.h>

enum { PATH_BYTES_MAX = 1 << 16 };

static bool open_tokenizer(struct text_model *model, struct file_system fs, const char *dir, struct err *err)
{
    struct buf path;
    buf_init(&path, model->alloc, PATH_BYTES_MAX);
    bool ok = buf_printf(&path, err, "%s/tokenizer.json", dir);
    if (ok) model->tokenizer = tokenizer_new(model->alloc, fs, path.data, err);
    if (model->tokenizer) {
        model->n_tokens = tokenizer_id_end(model->tokenizer);
        if (model->n_tokens > model->n_logits)
            ok = err_set(err, ERR_DATA,
                         "%s: it has ids up to %" PRIu32 ", but the model has %" PRIu32
                         " rows; the two files are not of the same model",
                         path.data, model->n_tokens - 1, model->n_logits);
        else if (!chat_ids_find(&model->chat, model->tokenizer, err))
            ok = err_context(err, "%s", path.data);
    }
    buf_fini(&path);
    return ok && model->tokenizer;
}

static bool find_dead(struct text_model *model, struct err *err)
{
    uint32_t n = tokenizer_dead_ids(model->tokenizer, model->n_tokens, NULL, 0);
    model->dead = alloc_get_array(model->alloc, n, sizeof *model->dead, err);
    if (!model->dead) return false;
    model->n_dead = tokenizer_dead_ids(model->tokenizer, model->n_tokens, model->dead, n);
    return true;
}

static void find_ends(struct text_model *model, const struct config *config)
{
    static const enum chat_control roles[] = {CHAT_SYSTEM, CHAT_ASSISTANT};
    memcpy(model->ends, config->eos, config->n_eos * sizeof *config->eos);
    model->n_ends_model = model->n_ends_chat = config->n_eos;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        model->ends[model->n_ends_chat++] = model->chat.id[roles[i]];
}

bool text_model_open(struct text_model *model, struct alloc *alloc, struct file_system fs, const char *dir,
                     const struct config *config, struct err *err)
{
    const struct sampling built_in = sampling_built_in();
    *model = (struct text_model){.alloc = alloc, .n_logits = config->vocab};
    if (!open_tokenizer(model, fs, dir, err)) goto fail;
    if (!find_dead(model, err)) goto fail;
    if (!sampling_json_defaults(&model->defaults, alloc, fs, dir, err)) goto fail;
    sampling_fill(&model->defaults, &built_in);
    find_ends(model, config);
    return true;
fail:
    text_model_close(model);
    return false;
}

void text_model_close(struct text_model *model)
{
    tokenizer_free(model->tokenizer);
    if (model->alloc) alloc_put(model->alloc, model->dead);
    *model = (struct text_model){0};
}

bool text_model_encode_raw(const struct text_model *model, struct encoder *encoder, const char *text, size_t bytes,
                           struct token_list *out, struct err *err)
{
    const uint32_t *prefix;
    size_t n_prefix = tokenizer_raw_prefix(model->tokenizer, &prefix), start = out->n;
    if (!encoder_encode(encoder, text, bytes, ENCODE_ALL, out, err)) return false;
    size_t n = out->n - start;
    if (n >= n_prefix && memcmp(out->ids + start, prefix, n_prefix * sizeof *prefix) == 0) return true;
    if (!token_list_add(out, prefix, n_prefix, err)) return false;
    memmove(out->ids + start + n_prefix, out->ids + start, n * sizeof *out->ids);
    memcpy(out->ids + start, prefix, n_prefix * sizeof *prefix);
    return true;
}

bool text_model_encode_chat(const struct text_model *model, struct encoder *encoder, const struct chat_request *request,
                            struct token_list *out, bool *starts_in_think, struct err *err)
{
    struct chat_prompt prompt = {0};
    bool ok = chat_prompt_render(&prompt, model->alloc, request, err) &&
              chat_ids_encode(&model->chat, &prompt, encoder, ENCODE_NONE, out, err);
    *starts_in_think = ok && chat_prompt_ends_in_think(&prompt);
    chat_prompt_fini(&prompt);
    return ok;
}
