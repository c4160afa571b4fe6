#ifndef CLI_REQUEST_SETTINGS_H
#define CLI_REQUEST_SETTINGS_H
/* How to answer, from the settings of a command: a request to libweir, and how its prompt is made. */
#include "cli/commands.h"
#include "weir/weir.h"

/* The command line over the model's defaults, checked. Lists are the settings' own. Without a seed, each answer is
 * another one. */
bool request_settings(struct weir_request *request, struct weir_chat_options *chat, struct weir_model *model,
                      const struct command_context *context, struct err *err) MUST_CHECK;

#endif
