/* weir tokenize: text to token ids, and back. */
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/library.h"
#include "cli/standard_input.h"
#include "fmt/json_doc.h"
#include "fmt/json_text.h"
#include "fmt/token_list.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define INPUT_BYTES_MAX (64u << 20)
#define ANSWER_BYTES_MAX (UINT64_C(1) << 33) /* any input: a token may be 64 KiB long */

enum special { SPECIAL_NONE, SPECIAL_ALL }; /* in the order of the choices of --special */

struct tokenizing {
    const struct command_context *context;
    struct weir_model *model;
    bool special;          /* markers in text are tokens, and special tokens are text again */
    struct token_list ids; /* of the text in hand */
    struct buf input;      /* as it came */
    char *text;            /* [text_bytes] decoded; NULL: nothing yet */
    size_t text_bytes;
    struct buf answer; /* one line of JSON */
};

static bool encode(struct tokenizing *t, const char *text, size_t bytes, struct err *err)
{
    struct weir_error error;
    enum weir_markers markers = t->special ? WEIR_MARKERS_ARE_TOKENS : WEIR_MARKERS_ARE_TEXT;
    uint32_t *ids;
    size_t n;
    t->ids.n = 0;
    if (!library_ok(weir_tokenize(t->model, text, bytes, markers, &ids, &n, &error), &error, err)) return false;
    bool ok = token_list_add(&t->ids, ids, n, err);
    weir_free(ids);
    return ok;
}

static bool decode(struct tokenizing *t, struct err *err)
{
    struct weir_error error;
    weir_free(t->text);
    t->text = NULL;
    return library_ok(weir_detokenize(t->model, t->ids.ids, t->ids.n, !t->special, &t->text, &t->text_bytes, &error),
                      &error, err);
}

static bool print_plain(struct tokenizing *t, struct err *err)
{
    FILE *out = t->context->out;
    if (t->context->settings->decode) {
        if (!decode(t, err)) return false;
        fwrite(t->text, 1, t->text_bytes, out);
        return true;
    }
    for (size_t i = 0; i < t->ids.n; i++) fprintf(out, "%s%" PRIu32, i ? " " : "", t->ids.ids[i]);
    fputc('\n', out);
    return true;
}

/* Ids and what they decode to, on one line that is written at once, so that a program may ask line by line. */
static bool print_json(struct tokenizing *t, struct err *err)
{
    buf_clear(&t->answer);
    if (!decode(t, err)) return false;
    if (!buf_add_text(&t->answer, "{\"ids\":[", err)) return false;
    for (size_t i = 0; i < t->ids.n; i++)
        if (!buf_printf(&t->answer, err, "%s%" PRIu32, i ? "," : "", t->ids.ids[i])) return false;
    if (!buf_add_text(&t->answer, "],\"text\":", err)) return false;
    if (!json_text_add_string(&t->answer, t->text, t->text_bytes, err)) return false;
    if (!buf_add_text(&t->answer, "}\n", err)) return false;
    fwrite(t->answer.data, 1, t->answer.bytes, t->context->out);
    return fflush(t->context->out) == 0 || err_set(err, ERR_IO, "cannot write the output: %s", strerror(errno));
}

static bool print(struct tokenizing *t, struct err *err)
{
    return t->context->settings->json ? print_json(t, err) : print_plain(t, err);
}

/* One text or one list of ids, whole. The text of an argument may come from anywhere, so that what is not UTF-8 in it
 * becomes U+FFFD; in a file it is a mistake that should be seen. */
