#ifndef CLI_ANSWER_SETTINGS_H
#define CLI_ANSWER_SETTINGS_H
/* How to answer, from the settings of a command: sampling, the key of the draws, thinking. */
#include "cli/commands.h"
#include "fmt/chat_template.h"
#include "run/sampling.h"

struct answer_settings {
    struct sampling sampling; /* complete and checked; points into this struct, which therefore stays where it is */
    struct stop_string stop[OPTION_TEXTS_MAX];
    uint64_t key;
    bool has_seed; /* the key is the seed; else it came from the system */
    struct chat_options chat;
};

/* The command line over `defaults` (complete), checked against the rows of the head and the ids that have a token. */
bool answer_settings_init(struct answer_settings *answer, const struct command_context *context,
                          const struct sampling *defaults, uint32_t n_logits, uint32_t n_tokens,
                          struct err *err) MUST_CHECK;

#endif
