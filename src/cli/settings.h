#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H
/* The values of all options, and how they are collected.
 *
 * Precedence: command line, then WEIR_ environment, then configuration file, then the model's profile (cli/profile.h),
 * then the default in the option table. Every value given anywhere is checked, also one that a stronger source
 * overrides and one that this command does not use. On the command line an option without effect on the command is an
 * error; environment and configuration are shared by all commands, so there only the name and the value must be right.
 *
 * Filled once, before any thread starts; read-only from then on. Texts live until settings_fini. */
#include "base/arena.h"
#include "cli/options.h"
#include "plat/file.h"

enum origin { ORIGIN_DEFAULT, ORIGIN_PROFILE, ORIGIN_CONFIG, ORIGIN_ENVIRONMENT, ORIGIN_COMMAND_LINE };

/* A number whose option was left at its word (such as `auto`) instead of a value. */
#define SETTING_WORD UINT64_MAX

/* One field for each row of the table in options.c:
 *   flag bool; count, bytes and seconds uint64_t (SETTING_WORD: the word); number double (NAN: the word);
 *   choice unsigned (index); text const char * (NULL: none); a text that may be repeated struct option_texts. */
struct settings {
    bool tensors;
    bool json;
    const char *config;
    bool decode;
    unsigned special;
    unsigned thinking;
    const char *ids, *ids_file;
    const char *prompt, *prompt_file, *text_file, *system;
    bool raw, ignore_eos;
    unsigned effort;
    uint64_t top, max_tokens, seed, top_k;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    struct option_texts stop;
    const char *dump_logits, *dump_trace;
    uint64_t threads, context_length;
    const char *cpu_mask;
    double latent_norm_eps;
    uint64_t ram_budget_bytes, prompt_cache_bytes, prefill_chunk, io_depth;
    const char *experts_resident, *policy;
    unsigned numerics, kv, direct_io, prefetch, usage_history;
    struct option_texts mirror;
    const char *usage_import;
    unsigned mtp, draft;
    uint64_t num_draft_tokens, ngram_min, ngram_max;
    const char *slots;
    bool machines;
    uint64_t disk_rate_bytes;
    const char *sizes, *throttle, *hits;
    uint64_t depth, sequences, runs;
    const char *passes;
    unsigned bits, expert_bits, io_bits;
    uint64_t group, shard_bytes;
    bool keep_mtp_indexer;
    const char *revision, *include, *exclude;
    bool dry_run;
    const char *host, *api_key_file, *alias;
    struct option_texts cors_origins, allowed_hosts;
    uint64_t port, max_connections, max_per_client, max_queue, queue_timeout_s, max_body_bytes, batch, drain_time_s,
        keep_alive_s, keep_alive_whole_s;
    unsigned reasoning_field;
    uint64_t decode_stall_s, model_pool;
    const char *ssd_cache;
    uint64_t ssd_cache_max_bytes, demote_idle_s;
    bool strict_model, strict_fields, print_config, isolate;
    bool man;
    const char *only;
    unsigned profile;

    /* From the environment alone. */
    const char *notify_socket; /* NOTIFY_SOCKET: where a service manager listens; NULL: nowhere */
    const char *state_folder;  /* where weir keeps what it remembers, such as what was typed; NULL: nowhere */
    bool no_colour;            /* NO_COLOR is set and not empty */
    bool dumb_terminal;        /* TERM is `dumb` or missing: no colours, no line editing */

    uint8_t origin[OPTIONS_MAX]; /* enum origin, by row of the option table */
    const char *config_path;     /* the file that was read, or NULL */
    const char *profile_path;    /* likewise, of the model */
    struct arena arena;
};

/* What a command line is made of: argv behind the command's name, and the environment, each up to a NULL. */
struct settings_source {
    char *const *arguments;
    char *const *environment;
    struct file_system fs;
};

/* What settings_read leaves over: everything that is not an option, in order. Room for all arguments. */
struct operands {
    const char **words;
    size_t n_words;
    bool wants_help; /* --help or -h was among the options */
};

/* `command`: one bit of options' commands masks. When wants_help is set nothing else was checked. */
bool settings_read(struct settings *settings, struct operands *operands, struct alloc *alloc, unsigned command,
                   const struct settings_source *source, struct err *err) MUST_CHECK;
/* Lays a file with name = value lines under everything that was given: only defaults give way. */
bool settings_add_profile(struct settings *settings, struct alloc *alloc, struct file_system fs, const char *path,
                          struct err *err) MUST_CHECK;

void settings_fini(struct settings *settings); /* safe twice and after a failed read */

enum origin settings_origin(const struct settings *settings, const char *option);

#endif
