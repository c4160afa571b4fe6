#include "lib/lib_int.h"

#include "fmt/json_doc.h"
#include <inttypes.h>
#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <string.h>

#define IDS_MAX (UINT32_C(64) << 20)

void weir_prompt_free(struct weir_prompt *prompt)
{
    if (!prompt) return;
    struct weir_model *model = prompt->model;
    chat_tools_fini(&prompt->tools);
    token_list_fini(&prompt->ids);
    weir_free(prompt->text);
    alloc_put(model->alloc, prompt);
    atomic_fetch_sub(&model->n_holders, 1);
}

static struct weir_prompt *new_prompt(struct weir_model *model, struct err *err)
{
    if (!lib_need(model, "model", err)) return NULL;
    struct weir_prompt *p = alloc_get(model->alloc, sizeof *p, err);
    if (!p) return NULL;
    p->model = model;
    token_list_init(&p->ids, model->alloc, IDS_MAX);
    atomic_fetch_add(&model->n_holders, 1);
    return p;
}

/* Hands a prompt over, or gives it back. */
static bool give(struct weir_prompt **out, struct weir_prompt *p, bool ok)
{
    if (!ok) weir_prompt_free(p);
    *out = ok ? p : NULL;
    return ok;
}

/* ---- conversations ---- */

void weir_chat_options_init(struct weir_chat_options *options, size_t size)
{
    const struct weir_chat_options own = {0};
    lib_init(options, size, &own, sizeof own);
}

static bool take_options(struct chat_options *out, enum encode_mode *mode, const struct weir_chat_options *given,
                         struct err *err)
{
    struct weir_chat_options own = {0};
    if (!lib_take(&own, sizeof own, given, "weir_chat_options", err)) return false;
    if ((unsigned)own.thinking > WEIR_THINKING_HIGH)
        return err_set(err, ERR_USER, "thinking: %u is no value of enum weir_thinking", (unsigned)own.thinking);
    if ((unsigned)own.markers > WEIR_MARKERS_ARE_TOKENS)
        return err_set(err, ERR_USER, "markers: %u is no value of enum weir_markers", (unsigned)own.markers);
    *mode = lib_mode(own.markers);
    *out = (struct chat_options){
        .thinking = own.thinking != WEIR_THINKING_OFF,
        .effort = own.thinking == WEIR_THINKING_HIGH ? CHAT_EFFORT_HIGH : CHAT_EFFORT_MAX,
        .keep_reasoning = own.keep_reasoning,
        .no_generation_prompt = own.no_generation_prompt,
    };
    return true;
}

/* The rendered text and its ids. */
static bool render(struct weir_prompt *p, const struct chat_request *request, enum encode_mode mode, struct err *err)
{
    struct chat_prompt rendered = {0};
    const struct chat_ids *controls = lib_controls(p->model, err);
    if (!controls) return false;
    bool ok = chat_prompt_render(&rendered, p->model->alloc, request, err);
    struct encoder *encoder = ok ? lib_borrow_encoder(p->model, err) : NULL;
    if (encoder) {
        ok = chat_ids_encode(controls, &rendered, encoder, mode, &p->ids, err);
        lib_return_encoder(p->model);
    }
    if (ok && encoder) p->text = lib_block(p->model->alloc, rendered.text.data, rendered.text.bytes, err);
    p->text_bytes = rendered.text.bytes;
    p->is_chat = true;
    p->goes_on = request->options.no_generation_prompt;
    p->starts_in_think = chat_prompt_ends_in_think(&rendered);
    chat_prompt_fini(&rendered);
    return ok && p->text;
}

