#include "cli/completion.h"

#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/options.h"
#include <string.h>

/* A word in single quotes, in which a quote is written as the shell wants it, and each of the characters in `special`
 * with a backslash in front. */
static void print_quoted(FILE *out, const char *text, const char *special, const char *quote)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'')
            fputs(quote, out);
        else if (strchr(special, *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
    fputc('\'', out);
}

#define QUOTE_POSIX "'\\''" /* ends the quoted part, a quote on its own, begins again */
#define QUOTE_FISH "\\'"

static bool has_effect(const struct option *option, const struct command *command)
{
    return option->commands >> command->id & 1;
}

static bool takes_file(const struct option *option)
{
    return option->value_name && (strcmp(option->value_name, "FILE") == 0 || strcmp(option->value_name, "DIR") == 0);
}

static void print_choices(FILE *out, const struct option *option)
{
    for (size_t i = 0; option->choices[i]; i++) fprintf(out, "%s%s", i ? " " : "", option->choices[i]);
}

/* Commands whose first operand is one of several words, which their usage line shows with bars between them. */
static bool print_operand_words(FILE *out, const struct command *command, const char *separator)
{
    const char *operands = command->operands;
    size_t n = strcspn(operands, " ");
    if (!memchr(operands, '|', n) || strspn(operands, "abcdefghijklmnopqrstuvwxyz|") < n) return false;
    for (size_t i = 0; i < n; i++)
        if (operands[i] == '|')
            fputs(separator, out);
        else
            fputc(operands[i], out);
    return true;
}

static void print_command_names(FILE *out)
{
    for (unsigned i = 0; i < COMMAND_COUNT; i++) fprintf(out, "%s%s", i ? " " : "", commands_at(i)->name);
}

/* "generate|gen": a pattern of case. */
static void print_pattern(FILE *out, const struct command *command)
{
    fprintf(out, "%s%s%s", command->name, command->alias ? "|" : "", command->alias ? command->alias : "");
}

static void print_bash_values(FILE *out)
{
    const char *separator = "";
    fputs("    case $prev in\n", out);
    for (size_t i = 0; i < options_count(); i++) {
        const struct option *option = options_at(i);
        if (!option->choices[0]) continue;
        fprintf(out, "    --%s) mapfile -t COMPREPLY < <(compgen -W '", option->name);
        print_choices(out, option);
        fputs("' -- \"$cur\"); return ;;\n", out);
    }
    fputs("    ", out);
    for (size_t i = 0; i < options_count(); i++) {
        if (!takes_file(options_at(i))) continue;
        fprintf(out, "%s--%s", separator, options_at(i)->name);
        separator = "|";
    }
    fputs(") mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n    ", out);
    separator = "";
    for (size_t i = 0; i < options_count(); i++) {
        if (!options_at(i)->value_name || takes_file(options_at(i))) continue;
        fprintf(out, "%s--%s", separator, options_at(i)->name);
        separator = "|";
    }
    fputs(") return ;;\n    esac\n", out);
}

static void print_bash(FILE *out)
{
    fputs("# bash completion of weir, made by `weir completion bash`\n"
          "_weir()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W '",
          out);
    print_command_names(out);
    fputs("' -- \"$cur\")\n        return\n    fi\n", out);
    print_bash_values(out);
    fputs("    case $cur in\n    -*)\n        case $command in\n", out);
    for (unsigned c = 0; c < COMMAND_COUNT; c++) {
        fputs("        ", out);
        print_pattern(out, commands_at(c));
        fputs(") words='", out);
        for (size_t i = 0; i < options_count(); i++)
            if (has_effect(options_at(i), commands_at(c))) fprintf(out, "--%s ", options_at(i)->name);
        fputs("--help' ;;\n", out);
    }
    fputs("        esac\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
          "        return ;;\n"
          "    esac\n"
          "    case $command in\n    help) words='",
          out);
    print_command_names(out);
    fputs("' ;;\n", out);
    for (unsigned c = 0; c < COMMAND_COUNT; c++) {
        const struct command *command = commands_at(c);
        if (!memchr(command->operands, '|', strcspn(command->operands, " ")) ||
            strncmp(command->operands, "MODEL", 5) == 0)
            continue;
        fprintf(out, "    %s) words='", command->name);
        print_operand_words(out, command, " ");
        fputs("' ;;\n", out);
    }
    fputs("    esac\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\"; [ \"$command\" = help ] || compgen -f -- "
          "\"$cur\")\n"
          "}\n"
          "complete -o filenames -F _weir weir\n",
          out);
}

static void print_zsh_option(FILE *out, const struct option *option)
{
    fprintf(out, " \\\n        --%s%s", option->name, option->type == OPTION_FLAG ? "" : "=");
    fputc('\'', out);
    fputc('[', out);
    fputc('\'', out);
    print_quoted(out, option->help, "[]:", QUOTE_POSIX);
    fputs("']'", out);
    if (option->choices[0]) {
        fputs("':value:(", out);
        print_choices(out, option);
        fputs(")'", out);
    } else if (option->type != OPTION_FLAG) {
        fprintf(out, "':%s:%s'", option->value_name, takes_file(option) ? "_files" : "");
    }
}

static void print_zsh(FILE *out)
{
    fputs("#compdef weir\n# zsh completion of weir, made by `weir completion zsh`\n"
          "_weir() {\n    local -a commands\n    commands=(\n",
          out);
    for (unsigned c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "        %s:", commands_at(c)->name);
        print_quoted(out, commands_at(c)->purpose, "", QUOTE_POSIX);
        fputc('\n', out);
    }
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
          "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n",
          out);
    for (unsigned c = 0; c < COMMAND_COUNT; c++) {
        const struct command *command = commands_at(c);
        fputs("    ", out);
        print_pattern(out, command);
        fputs(") _arguments", out);
        for (size_t i = 0; i < options_count(); i++)
            if (has_effect(options_at(i), command)) print_zsh_option(out, options_at(i));
        fputs(" \\\n        '--help[print the options]'", out);
        if (command->id == COMMAND_HELP) {
            fputs(" '1:command:(", out);
            print_command_names(out);
            fputs(")'", out);
        } else if (command->n_operands_max > 0) {
            const char *operands = command->operands;
            size_t first = strcspn(operands, " ");
            bool has_words =
                strspn(operands, "abcdefghijklmnopqrstuvwxyz|") >= first && memchr(operands, '|', first) != NULL;
            if (has_words) fputs(" '1:word:(", out);
            if (has_words && print_operand_words(out, command, " ")) fputs(")'", out);
            fputs(" '*:file:_files'", out);
        }
        fputs(" ;;\n", out);
    }
    fputs("    esac\n}\n_weir \"$@\"\n", out);
}

