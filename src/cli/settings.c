#include "cli/settings.h"

#include "base/assert.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include <ini.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    CONFIG_BYTES_MAX = 1 << 20,
    CONFIG_LINE_MAX = 197, /* what libinih can hold; it would silently split a longer line */
    TEXTS_BYTES_MAX = 1 << 22,
    VARIABLE_MAX = 2 * OPTION_ENVIRONMENT_NAME_MAX, /* names of variables are shown up to here */
};

#define ENVIRONMENT_PREFIX "WEIR_"
#define CONFIG_OPTION "config" /* names the file itself, so the file must not have it */

/* Checks the value always, and keeps it unless a stronger source already gave one. */
static bool offer(struct settings *settings, const struct option *option, enum origin origin, const char *text,
                  const char *where, struct err *err)
{
    uint8_t *now = &settings->origin[options_row(option)];
    struct settings checked = *settings;
    bool is_kept = origin >= *now;
    if (!options_store(option, is_kept ? settings : &checked, text, where, err)) return false;
    if (is_kept) *now = (uint8_t)origin;
    return true;
}

/* Command line. */

struct arguments {
    struct settings *settings;
    struct operands *operands;
    unsigned command;
    char *const *next;
};

static bool find_for_command(const struct option **option, const char *name, unsigned command, struct err *err)
{
    const char *command_name = commands_at(command)->name;
    *option = options_find(name);
    const char *nearest = options_nearest(name, UINT64_C(1) << command);
    if (!*option)
        return err_set(err, ERR_USER, "%s has no option --%s; the nearest is --%s (see weir help %s)", command_name,
                       name, nearest, command_name);
    if (!((*option)->commands >> command & 1))
        return err_set(err, ERR_USER,
                       "--%s has no effect on %s; the nearest option that has is --%s (see weir help %s)", name,
                       command_name, nearest, command_name);
    return true;
}

/* One option that stands at args->next, with its value inside (--name=value) or behind it. */
static bool take_option(struct arguments *args, struct err *err)
{
    char name[OPTION_ENVIRONMENT_NAME_MAX], where[OPTION_ENVIRONMENT_NAME_MAX + 2];
    const char *word = *args->next++ + 2;
    size_t n = strcspn(word, "=");
    const struct option *option;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), word);
    if (!find_for_command(&option, name, args->command, err)) return false;
    snprintf(where, sizeof where, "--%s", option->name);

    const char *value = "on";
    if (word[n] == '=') {
        value = word + n + 1;
    } else if (option->type != OPTION_FLAG) {
        value = *args->next;
        if (!value || strncmp(value, "--", 2) == 0)
            return err_set(err, ERR_USER, "%s needs a value (one that begins with -- is written %s=VALUE)", where,
                           where);
        args->next++;
    }
    return offer(args->settings, option, ORIGIN_COMMAND_LINE, value, where, err);
}

static bool read_arguments(struct arguments *args, struct err *err)
{
    struct operands *operands = args->operands;
    bool options_ended = false;
    while (*args->next) {
        const char *word = *args->next;
        if (options_ended || word[0] != '-' || !word[1]) { /* a lone - is an operand: standard input */
            operands->words[operands->n_words++] = word;
            args->next++;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
            args->next++;
        } else if (word[1] == '-') {
            if (!take_option(args, err)) return false;
        } else {
            return err_set(err, ERR_USER,
                           "'%s' is no option: options are whole words behind two dashes (see weir help %s)", word,
                           commands_at(args->command)->name);
        }
    }
    return true;
}

static bool asks_for_help(char *const *words)
{
    for (; *words && strcmp(*words, "--") != 0; words++)
        if (strcmp(*words, "--help") == 0 || strcmp(*words, "-h") == 0) return true;
    return false;
}

/* Environment. */

