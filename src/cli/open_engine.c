#include "cli/open_engine.h"

#include "cli/library.h"
#include "lib/lib_settings.h"

bool engine_settings_from(struct engine_settings *out, const struct command_context *context, struct err *err)
{
    struct weir_settings settings;
    struct lib_settings read;
    const char *model = context->n_operands ? context->operands[0] : NULL;
    if (!library_settings(&settings, context, err)) return false;
    if (!lib_settings_read(&read, model, &settings, err)) return false;
    *out = read.engine;
    if (!library_drafts(context)) out->streamed.spine.with_mtp = true; /* not for drafts, but to be looked at */
    return true;
}
