#include "cli/prompt_text.h"

#include "base/utf8.h"
#include "cli/standard_input.h"
#include <string.h>
#include <unistd.h>

static bool is_stdin(const char *path)
{
    return strcmp(path, "-") == 0;
}

static bool read_file(struct buf *out, const struct command_context *context, const char *path, struct err *err)
{
    size_t bytes;
    char *text = file_read_all(context->alloc, context->fs, path, PROMPT_BYTES_MAX, &bytes, err);
    if (!text) {
        if (err->kind == ERR_DATA) err->kind = ERR_USER; /* no such file: a wrong option, not a damaged model */
        return false;
    }
    bool ok = buf_add(out, text, bytes, err);
    alloc_put(context->alloc, text);
    return ok;
}

bool prompt_text_of_file(struct buf *out, const struct command_context *context, const char *path, struct err *err)
{
    const char *name = is_stdin(path) ? "standard input" : path;
    size_t bad;
    if (!(is_stdin(path) ? input_read(out, EOF, err) : read_file(out, context, path, err))) return false;
    if (out->bytes == 0 || utf8_check(out->data, out->bytes, &bad)) return true;
    return err_set(err, ERR_USER, "%s: the text is not valid UTF-8 at byte %zu (0x%02x)", name, bad,
                   (unsigned char)out->data[bad]);
}

bool prompt_text_of_argument(struct buf *out, const char *text, struct err *err)
{
    struct utf8_stream stream = {0};
    return utf8_stream_add(&stream, out, text, strlen(text), err) && utf8_stream_end(&stream, out, err);
}

bool prompt_text_read(struct buf *out, bool *is_typed, const struct command_context *context, struct err *err)
{
    const struct settings *s = context->settings;
    const char *operand = context->n_operands > 1 ? context->operands[1] : NULL;
    int n_given = !!operand + !!s->prompt + !!s->prompt_file;
    if (n_given > 1) return err_set(err, ERR_USER, "give the prompt once: as an operand, --prompt or --prompt-file");
    if (n_given == 0 && isatty(STDIN_FILENO))
        return err_set(err, ERR_USER,
                       "there is no prompt: give it as an operand, --prompt, --prompt-file or in a pipe");

    const char *typed = operand && !is_stdin(operand) ? operand : s->prompt;
    *is_typed = typed != NULL;
    if (typed) return prompt_text_of_argument(out, typed, err);
    return prompt_text_of_file(out, context, s->prompt_file ? s->prompt_file : "-", err);
}
