/* weir completion: a script that lets a shell complete what is typed. */
#include "cli/commands.h"
#include "cli/completion.h"

int command_completion(struct command_context *context)
{
    struct err err = {0};
    return completion_print(context->out, context->operands[0], &err) ? EXIT_CODE_DONE : command_fail(context, &err);
}
