#ifndef CLI_HELP_H
#define CLI_HELP_H
/* The help texts, made from the tables of commands and options. */
#include "cli/commands.h"
#include "cli/options.h"

enum { HELP_VALUE_MAX = 128, HELP_TEXT_MAX = 1024 };

/* What stands for an option's value, "" for a flag; and its help with range and default, without a full stop. */
const char *help_value_of(const struct option *option, char value[HELP_VALUE_MAX]);
const char *help_text_of(const struct option *option, char text[HELP_TEXT_MAX]);

void help_print_overview(FILE *out);
void help_print_command(FILE *out, const struct command *command);

#endif
