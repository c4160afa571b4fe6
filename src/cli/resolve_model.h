#ifndef CLI_RESOLVE_MODEL_H
#define CLI_RESOLVE_MODEL_H
/* From the word that a person writes for a model to the folder that holds it.
 *
 * A folder or file of that name wins, and so does whatever looks like a path (it begins with / . or ~). Else it is the
 * name of a model that `weir scan` or `weir get` registered, whole (org/name, org/name@commit) or any part of it, in
 * small or capital letters. Several that fit are an error that lists them. */
#include "cli/commands.h"
#include "cli/environment.h"
#include "store/registry.h"

bool resolve_model(const struct command_context *context, const char *word, struct location *out,
                   struct err *err) MUST_CHECK;

/* Whether operand i of the command is such a word: it is where the usage line says MODEL or SOURCE. */
bool resolve_model_is_at(const struct command *command, const char *const *operands, size_t i);

/* The user's registry; see registry_open. */
bool open_registry(struct registry **registry, const struct command_context *context, bool may_create,
                   struct err *err) MUST_CHECK;

#endif
