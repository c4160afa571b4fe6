#include "cli/command_line.h"

#include "base/assert.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/profile.h"
#include "cli/resolve_model.h"
#include <errno.h>
#include <string.h>

static bool check_operands(const struct command *command, const struct operands *operands, struct err *err)
{
    if (operands->n_words < command->n_operands_min)
        return err_set(err, ERR_USER, "%s needs %s (see weir help %s)", command->name, command->operands,
                       command->name);
    if (operands->n_words > command->n_operands_max)
        return err_set(err, ERR_USER, "%s: '%s' is one operand too many (see weir help %s)", command->name,
                       operands->words[command->n_operands_max], command->name);
    return true;
}

/* A model may be named by part of its name; commands see its folder, which is kept in the arena. */
static bool resolve_operands(struct command_context *context, const char **words, struct arena *arena, struct err *err)
{
    struct location place;
    for (size_t i = 0; i < context->n_operands; i++) {
        if (!resolve_model_is_at(context->command, words, i)) continue;
        if (!resolve_model(context, words[i], &place, err)) return false;
        size_t bytes = strlen(place.path) + 1;
        char *path = arena_get(arena, bytes, err);
        if (!path) return false;
        memcpy(path, place.path, bytes);
        words[i] = path;
    }
    return true;
}

static int run_command(const struct command *command, const struct settings_source *source, FILE *out, FILE *log)
{
    struct err err = {0};
    struct alloc alloc = {0};
    struct settings settings;
    struct operands operands;
    int code;
    if (!settings_read(&settings, &operands, &alloc, command->id, source, &err)) {
        code = commands_fail(log, &err);
    } else if (operands.wants_help) {
        help_print_command(out, command);
        code = EXIT_CODE_DONE;
    } else if (!check_operands(command, &operands, &err)) {
        code = commands_fail(log, &err);
    } else {
        struct command_context context = {
            .command = command,
            .settings = &settings,
            .operands = operands.words,
            .n_operands = operands.n_words,
            .alloc = &alloc,
            .fs = source->fs,
            .environment = source->environment,
            .out = out,
            .log = log,
        };
        bool ok = resolve_operands(&context, operands.words, &settings.arena, &err) &&
                  profile_apply(&settings, &context, &err);
        code = ok ? command->run(&context) : commands_fail(log, &err);
    }
    settings_fini(&settings);
    ASSERT(alloc.live == 0); /* a command gives back all that it took, whatever happened */
    return code;
}

/* The spellings people try first. */
static const char *command_name_of(const char *word)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return "help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) return "version";
    return word;
}

/* A result that did not reach its reader (a full disk, say) is not a result. What failed before is told already when
 * the command failed by it. */
static int see_output(FILE *out, FILE *log, int code)
{
    if (fflush(out) != 0)
        fprintf(log, "weir: cannot write the output: %s\n", strerror(errno));
    else if (ferror(out) && code == EXIT_CODE_DONE)
        fprintf(log, "weir: a part of the output could not be written\n");
    return ferror(out) && code == EXIT_CODE_DONE ? EXIT_CODE_FAILED : code;
}

int command_line_run(char *const *argv, char *const *environment, FILE *out, FILE *log)
{
    struct err err = {0};
    int code;
    if (!argv[0] || !argv[1]) {
        help_print_overview(out);
        code = EXIT_CODE_DONE;
    } else {
        const struct command *command = commands_find(command_name_of(argv[1]), &err);
        struct settings_source source = {argv + 2, environment, file_system_real()};
        code = command ? run_command(command, &source, out, log) : commands_fail(log, &err);
    }
    return see_output(out, log, code);
}