static bool run_once(struct tokenizing *t, struct err *err)
{
    const char *operand = t->context->n_operands > 1 ? t->context->operands[1] : NULL;
    const char *source = operand ? "TEXT" : "standard input";
    struct utf8_stream stream = {0};
    if (!operand && !input_read(&t->input, EOF, err)) return false;
    if (operand && !utf8_stream_add(&stream, &t->input, operand, strlen(operand), err)) return false;
    if (operand && !utf8_stream_end(&stream, &t->input, err)) return false;
    const char *input = t->input.data ? t->input.data : "";
    if (t->context->settings->decode) {
        if (strlen(input) != t->input.bytes) return err_set(err, ERR_USER, "%s: a NUL is not a token id", source);
        token_list_fini(&t->ids);
        if (!token_list_parse(&t->ids, t->context->alloc, source, input, err)) return false;
    } else if (!encode(t, input, t->input.bytes, err)) {
        return err_context(err, "%s", source);
    }
    return print(t, err);
}

static bool take_ids(struct tokenizing *t, struct json_object *ids, struct err *err)
{
    t->ids.n = 0;
    for (size_t i = 0; i < json_object_array_length(ids); i++) {
        struct json_object *value = json_object_array_get_idx(ids, i);
        int64_t number = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
        if (number < 0 || number > UINT32_MAX) return err_set(err, ERR_USER, "ids[%zu] is not a token id", i);
        uint32_t id = (uint32_t)number;
        if (!token_list_add(&t->ids, &id, 1, err)) return false;
    }
    return true;
}

static bool answer_request(struct tokenizing *t, struct json_object *request, struct err *err)
{
    struct json_object *text = NULL, *ids = NULL;
    if (!json_object_is_type(request, json_type_object)) return err_set(err, ERR_USER, "not a JSON object");
    bool has_text = json_object_object_get_ex(request, "text", &text);
    bool has_ids = json_object_object_get_ex(request, "ids", &ids);
    if (json_object_object_length(request) != 1 || (!has_text && !has_ids))
        return err_set(err, ERR_USER, "must be {\"text\": ...} or {\"ids\": [...]}");
    if (has_ids && !json_object_is_type(ids, json_type_array)) return err_set(err, ERR_USER, "ids is not an array");
    if (has_text && !json_object_is_type(text, json_type_string)) return err_set(err, ERR_USER, "text is not a string");
    if (has_ids && !take_ids(t, ids, err)) return false;
    if (has_text && !encode(t, json_object_get_string(text), (size_t)json_object_get_string_len(text), err))
        return false;
    return print_json(t, err);
}

static bool run_lines(struct tokenizing *t, struct err *err)
{
    static const struct json_rules rules = {
        .kind = ERR_USER, .bytes_max = INPUT_BYTES_MAX, .values_max = INPUT_BYTES_MAX / 2};
    for (uint64_t line = 1;; line++) {
        struct json_object *request = NULL;
        if (!input_read(&t->input, '\n', err)) return false;
        if (t->input.bytes == 0) return true;
        if (strspn(t->input.data, " \t\r\n") == t->input.bytes) continue;
        bool ok = json_doc_parse(&request, t->context->alloc, &rules, "request", t->input.data, t->input.bytes, err) &&
                  answer_request(t, request, err);
        json_object_put(request);
        if (!ok) return err_context(err, "standard input, line %" PRIu64, line);
    }
}

static bool run(struct tokenizing *t, struct err *err)
{
    const struct settings *settings = t->context->settings;
    bool lines = settings->json && t->context->n_operands == 1;
    if (lines && settings->decode)
        return err_set(err, ERR_USER,
                       "--decode has no effect on JSON lines: each says itself whether it is text or ids");
    return library_open_model(&t->model, t->context, err) && (lines ? run_lines(t, err) : run_once(t, err));
}

int command_tokenize(struct command_context *context)
{
    struct err err = {0};
    struct tokenizing t = {.context = context, .special = context->settings->special == SPECIAL_ALL};
    token_list_init(&t.ids, context->alloc, INPUT_BYTES_MAX);
    buf_init(&t.input, context->alloc, INPUT_BYTES_MAX);
    buf_init(&t.answer, context->alloc, ANSWER_BYTES_MAX);
    bool ok = run(&t, &err);
    buf_fini(&t.input);
    weir_free(t.text);
    buf_fini(&t.answer);
    token_list_fini(&t.ids);
    library_close_model(t.model);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
