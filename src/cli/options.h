#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H
/* The options: one table (in options.c) is the only place where an option exists.
 *
 * It makes the parser, the range check, the help, the environment names (WEIR_RAM_BUDGET for ram-budget) and the keys
 * of the configuration file (the plain names). README.md in this folder says how to add one. */
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_FLAG,    /* --json, --json=off */
    OPTION_COUNT,   /* whole number, decimal or 0x hexadecimal */
    OPTION_BYTES,   /* 20G */
    OPTION_SECONDS, /* 300, 5m */
    OPTION_NUMBER,  /* decimal fraction */
    OPTION_CHOICE,  /* one of the names in choices */
    OPTION_TEXT,
    OPTION_TEXTS, /* may be given more than once on the command line */
};

enum { OPTIONS_MAX = 128, OPTION_CHOICES_MAX = 8, OPTION_TEXTS_MAX = 16 };

/* The values of an option that may be repeated, in order. */
struct option_texts {
    const char *text[OPTION_TEXTS_MAX];
    size_t n;
};

struct option {
    const char *name; /* without dashes */
    enum option_type type;
    size_t offset;                 /* of the field in struct settings */
    uint64_t min, max;             /* inclusive; count, bytes, seconds */
    double number_min, number_max; /* the same for numbers */
    const char *initial; /* the default as a person would write it; a word such as "auto" is accepted as a value
                            too; NULL: none, for texts */
    const char *choices[OPTION_CHOICES_MAX + 1];
    const char *value_name; /* what stands for the value in the help; NULL for flags and choices */
    uint64_t commands;      /* bit c set: has an effect on command c (enum command_id) */
    const char *help;
};

size_t options_count(void);
const struct option *options_at(size_t row);
const struct option *options_find(const char *name); /* NULL: there is none */
size_t options_row(const struct option *option);

/* The name nearest to a wrong one, among the options that have an effect on one of the commands. */
#define OPTIONS_OF_ALL UINT64_MAX
const char *options_nearest(const char *name, uint64_t commands);

/* Checks the text and stores the value in its field of `values` (a struct settings). `where` names the source for the
 * message ("--seed"). A text value is borrowed. */
bool options_store(const struct option *option, void *values, const char *text, const char *where,
                   struct err *err) MUST_CHECK;

/* The word that a choice has in `values`. */
const char *options_word(const char *name, const void *values);

enum { OPTION_ENVIRONMENT_NAME_MAX = 64 };
const char *options_environment_name(const struct option *option, char name[OPTION_ENVIRONMENT_NAME_MAX]);

#endif
