#include "cli/config_print.h"

#include <inttypes.h>
#include <math.h>

static void print_value(FILE *out, const struct option *option, const void *field)
{
    uint64_t whole;
    double number;
    const char *text;
    switch (option->type) {
    case OPTION_FLAG: fprintf(out, "%s", *(const bool *)field ? "on" : "off"); return;
    case OPTION_CHOICE: fprintf(out, "%s", option->choices[*(const unsigned *)field]); return;
    case OPTION_NUMBER:
        number = *(const double *)field;
        if (isnan(number))
            fprintf(out, "%s", option->initial);
        else
            fprintf(out, "%g", number);
        return;
    case OPTION_TEXT:
        text = *(const char *const *)field;
        fprintf(out, "%s", text ? text : "");
        return;
    case OPTION_TEXTS:
        for (size_t i = 0; i < ((const struct option_texts *)field)->n; i++)
            fprintf(out, "%s%s", i ? ", " : "", ((const struct option_texts *)field)->text[i]);
        return;
    case OPTION_COUNT:
    case OPTION_BYTES:
    case OPTION_SECONDS:
        whole = *(const uint64_t *)field;
        if (whole == SETTING_WORD)
            fprintf(out, "%s", option->initial);
        else
            fprintf(out, "%" PRIu64, whole);
        return;
    }
}

static void print_origin(FILE *out, const struct settings *settings, const struct option *option)
{
    char name[OPTION_ENVIRONMENT_NAME_MAX];
    switch (settings_origin(settings, option->name)) {
    case ORIGIN_DEFAULT: fprintf(out, "default"); return;
    case ORIGIN_PROFILE: fprintf(out, "%s", settings->profile_path); return;
    case ORIGIN_CONFIG: fprintf(out, "%s", settings->config_path); return;
    case ORIGIN_ENVIRONMENT: fprintf(out, "%s", options_environment_name(option, name)); return;
    case ORIGIN_COMMAND_LINE: fprintf(out, "command line"); return;
    }
}

void config_print_profile(FILE *out, const struct settings *settings)
{
    const char *parting = "";
    for (size_t i = 0; i < options_count(); i++) {
        const struct option *option = options_at(i);
        if (settings_origin(settings, option->name) != ORIGIN_PROFILE) continue;
        fprintf(out, "%s%s = ", parting, option->name);
        print_value(out, option, (const char *)settings + option->offset);
        parting = ", ";
    }
}

void config_print(FILE *out, const struct settings *settings, enum command_id command)
{
    for (size_t i = 0; i < options_count(); i++) {
        const struct option *option = options_at(i);
        if (!(option->commands >> command & 1)) continue;
        fprintf(out, "%s = ", option->name);
        print_value(out, option, (const char *)settings + option->offset);
        fprintf(out, "  ; ");
        print_origin(out, settings, option);
        fprintf(out, "\n");
    }
}
