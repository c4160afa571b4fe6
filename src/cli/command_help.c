#include "cli/commands.h"
#include "cli/help.h"
#include "cli/manual.h"
#include <string.h>

int command_help(struct command_context *context)
{
    struct err err = {0};
    if (context->settings->man) {
        if (context->n_operands == 0) {
            manual_print(context->out);
            return EXIT_CODE_DONE;
        }
        if (strcmp(context->operands[0], "config") == 0) {
            manual_print_config(context->out);
            return EXIT_CODE_DONE;
        }
        err_set(&err, ERR_USER, "--man is one page for all commands, and one for config: leave '%s' out",
                context->operands[0]);
        return command_fail(context, &err);
    }
    if (context->n_operands == 0) {
        help_print_overview(context->out);
        return EXIT_CODE_DONE;
    }
    const struct command *command = commands_find(context->operands[0], &err);
    if (!command) return command_fail(context, &err);
    help_print_command(context->out, command);
    return EXIT_CODE_DONE;
}
