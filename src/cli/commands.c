#include "cli/commands.h"

#include "base/assert.h"
#include "base/nearest.h"
#include <string.h>

static const struct command commands[] = {
#define X(id, name, alias, operands, least, most, purpose) \
    {COMMAND_##id, #name, alias, operands, least, most, purpose, command_##name},
    COMMAND_LIST(X)
#undef X
};

enum exit_code commands_exit_code(enum err_kind kind)
{
    switch (kind) {
    case ERR_NONE: return EXIT_CODE_DONE;
    case ERR_USER: return EXIT_CODE_USAGE;
    case ERR_FIT: return EXIT_CODE_FIT;
    case ERR_DATA: return EXIT_CODE_DATA;
    case ERR_NETWORK: return EXIT_CODE_NETWORK;
    case ERR_CANCELLED: return EXIT_CODE_INTERRUPTED;
    case ERR_FAILED:
    case ERR_IO:
    case ERR_NOMEM:
    case ERR_BUSY: break;
    }
    return EXIT_CODE_FAILED;
}

int commands_fail(FILE *log, const struct err *err)
{
    ASSERT(err->kind != ERR_NONE); /* whoever failed must have said why */
    fprintf(log, "weir: %s\n", err->text);
    return (int)commands_exit_code(err->kind);
}

int command_fail(const struct command_context *context, const struct err *err)
{
    return commands_fail(context->log, err);
}

const struct command *commands_at(enum command_id id)
{
    ASSERT((size_t)id < COMMAND_COUNT);
    return &commands[id];
}

const struct command *commands_find(const char *name, struct err *err)
{
    struct nearest nearest = {.word = name};
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const struct command *command = &commands[i];
        if (strcmp(name, command->name) == 0) return command;
        if (command->alias && strcmp(name, command->alias) == 0) return command;
        nearest_offer(&nearest, command->name);
        if (command->alias) nearest_offer(&nearest, command->alias);
    }
    err_set(err, ERR_USER, "there is no command '%s'; the nearest is '%s' (see weir --help)", name, nearest.best);
    return NULL;
}
