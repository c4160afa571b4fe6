/* weir template: the prompt that a conversation becomes, as text and as token ids. */
#include "base/buf.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/library.h"
#include "cli/standard_input.h"
#include "fmt/json_text.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define INPUT_BYTES_MAX ((16u << 20) + 1) /* as long as a request may be, and the end of its line */
#define ANSWER_BYTES_MAX (UINT64_C(1) << 30)

enum special { SPECIAL_NONE, SPECIAL_ALL };  /* in the order of the choices of --special */
enum thinking { THINKING_OFF, THINKING_ON }; /* in the order of the choices of --thinking */

struct rendering {
    const struct command_context *context;
    struct weir_model *model;
    struct weir_chat_options options;
    struct buf input, answer;
};

static bool open_model(struct rendering *r, struct err *err)
{
    struct weir_error error;
    char *note;
    if (!library_open_model(&r->model, r->context, err)) return false;
    if (!library_ok(weir_model_template_note(r->model, &note, &error), &error, err)) return false;
    if (*note) fprintf(r->context->log, "weir: warning: %s\n", note);
    weir_free(note);
    return true;
}

/* Text and ids on one line that is written at once, so that a program may ask line by line. */
static bool print_json(struct rendering *r, const struct weir_prompt *prompt, struct err *err)
{
    size_t n, bytes;
    const uint32_t *ids = weir_prompt_ids(prompt, &n);
    const char *text = weir_prompt_text(prompt, &bytes);
    buf_clear(&r->answer);
    if (!buf_add_text(&r->answer, "{\"ids\":[", err)) return false;
    for (size_t i = 0; i < n; i++)
        if (!buf_printf(&r->answer, err, "%s%" PRIu32, i ? "," : "", ids[i])) return false;
    if (!buf_add_text(&r->answer, "],\"text\":", err) || !json_text_add_string(&r->answer, text, bytes, err) ||
        !buf_add_text(&r->answer, "}\n", err))
        return false;
    fwrite(r->answer.data, 1, r->answer.bytes, r->context->out);
    return fflush(r->context->out) == 0 || err_set(err, ERR_IO, "cannot write the output: %s", strerror(errno));
}

/* Prints a prompt, and gives it back. */
static bool answer(struct rendering *r, struct weir_prompt *prompt, struct err *err)
{
    size_t bytes;
    const char *text = weir_prompt_text(prompt, &bytes);
    bool ok = true;
    if (r->context->settings->json)
        ok = print_json(r, prompt, err);
    else
        fwrite(text, 1, bytes, r->context->out);
    weir_prompt_free(prompt);
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
    const struct weir_message message = {
        .role = "user", .text = r->input.data ? r->input.data : "", .bytes = r->input.bytes};
    struct weir_prompt *prompt;
    struct weir_error error;
    enum weir_status status = weir_prompt_of_messages(&prompt, r->model, &message, 1, &r->options, &error);
    return library_ok(status, &error, err) && answer(r, prompt, err);
}

/* A line is an object, so that what it may say besides its messages has a place. */
static bool make_line_prompt(struct rendering *r, struct weir_prompt **prompt, struct err *err)
{
    struct weir_error error;
    const char *line = r->input.data;
    if (line[strspn(line, " \t\r\n")] == '[') return err_set(err, ERR_USER, "not a JSON object");
    enum weir_status status = weir_prompt_of_chat(prompt, r->model, line, r->input.bytes, &r->options, &error);
    return library_ok(status, &error, err);
}

static bool run_lines(struct rendering *r, struct err *err)
{
    for (uint64_t number = 1;; number++) {
        struct weir_prompt *prompt;
        if (!input_read(&r->input, '\n', err)) return false;
        if (r->input.bytes == 0) return true;
        if (strspn(r->input.data, " \t\r\n") == r->input.bytes) continue;
        if (!make_line_prompt(r, &prompt, err) || !answer(r, prompt, err))
            return err_context(err, "standard input, line %" PRIu64, number);
    }
}

int command_template(struct command_context *context)
{
    struct err err = {0};
    const struct settings *settings = context->settings;
    /* What people tokenize is a prompt of their own making; what they render here is a client's. */
    bool is_chosen = settings_origin(settings, "special") != ORIGIN_DEFAULT;
    struct rendering r = {.context = context};
    weir_chat_options_init(&r.options, sizeof r.options);
    if (is_chosen && settings->special == SPECIAL_ALL) r.options.markers = WEIR_MARKERS_ARE_TOKENS;
    if (settings->thinking == THINKING_ON) r.options.thinking = WEIR_THINKING_MAX;
    buf_init(&r.input, context->alloc, INPUT_BYTES_MAX);
    buf_init(&r.answer, context->alloc, ANSWER_BYTES_MAX);
    bool lines = settings->json && context->n_operands == 1;
    bool ok = open_model(&r, &err) && (lines ? run_lines(&r, &err) : run_once(&r, &err));
    buf_fini(&r.input);
    buf_fini(&r.answer);
    library_close_model(r.model);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
