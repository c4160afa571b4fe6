#ifndef CLI_OPEN_ENGINE_H
#define CLI_OPEN_ENGINE_H
/* From the settings of a command to those of an engine, for commands that open one by themselves. */
#include "cli/commands.h"
#include "run/engine.h"

/* What the options say about an engine on the command's first operand. */
bool engine_settings_from(struct engine_settings *out, const struct command_context *context,
                          struct err *err) MUST_CHECK;

#endif