/* A member that has no effect here is most likely a mistake in the one that has. */
static bool check_members(struct json_object *object, struct err *err)
{
    static const char *const known[] = {"messages",        "tools",          "add_generation_prompt",
                                        "enable_thinking", "thinking",       "reasoning_effort",
                                        "reasoning",       "clear_thinking", "chat_template_kwargs"};
    for (const struct lh_entry *e = json_object_get_object(object)->head; e; e = e->next) {
        const char *key = lh_entry_k(e);
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(key, known[i]) != 0) i++;
        if (i == sizeof known / sizeof *known)
            return err_set(
                err, ERR_USER,
                "'%.100s' has no effect on a prompt (known are messages, tools, add_generation_prompt, "
                "enable_thinking, thinking, reasoning_effort, reasoning, clear_thinking, chat_template_kwargs)",
                key);
    }
    return true;
}

/* Fills the request from an array of messages, or from an object that says more. */
static bool read_request(struct chat_request *request, struct json_object *given, struct err *err)
{
    request->messages = given;
    if (json_object_is_type(given, json_type_object)) {
        if (!check_members(given, err)) return false;
        request->messages = json_object_object_get(given, "messages");
        request->tools = json_object_object_get(given, "tools");
    } else if (!json_object_is_type(given, json_type_array)) {
        return err_set(err, ERR_USER, "neither a JSON object nor an array of messages");
    }
    if (!json_object_is_type(request->messages, json_type_array) || json_object_array_length(request->messages) == 0)
        return err_set(err, ERR_USER, "messages: must be an array with at least one message");
    if (request->messages == given) return true;
    if (!chat_options_read(&request->options, given, err)) return false;
    struct json_object *prompts = json_object_object_get(given, "add_generation_prompt");
    if (prompts && !json_object_is_type(prompts, json_type_boolean))
        return err_set(err, ERR_USER, "add_generation_prompt: must be true or false");
    if (prompts) request->options.no_generation_prompt = !json_object_get_boolean(prompts);
    return true;
}

static bool of_chat(struct weir_prompt **prompt, struct weir_model *model, const char *json, size_t bytes,
                    const struct weir_chat_options *options, struct err *err)
{
    struct chat_request request = {0};
    enum encode_mode mode;
    struct json_object *given = NULL;
    if (!lib_need(prompt, "prompt", err)) return false;
    *prompt = NULL;
    if (!lib_need(json, "json", err) || !take_options(&request.options, &mode, options, err)) return false;
    struct weir_prompt *p = new_prompt(model, err);
    if (!p) return false;
    bool ok = json_doc_parse(&given, model->alloc, &json_rules_request, "request", json, lib_bytes(json, bytes), err) &&
              read_request(&request, given, err) && render(p, &request, mode, err) &&
              chat_tools_init(&p->tools, model->alloc, request.tools, err);
    json_object_put(given);
    return give(prompt, p, ok);
}

enum weir_status weir_prompt_of_chat(struct weir_prompt **prompt, struct weir_model *model, const char *json,
                                     size_t bytes, const struct weir_chat_options *options, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(of_chat(prompt, model, json, bytes, options, &err), &err, error);
}

static bool add_messages(struct json_object *to, const struct weir_message *messages, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct weir_message *m = &messages[i];
        if (!lib_need(m->role, "role", err) || !lib_need(m->text, "text", err))
            return err_context(err, "messages[%zu]", i);
        const struct chat_words words = {
            .role = m->role,
            .text = m->text,
            .text_bytes = lib_bytes(m->text, m->bytes),
            .reasoning = m->reasoning,
            .reasoning_bytes = m->reasoning ? lib_bytes(m->reasoning, m->reasoning_bytes) : 0,
        };
        if (!chat_messages_add(to, &words, err)) return err_context(err, "messages[%zu]", i);
    }
    return true;
}

