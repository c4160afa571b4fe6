#include "cli/manual.h"

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/options.h"
#include <string.h>

/* Text as roff prints it: nothing in it is a request or an escape, and a dash is a dash that can be copied. */
static void print_text(FILE *out, const char *text)
{
    bool is_first = true; /* in a line, where . and ' begin requests */
    for (; *text; text++) {
        if (is_first && (*text == '.' || *text == '\'')) fputs("\\&", out);
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
        is_first = *text == '\n';
    }
}

static void print_heading(FILE *out, const char *heading)
{
    fprintf(out, ".SH %s\n", heading);
}

/* A tagged paragraph: the tag in bold, what stands for its value in italics. */
static void print_tag(FILE *out, const char *tag, const char *value)
{
    fputs(".TP\n.B ", out);
    print_text(out, tag);
    if (*value) {
        fputs(" \\fI", out);
        print_text(out, value);
        fputs("\\fR", out);
    }
    fputc('\n', out);
}

static void print_commands(FILE *out)
{
    print_heading(out, "COMMANDS");
    for (unsigned i = 0; i < COMMAND_COUNT; i++) {
        const struct command *command = commands_at(i);
        print_tag(out, command->name, command->operands);
        print_text(out, command->purpose);
        fputs(".\n", out);
        if (command->alias) {
            fputs("Also:\n.BR ", out);
            print_text(out, command->alias);
            fputs(" .\n", out);
        }
    }
}

static void print_commands_of(FILE *out, const struct option *option)
{
    const char *separator = "";
    if (option->commands == OPTIONS_OF_ALL) {
        fputs("For all commands.\n", out);
        return;
    }
    fputs("For ", out);
    for (unsigned i = 0; i < COMMAND_COUNT; i++) {
        if (!(option->commands >> i & 1)) continue;
        fprintf(out, "%s%s", separator, commands_at(i)->name);
        separator = ", ";
    }
    fputs(".\n", out);
}

static void print_option(FILE *out, const struct option *option, const char *before, const char *behind)
{
    char tag[OPTION_ENVIRONMENT_NAME_MAX], value[HELP_VALUE_MAX], text[HELP_TEXT_MAX];
    snprintf(tag, sizeof tag, "%s%s%s", before, option->name, behind);
    help_value_of(option, value);
    print_tag(out, tag, *value || !*behind ? value : "on|off"); /* a switch is given a value here */
    print_text(out, help_text_of(option, text));
    fputs(".\n", out);
    print_commands_of(out, option);
}

static void print_options(FILE *out)
{
    print_heading(out, "OPTIONS");
    for (size_t i = 0; i < options_count(); i++) print_option(out, options_at(i), "--", "");
    print_tag(out, "--help", "");
    fputs("Print the options of the command.\n", out);
}

struct entry {
    const char *tag, *value, *text;
};

static void print_entries(FILE *out, const char *heading, const struct entry *entries, size_t n)
{
    print_heading(out, heading);
    for (size_t i = 0; i < n; i++) {
        print_tag(out, entries[i].tag, entries[i].value);
        print_text(out, entries[i].text);
        fputc('\n', out);
    }
}

#define ENTRIES(out, heading, entries) print_entries(out, heading, entries, sizeof(entries) / sizeof *(entries))

