#ifndef CLI_ANSWER_PRINT_H
#define CLI_ANSWER_PRINT_H
/* An answer on its way to a person or a pipe, as it is generated.
 *
 * On a terminal reasoning stands in front of the answer, dimmed where colours are wanted, and nothing that the model
 * writes can control the terminal. Elsewhere content alone goes out, byte for byte, and reasoning goes to the log. */
#include "cli/commands.h"
#include "weir/weir.h"

struct answer_print {
    FILE *out, *log;
    bool is_terminal, has_colour;
    bool in_reasoning;
    bool log_is_terminal, has_progress; /* has_progress: a line of it stands on the terminal */
    uint32_t n_told;                    /* tokens of the prompt, in that line */
    char last;                          /* byte of content that was printed; 0: none */
};

void answer_print_init(struct answer_print *print, const struct command_context *context);

/* Text and reasoning as they come; and, on a terminal, how much of a long prompt has been read. False: the output takes
 * no more, and errno tells why. */
bool answer_print_event(struct answer_print *print, const struct weir_event *event) MUST_CHECK;

/* Ends the line, and makes ready for the next answer; of an answer that failed, only takes the progress away. */
void answer_print_end(struct answer_print *print);
void answer_print_progress_end(struct answer_print *print);

/* One line about an answer for people: times, rates, memory; and, of an engine that streams, what it has read so far
 * (engine NULL: leave that out). */
void answer_print_facts(FILE *log, const struct weir_result *result, struct weir_engine *engine);

/* A rate; 0 when no time passed. */
double answer_print_rate(uint32_t n_tokens, int64_t ns);

#endif
