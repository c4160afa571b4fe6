#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H
/* What weir tune found for one model on this machine: a file of option lines in the state folder, which gives way to
 * everything else that says something. It is named by the model's folder, so that finding it costs no look into the
 * model; a model that moves has none until it is tuned again. */
#include "cli/commands.h"
#include "cli/environment.h"

/* Where the profile of the model in this folder is, or would be. ERR_USER when there is no state folder. */
bool profile_locate(struct location *out, const struct command_context *context, const char *model_dir,
                    struct err *err) MUST_CHECK;

/* Lays the model's profile under the settings, if there is one and the command listens to profiles. */
bool profile_apply(struct settings *settings, const struct command_context *context, struct err *err) MUST_CHECK;

/* Replaces the profile by these lines, whole or not at all; no lines: there is none any more. */
bool profile_write(const char *path, struct alloc *alloc, const char *lines, size_t bytes, struct err *err) MUST_CHECK;

#endif