static void print_rest(FILE *out)
{
    static const struct entry environment[] = {
        {"WEIR_NAME", "",
         "Every option, as WEIR_RAM_BUDGET=20G for --ram-budget 20G. A WEIR_ variable that is no option "
         "is an error."},
        {"XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME", "", "Where the files below are, instead of below HOME."},
        {"HF_HUB_CACHE, HF_HOME", "", "The cache of fetched models, which all clients of the hub share."},
        {"NO_COLOR", "", "Set and not empty: no colours on a terminal."},
        {"TMPDIR", "", "Where selftest makes its model, instead of /tmp."},
    };
    static const struct entry files[] = {
        {"~/.config/weir/config.ini", "", "Options as lines of the form name = value, see weir-config(5)."},
        {"~/.local/share/weir", "", "What scans found."},
        {"~/.local/state/weir/chat_history", "", "What was typed into chat."},
        {"~/.cache/huggingface/hub", "", "Fetched models."},
    };
    static const struct entry status[] = {
        {"0", "", "Done."},
        {"1", "", "Failed while running. Of doctor: would run, but not well."},
        {"2", "", "Wrong usage."},
        {"3", "", "Does not fit the memory plan."},
        {"4", "", "Bad or damaged data."},
        {"6", "", "Network."},
        {"130, 143", "", "Ended by a signal."},
    };
    static const struct entry examples[] = {
        {"weir doctor ~/glm", "", "Would it run well here, and what is to be changed?"},
        {"weir fit ~/glm --ram-budget 24G", "", "Where would the memory go?"},
        {"weir chat ~/glm", "", "Talk."},
        {"weir generate ~/glm --temperature 0 --json \"What is 12 times 7?\"", "", "One answer, for a program."},
    };
    ENTRIES(out, "ENVIRONMENT", environment);
    ENTRIES(out, "FILES", files);
    ENTRIES(out, "EXIT STATUS", status);
    ENTRIES(out, "EXAMPLES", examples);
}

void manual_print(FILE *out)
{
    fputs(".\\\" Made by `weir help --man` from the tables of commands and options.\n"
          ".TH WEIR 1 \"\" \"weir " WEIR_VERSION "\" \"User Commands\"\n"
          ".SH NAME\n"
          "weir \\- run GLM\\-5.2 with its experts on storage, in far less memory than the model is large\n"
          ".SH SYNOPSIS\n"
          ".B weir\n"
          ".I COMMAND\n"
          ".RI [ MODEL ]\n"
          ".RI [ options ]\n"
          ".SH DESCRIPTION\n"
          "What every token needs stays in memory; routed experts are read from storage when they are asked for.\n"
          "MODEL is the folder of a model, or part of the name of one that\n"
          ".B weir scan\n"
          "or\n"
          ".B weir get\n"
          "has found.\n"
          "Results go to standard output, everything else to standard error.\n"
          ".PP\n"
          "An option is given as \\-\\-name value or \\-\\-name=value.\n"
          "The command line wins over the environment, the environment over the configuration file, and that over the\n"
          "default. Sizes are written 512M, 20G or 20GiB (powers of 1024) or 20GB (powers of 1000), times 300, 5m or "
          "2h.\n",
          out);
    print_commands(out);
    print_options(out);
    print_rest(out);
}

void manual_print_config(FILE *out)
{
    fputs(
        ".\\\" Made by `weir help config --man` from the table of options.\n"
        ".TH WEIR\\-CONFIG 5 \"\" \"weir " WEIR_VERSION "\" \"File Formats\"\n"
        ".SH NAME\n"
        "weir\\-config \\- the configuration file of weir\n"
        ".SH SYNOPSIS\n"
        ".I $XDG_CONFIG_HOME/weir/config.ini\n"
        ".SH DESCRIPTION\n"
        "Lines of the form name = value, each of which is an option without its two dashes. Empty lines and lines\n"
        "that begin with # or ; say nothing. Without XDG_CONFIG_HOME the file is ~/.config/weir/config.ini; the "
        "option\n"
        ".B \\-\\-config\n"
        "names another one.\n"
        "The command line and the environment win over the file, and the file over a profile of weir tune.\n"
        "A name that is no option, a name that comes twice and a value that is none are errors, which tell the line.\n"
        "An option that has no effect on a command is passed over there.\n",
        out);
    print_heading(out, "KEYS");
    for (size_t i = 0; i < options_count(); i++)
        if (strcmp(options_at(i)->name, "config") != 0) print_option(out, options_at(i), "", " =");
    fputs(".SH EXAMPLE\n"
          ".nf\n"
          "ram\\-budget = 24G\n"
          "context\\-length = 8192\n"
          "direct\\-io = on\n"
          ".fi\n"
          ".SH SEE ALSO\n"
          ".BR weir (1)\n",
          out);
}
