/* weir template: the prompt that a conversation becomes, as text and as token ids. */
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/open_tokenizer.h"
#include "fmt/chat_ids.h"
#include "fmt/json_doc.h"
#include "fmt/json_text.h"
#include "fmt/template_check.h"
#include <errno.h>
#include <inttypes.h>
#include <json-c/linkhash.h>
#include <string.h>

#define IDS_MAX (UINT64_C(16) << 20)
#define ANSWER_BYTES_MAX (UINT64_C(1) << 30)

enum special { SPECIAL_NONE, SPECIAL_ALL };  /* in the order of the choices of --special */
enum thinking { THINKING_OFF, THINKING_ON }; /* in the order of the choices of --thinking */

struct rendering {
    const struct command_context *context;
    struct tokenizer *tokenizer;
    struct encoder *encoder;
    struct chat_ids controls;
    enum encode_mode mode; /* for what clients wrote */
    struct token_list ids;
    struct buf input, answer;
};

static bool open_tools(struct rendering *r, struct err *err)
{
    struct template_report report;
    const struct command_context *context = r->context;
    if (!open_tokenizer(&r->tokenizer, context, err)) return false;
    if (!chat_ids_find(&r->controls, r->tokenizer, err)) return err_context(err, "%s", context->operands[0]);
    r->encoder = encoder_new(context->alloc, r->tokenizer, NULL, err);
    if (!r->encoder || !open_tokenizer_is_folder(context)) return r->encoder != NULL;
    if (!template_check(&report, context->alloc, context->fs, context->operands[0], err)) return false;
    if (report.kind == TEMPLATE_DIFFERS) fprintf(context->log, "weir: warning: %s\n", report.text);
    return true;
}

/* Text and ids on one line that is written at once, so that a program may ask line by line. */
static bool print_json(struct rendering *r, const struct chat_prompt *prompt, struct err *err)
{
    r->ids.n = 0;
    buf_clear(&r->answer);
    if (!chat_ids_encode(&r->controls, prompt, r->encoder, r->mode, &r->ids, err)) return false;
    if (!buf_add_text(&r->answer, "{\"ids\":[", err)) return false;
    for (size_t i = 0; i < r->ids.n; i++)
        if (!buf_printf(&r->answer, err, "%s%" PRIu32, i ? "," : "", r->ids.ids[i])) return false;
    if (!buf_add_text(&r->answer, "],\"text\":", err) ||
        !json_text_add_string(&r->answer, prompt->text.data, prompt->text.bytes, err) ||
        !buf_add_text(&r->answer, "}\n", err))
        return false;
    fwrite(r->answer.data, 1, r->answer.bytes, r->context->out);
    return fflush(r->context->out) == 0 || err_set(err, ERR_IO, "cannot write the output: %s", strerror(errno));
}

static bool answer(struct rendering *r, const struct chat_request *request, struct err *err)
{
    struct chat_prompt prompt;
    bool ok = chat_prompt_render(&prompt, r->context->alloc, request, err);
    if (ok && r->context->settings->json)
        ok = print_json(r, &prompt, err);
    else if (ok)
        fwrite(prompt.text.data, 1, prompt.text.bytes, r->context->out);
    chat_prompt_fini(&prompt);
    return ok;
}

/* One user message: the operand, or standard input. Bytes of an operand that are not UTF-8 become U+FFFD. */
static bool run_once(struct rendering *r, struct err *err)
{
    const char *operand = r->context->n_operands > 1 ? r->context->operands[1] : NULL;
    struct utf8_stream stream = {0};
    if (!operand && !input_read(&r->input, EOF, err)) return false;
    if (operand && !utf8_stream_add(&stream, &r->input, operand, strlen(operand), err)) return false;
    if (!utf8_stream_end(&stream, &r->input, err)) return false;
    struct chat_words words = {
        .role = "user", .text = r->input.data ? r->input.data : "", .text_bytes = r->input.bytes};
    struct chat_request request = {.messages = json_object_new_array(),
                                   .options = {.thinking = r->context->settings->thinking == THINKING_ON}};
    bool ok = request.messages ? chat_messages_add(request.messages, &words, err)
                               : err_set(err, ERR_NOMEM, "no memory for a message");
    ok = ok && answer(r, &request, err);
    json_object_put(request.messages);
    return ok;
}

/* A member that has no effect here is most likely a mistake in the one that has. */
static bool check_members(struct json_object *line, struct err *err)
{
    static const char *const known[] = {"messages",        "tools",          "add_generation_prompt",
                                        "enable_thinking", "thinking",       "reasoning_effort",
                                        "reasoning",       "clear_thinking", "chat_template_kwargs"};
    for (const struct lh_entry *e = json_object_get_object(line)->head; e; e = e->next) {
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

static bool answer_line(struct rendering *r, struct json_object *line, struct err *err)
{
    if (!json_object_is_type(line, json_type_object)) return err_set(err, ERR_USER, "not a JSON object");
    if (!check_members(line, err)) return false;
    struct chat_request request = {.messages = json_object_object_get(line, "messages"),
                                   .tools = json_object_object_get(line, "tools"),
                                   .options = {.thinking = r->context->settings->thinking == THINKING_ON}};
    if (!json_object_is_type(request.messages, json_type_array) || json_object_array_length(request.messages) == 0)
        return err_set(err, ERR_USER, "messages: must be an array with at least one message");
    if (!chat_options_read(&request.options, line, err)) return false;
    struct json_object *prompts = json_object_object_get(line, "add_generation_prompt");
    if (prompts && !json_object_is_type(prompts, json_type_boolean))
        return err_set(err, ERR_USER, "add_generation_prompt: must be true or false");
    request.options.no_generation_prompt = prompts && !json_object_get_boolean(prompts);
    return answer(r, &request, err);
}

static bool run_lines(struct rendering *r, struct err *err)
{
    for (uint64_t number = 1;; number++) {
        struct json_object *line = NULL;
        if (!input_read(&r->input, '\n', err)) return false;
        if (r->input.bytes == 0) return true;
        if (strspn(r->input.data, " \t\r\n") == r->input.bytes) continue;
        bool ok = json_doc_parse(&line, r->context->alloc, &json_rules_request, "request", r->input.data,
                                 r->input.bytes, err) &&
                  answer_line(r, line, err);
        json_object_put(line);
        if (!ok) return err_context(err, "standard input, line %" PRIu64, number);
    }
}

int command_template(struct command_context *context)
{
    struct err err = {0};
    const struct settings *settings = context->settings;
    /* What people tokenize is a prompt of their own making; what they render here is a client's. */
    bool is_chosen = settings_origin(settings, "special") != ORIGIN_DEFAULT;
    struct rendering r = {.context = context,
                          .mode = is_chosen && settings->special == SPECIAL_ALL ? ENCODE_ALL : ENCODE_NONE};
    token_list_init(&r.ids, context->alloc, IDS_MAX);
    buf_init(&r.input, context->alloc, json_rules_request.bytes_max + 1);
    buf_init(&r.answer, context->alloc, ANSWER_BYTES_MAX);
    bool lines = settings->json && context->n_operands == 1;
    bool ok = open_tools(&r, &err) && (lines ? run_lines(&r, &err) : run_once(&r, &err));
    buf_fini(&r.input);
    buf_fini(&r.answer);
    token_list_fini(&r.ids);
    encoder_free(r.encoder);
    tokenizer_free(r.tokenizer);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
