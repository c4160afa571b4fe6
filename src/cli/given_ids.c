#include "cli/given_ids.h"

#include "cli/library.h"
#include "fmt/token_list.h"
#include <string.h>

#define FILE_BYTES_MAX (UINT64_C(64) << 20)

static bool read_ids(struct token_list *list, const struct command_context *context, struct err *err)
{
    const struct settings *s = context->settings;
    *list = (struct token_list){0};
    if (!s->ids == !s->ids_file) return err_set(err, ERR_USER, "give the tokens with either --ids or --ids-file");
    if (s->ids) return token_list_parse(list, context->alloc, "--ids", s->ids, err);

    size_t bytes;
    char *text = file_read_all(context->alloc, context->fs, s->ids_file, FILE_BYTES_MAX, &bytes, err);
    if (!text) return false;
    bool ok = strlen(text) == bytes ? token_list_parse(list, context->alloc, s->ids_file, text, err)
                                    : err_set(err, ERR_USER, "%s: not a text: it holds a NUL byte", s->ids_file);
    alloc_put(context->alloc, text);
    return ok;
}

bool given_ids_prompt(struct weir_prompt **prompt, struct weir_model *model, const struct command_context *context,
                      struct err *err)
{
    struct token_list ids;
    struct weir_error error;
    bool ok = read_ids(&ids, context, err) &&
              library_ok(weir_prompt_of_ids(prompt, model, ids.ids, ids.n, &error), &error, err);
    token_list_fini(&ids);
    return ok;
}
