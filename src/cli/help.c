#include "cli/help.h"

#include "base/units.h"
#include "cli/options.h"
#include <inttypes.h>
#include <string.h>

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

/* Words, broken so that no line passes HELP_WIDTH, each line from column HELP_COLUMN on. */
static void print_wrapped(FILE *out, const char *text)
{
    size_t column = HELP_COLUMN;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        if (column > HELP_COLUMN) column += (size_t)fprintf(out, " ");
        column += (size_t)fprintf(out, "%.*s", (int)n, text);
        text += n + strspn(text + n, " ");
    }
    fprintf(out, "\n");
}

static void join_choices(const struct option *option, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; option->choices[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "|" : "", option->choices[i]);
}

static void describe_range(const struct option *option, char *text, size_t size)
{
    char low[UNITS_TEXT_MAX], high[UNITS_TEXT_MAX];
    text[0] = 0;
    if (option->type == OPTION_COUNT && option->max < UINT64_MAX - 1)
        snprintf(text, size, "%" PRIu64 " to %" PRIu64, option->min, option->max);
    else if (option->type == OPTION_COUNT && option->min > 0)
        snprintf(text, size, "at least %" PRIu64, option->min);
    else if (option->type == OPTION_BYTES && option->max < UINT64_MAX / 2)
        snprintf(text, size, "%s to %s", units_format_bytes(low, option->min), units_format_bytes(high, option->max));
    else if (option->type == OPTION_BYTES && option->min > 0)
        snprintf(text, size, "at least %s", units_format_bytes(low, option->min));
    else if (option->type == OPTION_NUMBER)
        snprintf(text, size, "%g to %g", option->number_min, option->number_max);
}

const char *help_value_of(const struct option *option, char value[HELP_VALUE_MAX])
{
    value[0] = 0;
    if (option->choices[0])
        join_choices(option, value, HELP_VALUE_MAX);
    else if (option->value_name)
        snprintf(value, HELP_VALUE_MAX, "%s", option->value_name);
    return value;
}

const char *help_text_of(const struct option *option, char text[HELP_TEXT_MAX])
{
    char range[96];
    describe_range(option, range, sizeof range);
    bool tells_default = option->initial && option->type != OPTION_FLAG;
    snprintf(text, HELP_TEXT_MAX, "%s%s%s%s%s%s%s", option->help, *range || tells_default ? " (" : "", range,
             *range && tells_default ? "; " : "", tells_default ? "default " : "", tells_default ? option->initial : "",
             *range || tells_default ? ")" : "");
    return text;
}

static void print_options(FILE *out, enum command_id command)
{
    for (size_t i = 0; i < options_count(); i++) {
        const struct option *option = options_at(i);
        char value[HELP_VALUE_MAX], text[HELP_TEXT_MAX];
        if (!(option->commands >> command & 1)) continue;
        help_value_of(option, value);
        int used = fprintf(out, "  --%s%s%s", option->name, *value ? " " : "", value);
        if (used >= HELP_COLUMN)
            fprintf(out, "\n%*s", HELP_COLUMN, "");
        else
            fprintf(out, "%*s", HELP_COLUMN - used, "");
        print_wrapped(out, help_text_of(option, text));
    }
    fprintf(out, "  %-*s%s\n", HELP_COLUMN - 2, "--help", "print this text");
}

/* How values are written, where that is not plain. */
static void print_units(FILE *out, enum command_id command)
{
    bool has_sizes = false, has_times = false;
    for (size_t i = 0; i < options_count(); i++) {
        const struct option *option = options_at(i);
        bool is_ours = option->commands >> command & 1;
        has_sizes |= is_ours && option->type == OPTION_BYTES;
        has_times |= is_ours && option->type == OPTION_SECONDS;
    }
    if (has_sizes) fprintf(out, "Sizes: 512M, 20G or 20GiB in powers of 1024, 20GB in powers of 1000.\n");
    if (has_times) fprintf(out, "Times: 300 or 300s, 5m, 2h, 1d.\n");
}

void help_print_command(FILE *out, const struct command *command)
{
    fprintf(out, "usage: weir %s%s%s [options]\n", command->name, *command->operands ? " " : "", command->operands);
    if (command->alias) fprintf(out, "also:  weir %s\n", command->alias);
    fprintf(out, "\n%s.\n\nOptions:\n", command->purpose);
    print_options(out, command->id);
    fprintf(
        out,
        "\nEvery option but --help can also be set in the environment (--json: WEIR_JSON=on) and, but for --config, "
        "in\n"
        "the configuration file (json = on). The command line wins over the environment, and that over the file.\n");
    print_units(out, command->id);
}

void help_print_overview(FILE *out)
{
    fprintf(out, "weir runs GLM-5.2 with its experts on storage, in far less memory than the model is large.\n\n"
                 "usage: weir COMMAND [MODEL] [options]\n\n");
    for (unsigned i = 0; i < COMMAND_COUNT; i++) {
        const struct command *command = commands_at(i);
        int used = fprintf(out, "  %s %s", command->name, command->operands);
        if (used >= HELP_COLUMN)
            fprintf(out, "\n%*s", HELP_COLUMN, "");
        else
            fprintf(out, "%*s", HELP_COLUMN - used, "");
        print_wrapped(out, command->purpose);
    }
    fprintf(out, "\n`weir help COMMAND` explains a command and its options. MODEL is a folder, or part of\n"
                 "the name of a model that `weir scan` found or `weir get` fetched.\n"
                 "Exit codes: 0 done, 1 failed while running, 2 wrong usage, 3 does not fit the memory plan,\n"
                 "4 bad or damaged data, 6 network, 130 and 143 ended by a signal.\n");
}
