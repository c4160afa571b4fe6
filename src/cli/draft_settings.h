#ifndef CLI_DRAFT_SETTINGS_H
#define CLI_DRAFT_SETTINGS_H
/* What the options say about drafts. */
#include "cli/commands.h"
#include "run/drafts.h"

/* ERR_USER for options that contradict each other. What has no effect is told to the log. */
bool draft_settings_from(struct draft_choice *out, const struct command_context *context, struct err *err) MUST_CHECK;

#endif