/* The option whose environment name this is, or NULL with its nearest relative in *nearest. */
static const struct option *option_of_variable(const char *variable, const char **nearest)
{
    char name[VARIABLE_MAX];
    snprintf(name, sizeof name, "%s", variable + strlen(ENVIRONMENT_PREFIX));
    for (char *c = name; *c; c++) {
        if (*c == '_') *c = '-';
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    *nearest = options_nearest(name, OPTIONS_OF_ALL);
    const struct option *option = options_find(name);
    bool is_exact = option && strcmp(options_environment_name(option, name), variable) == 0;
    return is_exact ? option : NULL;
}

static bool read_variable(struct settings *settings, const char *entry, struct err *err)
{
    char variable[VARIABLE_MAX], name[OPTION_ENVIRONMENT_NAME_MAX];
    const char *nearest;
    size_t n = strcspn(entry, "=");
    snprintf(variable, sizeof variable, "%.*s", (int)(n < sizeof variable ? n : sizeof variable - 1), entry);
    const struct option *option = option_of_variable(variable, &nearest);
    if (!option)
        return err_set(err, ERR_USER, "%s is set in the environment, but there is no such option; the nearest is %s",
                       variable, options_environment_name(options_find(nearest), name));
    return offer(settings, option, ORIGIN_ENVIRONMENT, entry[n] ? entry + n + 1 : "", variable, err);
}

static bool read_environment(struct settings *settings, char *const *environment, struct err *err)
{
    for (; *environment; environment++)
        if (strncmp(*environment, ENVIRONMENT_PREFIX, strlen(ENVIRONMENT_PREFIX)) == 0 &&
            !read_variable(settings, *environment, err))
            return false;
    return true;
}

/* Configuration file. */

struct config_reader {
    struct settings *settings;
    const char *path;
    const char *rest; /* of the text */
    enum origin origin;
    unsigned line;
    bool has[OPTIONS_MAX];
    struct err *err;
    bool failed;
};

static bool refuse(struct config_reader *reader)
{
    reader->failed = true;
    return err_context(reader->err, "%s:%u", reader->path, reader->line);
}

/* fgets for libinih, which also keeps count of the lines. */
static char *next_line(char *line, int size, void *context)
{
    struct config_reader *reader = context;
    size_t n = strcspn(reader->rest, "\n");
    if (!*reader->rest || reader->failed) return NULL;
    reader->line++;
    if (n > CONFIG_LINE_MAX || n + 2 > (size_t)size) {
        err_set(reader->err, ERR_USER, "a line of %zu bytes; the longest possible has %d", n, CONFIG_LINE_MAX);
        refuse(reader);
        return NULL;
    }
    memcpy(line, reader->rest, n);
    line[n] = 0;
    reader->rest += n + (reader->rest[n] == '\n');
    return line;
}

static int take_pair(void *context, const char *section, const char *name, const char *value)
{
    struct config_reader *reader = context;
    struct err *err = reader->err;
    if (reader->failed) return 0;
    const struct option *option = options_find(name);
    if (*section) {
        err_set(err, ERR_USER, "section [%s]: there are no sections, only lines of the form name = value", section);
        return refuse(reader);
    }
    if (!option) {
        err_set(err, ERR_USER, "there is no option '%s'; the nearest is '%s'", name,
                options_nearest(name, OPTIONS_OF_ALL));
        return refuse(reader);
    }
    if (strcmp(name, CONFIG_OPTION) == 0) {
        err_set(err, ERR_USER, "a configuration file cannot name another one; leave this line out");
        return refuse(reader);
    }
    if (reader->has[options_row(option)]) {
        err_set(err, ERR_USER, "'%s' was given before (or this line begins with blanks); leave one of them out", name);
        return refuse(reader);
    }
    reader->has[options_row(option)] = true;
    const char *kept = arena_text(&reader->settings->arena, value, strlen(value), err);
    if (!kept || !offer(reader->settings, option, reader->origin, kept, name, err)) return refuse(reader);
    return 1;
}

static bool read_config(struct settings *settings, struct alloc *alloc, struct file_system fs, const char *path,
                        enum origin origin, struct err *err)
{
    size_t bytes;
    struct config_reader reader = {.settings = settings, .path = path, .origin = origin, .err = err};
    char *text = file_read_all(alloc, fs, path, CONFIG_BYTES_MAX, &bytes, err);
    if (!text) {
        if (err->kind == ERR_DATA) err->kind = ERR_USER; /* no such file: a wrong option, not a damaged model */
        return err_context(err, origin == ORIGIN_PROFILE ? "profile" : "configuration");
    }
    reader.rest = text;
    if (strlen(text) != bytes) {
        reader.line = 1;
        err_set(err, ERR_USER, "not a text: it has a zero byte at offset %zu; write it anew", strlen(text));
        refuse(&reader);
    } else {
        int line = ini_parse_stream(next_line, &reader, take_pair, &reader);
        if (line > 0 && !reader.failed) {
            reader.line = (unsigned)line;
            err_set(err, ERR_USER, "not of the form name = value");
            refuse(&reader);
        }
    }
    alloc_put(alloc, text);
    return !reader.failed;
}

/* $XDG_CONFIG_HOME/weir/config.ini if there is one; NULL with err untouched if not. */
static const char *default_config(struct settings *settings, char *const *environment, struct err *err)
{
    const char *root = environment_get(environment, "XDG_CONFIG_HOME"), *home = environment_get(environment, "HOME");
    const char *middle = root ? "" : "/.config";
    char path[4096];
    if (!root) root = home;
    if (!root) return NULL;
    int n = snprintf(path, sizeof path, "%s%s/weir/config.ini", root, middle);
    if (n >= (int)sizeof path || access(path, F_OK) != 0) return NULL;
    return arena_text(&settings->arena, path, (size_t)n, err);
}

/* NULL when there is no home. */
static bool find_state_folder(struct settings *settings, char *const *environment, struct err *err)
{
    struct location place;
    struct err no_home = {0};
    if (!location_state(&place, environment, &no_home)) return true;
    settings->state_folder = arena_text(&settings->arena, place.path, strlen(place.path), err);
    return settings->state_folder != NULL;
}

static bool look_around(struct settings *settings, char *const *environment, struct err *err)
{
    const char *terminal = environment_get(environment, "TERM");
    settings->no_colour = environment_get(environment, "NO_COLOR") != NULL;
    settings->notify_socket = environment_get(environment, "NOTIFY_SOCKET");
    settings->dumb_terminal = !terminal || strcmp(terminal, "dumb") == 0;
    return find_state_folder(settings, environment, err);
}

static void store_defaults(struct settings *settings)
{
    struct err err = {0};
    for (size_t i = 0; i < options_count(); i++) {
        const struct option *option = options_at(i);
        if (!option->initial) continue;
        bool ok = options_store(option, settings, option->initial, option->name, &err);
        ASSERT(ok); /* the table's own defaults are in range */
    }
}

bool settings_read(struct settings *settings, struct operands *operands, struct alloc *alloc, unsigned command,
                   const struct settings_source *source, struct err *err)
{
    size_t n = 0;
    while (source->arguments[n]) n++;
    *settings = (struct settings){0};
    *operands = (struct operands){0};
    arena_init(&settings->arena, alloc, TEXTS_BYTES_MAX);
    store_defaults(settings);
    if (asks_for_help(source->arguments)) return operands->wants_help = true;

    operands->words = arena_get_array(&settings->arena, n + 1, sizeof *operands->words, err);
    if (!operands->words) goto fail;
    struct arguments args = {settings, operands, command, source->arguments};
    if (!read_arguments(&args, err)) goto fail;
    if (!read_environment(settings, source->environment, err)) goto fail;
    if (!look_around(settings, source->environment, err)) goto fail;

    struct err no_memory = {0};
    const char *path = settings->config ? settings->config : default_config(settings, source->environment, &no_memory);
    if (no_memory.kind) {
        *err = no_memory;
        goto fail;
    }
    settings->config_path = path;
    if (path && !read_config(settings, alloc, source->fs, path, ORIGIN_CONFIG, err)) goto fail;
    return true;
fail:
    settings_fini(settings);
    return false;
}

bool settings_add_profile(struct settings *settings, struct alloc *alloc, struct file_system fs, const char *path,
                          struct err *err)
{
    settings->profile_path = arena_text(&settings->arena, path, strlen(path), err);
    return settings->profile_path && read_config(settings, alloc, fs, settings->profile_path, ORIGIN_PROFILE, err);
}

void settings_fini(struct settings *settings)
{
    arena_fini(&settings->arena);
}

enum origin settings_origin(const struct settings *settings, const char *option)
{
    const struct option *row = options_find(option);
    ASSERT(row);
    return settings->origin[options_row(row)];
}
