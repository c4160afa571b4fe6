#ifndef CLI_HELP_H
#define CLI_HELP_H
/* The help texts, made from the tables of commands and options. */
#include "cli/commands.h"

void help_print_overview(FILE *out);
void help_print_command(FILE *out, const struct command *command);

#endif
