#include "cli/commands.h"
#include "cli/help.h"

int command_help(struct command_context *context)
{
    struct err err = {0};
    if (context->n_operands == 0) {
        help_print_overview(context->out);
        return EXIT_CODE_DONE;
    }
    const struct command *command = commands_find(context->operands[0], &err);
    if (!command) return command_fail(context, &err);
    help_print_command(context->out, command);
    return EXIT_CODE_DONE;
}
