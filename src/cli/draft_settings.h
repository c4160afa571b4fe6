#ifndef CLI_DRAFT_SETTINGS_H
#define CLI_DRAFT_SETTINGS_H
/* What the options say about drafts. */
#include "cli/commands.h"
#include "weir/weir.h"

/* Fills in where drafts come from, and how many. ERR_USER for options that contradict each other. What has no effect is
 * told to the log. */
bool draft_settings(struct weir_settings *settings, const struct command_context *context, struct err *err) MUST_CHECK;

#endif
