#ifndef CLI_GIVEN_IDS_H
#define CLI_GIVEN_IDS_H
/* The token ids that a command was given. */
#include "cli/commands.h"
#include "weir/weir.h"

/* The ids of --ids or --ids-file as a prompt; exactly one of the two must be given. */
bool given_ids_prompt(struct weir_prompt **prompt, struct weir_model *model, const struct command_context *context,
                      struct err *err) MUST_CHECK;

#endif
