#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H
/* The commands: one list is the only place where a command exists.
 *
 * A command is a function command_NAME in command_NAME.c. It gets its checked settings and its operands, writes results
 * to context->out and everything else to context->log, and returns an exit code, most simply by
 * `return command_fail(context, &err)`. It never ends the process. README.md in this folder says how to add one. */
#include "base/alloc.h"
#include "cli/settings.h"
#include "plat/file.h"
#include <stdio.h>

enum { MODELS_MAX = 16 }; /* of one command */

/* X(ID, name, alias or NULL, operands as the usage line shows them, least and most of them, purpose) in the order of
 * the overview. The purpose is a sentence without its full stop. */
/* clang-format off */
#define COMMAND_LIST(X) \
    X(GENERATE, generate, "gen", "MODEL [PROMPT]", 1, 2, "Answer a prompt") \
    X(CHAT, chat, NULL, "MODEL", 1, 1, "Talk with a model") \
    X(FIT, fit, NULL, "MODEL", 1, 1, "Show what the model needs in memory and how it would run here") \
    X(SERVE, serve, NULL, "MODEL...", 1, MODELS_MAX, "Answer OpenAI and Anthropic clients over HTTP") \
    X(SCORE, score, NULL, "MODEL", 1, 1, "Tell how likely a model finds a text, token by token") \
    X(TOKENIZE, tokenize, NULL, "MODEL|tokenizer.json [TEXT]", 1, 2, "Turn text into token ids, or ids into text") \
    X(TEMPLATE, template, NULL, "MODEL|tokenizer.json [PROMPT]", 1, 2, "Show the prompt that a conversation becomes") \
    X(INSPECT, inspect, "show", "MODEL", 1, 1, "Check a model's headers and tell what it holds") \
    X(VERIFY, verify, NULL, "MODEL", 1, 1, "Read all of a model and check it: checksums, scales, values") \
    X(GET, get, "pull", "REPO", 1, 1, "Fetch a model from a hub, or go on fetching it") \
    X(SCAN, scan, NULL, "[DIR...]", 0, 1000, "Find models in the hub cache, in DIR and in folders of earlier scans") \
    X(MODELS, models, "list", "", 0, 0, "List the models that were found or fetched") \
    X(CONVERT, convert, NULL, "SOURCE DEST", 2, 2, "Make an int4 container in DEST from the checkpoint in SOURCE") \
    X(BENCH, bench, NULL, "disk|memory|engine|batch|prefill|decode|draft MODEL | kernels [NAME]", 1, 2, \
      "Measure how fast this machine runs a model, and what it could reach") \
    X(TUNE, tune, NULL, "MODEL", 1, 1, "Find and save the settings that run a model fastest on this machine") \
    X(DOCTOR, doctor, NULL, "[MODEL]", 0, 1, \
      "Tell whether this machine would run weir, or a model, well, and what to change; exits with 0 only if it would") \
    X(SELFTEST, selftest, NULL, "", 0, 0, "Make a small model, run, serve, kill and restore it, and compare every bit") \
    X(COMPLETION, completion, NULL, "bash|zsh|fish", 1, 1, "Print a script that lets a shell complete command lines") \
    X(TRACE, trace, NULL, "record MODEL FILE | replay FILE | compare FILE", 2, 3, \
      "Record which experts a model chooses, and tell what residency policies make of it") \
    X(HELP, help, NULL, "[COMMAND]", 0, 1, "Explain a command and its options") \
    X(VERSION, version, NULL, "", 0, 0, "Print version, build and this machine's instruction sets")
/* clang-format on */

enum command_id {
#define X(id, name, alias, operands, least, most, purpose) COMMAND_##id,
    COMMAND_LIST(X)
#undef X
        COMMAND_COUNT
};

struct command_context;

struct command {
    enum command_id id;
    const char *name, *alias; /* alias may be NULL */
    const char *operands;     /* "MODEL [PROMPT]" */
    size_t n_operands_min, n_operands_max;
    const char *purpose;
    int (*run)(struct command_context *context);
};

struct command_context {
    const struct command *command;
    const struct settings *settings;
    const char *const *operands; /* [n_operands], as many as the command's row allows */
    size_t n_operands;
    struct alloc *alloc;
    struct file_system fs;
    char *const *environment; /* up to a NULL; cli/environment.h */
    FILE *out;                /* results and nothing else */
    FILE *log;                /* stderr */
};

#define X(id, name, alias, operands, least, most, purpose) int command_##name(struct command_context *context);
COMMAND_LIST(X)
#undef X

enum exit_code {
    EXIT_CODE_DONE = 0,
    EXIT_CODE_FAILED = 1,
    EXIT_CODE_USAGE = 2,
    EXIT_CODE_FIT = 3,
    EXIT_CODE_DATA = 4,
    EXIT_CODE_NETWORK = 6,
    EXIT_CODE_INTERRUPTED = 130, /* 128 + SIGINT */
};

enum exit_code commands_exit_code(enum err_kind kind);

/* Version and commit of this program. */
const char *version_text(void);

/* Prints `weir: message` to the log and returns the exit code of its kind. */
int commands_fail(FILE *log, const struct err *err);
int command_fail(const struct command_context *context, const struct err *err);

const struct command *commands_at(enum command_id id);

/* By name or alias; on failure the message tells the nearest one. */
const struct command *commands_find(const char *name, struct err *err);

#endif
