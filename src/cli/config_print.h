#ifndef CLI_CONFIG_PRINT_H
#define CLI_CONFIG_PRINT_H
/* Every option that has an effect on a command, its value, and where that came from, as lines that a configuration file
 * could have. */
#include "cli/commands.h"

void config_print(FILE *out, const struct settings *settings, enum command_id command);

/* What came from the model's profile, on one line without an end. */
void config_print_profile(FILE *out, const struct settings *settings);

#endif