static void print_fish_option(FILE *out, const struct command *command, const struct option *option)
{
    fprintf(out, "complete -c weir -n '__fish_seen_subcommand_from %s%s%s' -l %s", command->name,
            command->alias ? " " : "", command->alias ? command->alias : "", option->name);
    if (option->choices[0]) {
        fputs(" -x -a '", out);
        print_choices(out, option);
        fputc('\'', out);
    } else if (option->type != OPTION_FLAG) {
        fputs(takes_file(option) ? " -r -F" : " -x", out);
    }
    fputs(" -d ", out);
    print_quoted(out, option->help, "\\", QUOTE_FISH);
    fputc('\n', out);
}

static void print_fish(FILE *out)
{
    fputs("# fish completion of weir, made by `weir completion fish`\ncomplete -c weir -f\n", out);
    for (unsigned c = 0; c < COMMAND_COUNT; c++) {
        const struct command *command = commands_at(c);
        fprintf(out, "complete -c weir -n __fish_use_subcommand -a %s -d ", command->name);
        print_quoted(out, command->purpose, "\\", QUOTE_FISH);
        fputc('\n', out);
        for (size_t i = 0; i < options_count(); i++)
            if (has_effect(options_at(i), command)) print_fish_option(out, command, options_at(i));
    }
    fputs("complete -c weir -n '__fish_seen_subcommand_from help' -a '", out);
    print_command_names(out);
    fputs("'\n", out);
    for (unsigned c = 0; c < COMMAND_COUNT; c++) {
        const struct command *command = commands_at(c);
        if (strspn(command->operands, "abcdefghijklmnopqrstuvwxyz|") < strcspn(command->operands, " ") ||
            !*command->operands)
            continue;
        fprintf(out, "complete -c weir -n '__fish_seen_subcommand_from %s' -a '", command->name);
        print_operand_words(out, command, " ");
        fputs("'\n", out);
    }
    fputs("complete -c weir -n 'not __fish_use_subcommand; and not __fish_seen_subcommand_from help' -F\n", out);
}

bool completion_print(FILE *out, const char *shell, struct err *err)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    struct nearest nearest = {.word = shell};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(out);
            return true;
        }
        nearest_offer(&nearest, shells[i].name);
    }
    return err_set(err, ERR_USER, "there is no completion for '%s'; the nearest is %s", shell, nearest.best);
}
