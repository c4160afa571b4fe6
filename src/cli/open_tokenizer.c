#include "cli/open_tokenizer.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

bool open_tokenizer_is_folder(const struct command_context *context)
{
    struct stat st;
    return stat(context->operands[0], &st) == 0 && S_ISDIR(st.st_mode);
}

bool open_tokenizer(struct tokenizer **tokenizer, const struct command_context *context, struct err *err)
{
    struct buf path;
    buf_init(&path, context->alloc, 1 << 16);
    const char *name = open_tokenizer_is_folder(context) ? "/tokenizer.json" : "";
    bool ok = buf_printf(&path, err, "%s%s", context->operands[0], name);
    *tokenizer = ok ? tokenizer_new(context->alloc, context->fs, path.data, err) : NULL;
    buf_fini(&path);
    return *tokenizer != NULL;
}

bool input_read(struct buf *input, int stop, struct err *err)
{
    int c;
    buf_clear(input);
    while ((c = getc_unlocked(stdin)) != EOF) {
        if (!buf_add_char(input, (char)c, err)) return err_context(err, "standard input");
        if (c == stop) break;
    }
    return !ferror(stdin) || err_set(err, ERR_IO, "standard input: %s", strerror(errno));
}