static bool of_messages(struct weir_prompt **prompt, struct weir_model *model, const struct weir_message *messages,
                        size_t n, const struct weir_chat_options *options, struct err *err)
{
    struct chat_request request = {0};
    enum encode_mode mode;
    if (!lib_need(prompt, "prompt", err)) return false;
    *prompt = NULL;
    if (!lib_need(messages, "messages", err) || !take_options(&request.options, &mode, options, err)) return false;
    if (n == 0) return err_set(err, ERR_USER, "messages: must be at least one");
    struct weir_prompt *p = new_prompt(model, err);
    if (!p) return false;
    request.messages = json_object_new_array();
    bool ok = request.messages || err_set(err, ERR_NOMEM, "no memory for the messages");
    ok = ok && add_messages(request.messages, messages, n, err) && render(p, &request, mode, err);
    json_object_put(request.messages);
    return give(prompt, p, ok);
}

enum weir_status weir_prompt_of_messages(struct weir_prompt **prompt, struct weir_model *model,
                                         const struct weir_message *messages, size_t n_messages,
                                         const struct weir_chat_options *options, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(of_messages(prompt, model, messages, n_messages, options, &err), &err, error);
}

/* ---- texts and ids ---- */

static bool of_text(struct weir_prompt **prompt, struct weir_model *model, const char *text, size_t bytes,
                    struct err *err)
{
    if (!lib_need(prompt, "prompt", err)) return false;
    *prompt = NULL;
    if (!lib_need(model, "model", err) || !lib_need(text, "text", err)) return false;
    const struct text_model *with = lib_text(model, err);
    struct weir_prompt *p = with ? new_prompt(model, err) : NULL;
    if (!p) return false;
    struct encoder *encoder = lib_borrow_encoder(model, err);
    bool ok = encoder && text_model_encode_raw(with, encoder, text, lib_bytes(text, bytes), &p->ids, err);
    if (encoder) lib_return_encoder(model);
    if (ok && p->ids.n == 0) ok = err_set(err, ERR_USER, "the text is empty");
    return give(prompt, p, ok);
}

enum weir_status weir_prompt_of_text(struct weir_prompt **prompt, struct weir_model *model, const char *text,
                                     size_t bytes, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(of_text(prompt, model, text, bytes, &err), &err, error);
}

/* Where there is a tokenizer, every id must have a token. */
static bool check_ids(struct weir_model *model, const struct token_list *ids, struct err *err)
{
    bool has;
    if (!lib_has_tokenizer(model, &has, err)) return false;
    if (!has) return true;
    const struct tokenizer *tokenizer = lib_tokenizer(model, err);
    if (!tokenizer) return false;
    for (size_t i = 0; i < ids->n; i++)
        if (tokenizer_token(tokenizer, ids->ids[i]).kind == TOKEN_DEAD)
            return err_set(err, ERR_USER, "number %zu of the ids, %" PRIu32 ", has no token; the ids end at %" PRIu32,
                           i + 1, ids->ids[i], tokenizer_id_end(tokenizer) - 1);
    return true;
}

static bool of_ids(struct weir_prompt **prompt, struct weir_model *model, const uint32_t *ids, size_t n,
                   struct err *err)
{
    if (!lib_need(prompt, "prompt", err)) return false;
    *prompt = NULL;
    if (!lib_need(ids, "ids", err)) return false;
    if (n == 0) return err_set(err, ERR_USER, "the prompt is empty");
    struct weir_prompt *p = new_prompt(model, err);
    if (!p) return false;
    p->is_ids = true;
    return give(prompt, p, token_list_add(&p->ids, ids, n, err) && check_ids(model, &p->ids, err));
}

enum weir_status weir_prompt_of_ids(struct weir_prompt **prompt, struct weir_model *model, const uint32_t *ids,
                                    size_t n_ids, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(of_ids(prompt, model, ids, n_ids, &err), &err, error);
}

const uint32_t *weir_prompt_ids(const struct weir_prompt *prompt, size_t *n_ids)
{
    if (n_ids) *n_ids = prompt->ids.n;
    return prompt->ids.ids;
}

const char *weir_prompt_text(const struct weir_prompt *prompt, size_t *bytes)
{
    if (bytes) *bytes = prompt->text ? prompt->text_bytes : 0;
    return prompt->text ? prompt->text : "";
}
