#ifndef CLI_ANSWER_PRINT_H
#define CLI_ANSWER_PRINT_H
/* An answer on its way to a person or a pipe, as it is generated.
 *
 * On a terminal reasoning stands in front of the answer, dimmed where colours are wanted, and nothing that the model
 * writes can control the terminal. Elsewhere content alone goes out, byte for byte, and reasoning goes to the log. */
#include "cli/commands.h"
#include "run/dialogue.h"

struct answer_print {
    FILE *out, *log;
    bool is_terminal, has_colour;
    bool in_reasoning;
    char last; /* byte of content that was printed; 0: none */
};

void answer_print_init(struct answer_print *print, const struct command_context *context);

/* An answer_fn, with the struct answer_print as its context. */
bool answer_print_event(void *print, const struct answer_event *event, struct err *err);

/* Ends the line, and makes ready for the next answer. */
void answer_print_end(struct answer_print *print);

/* One line about an answer for people: times, rates, memory. */
void answer_print_facts(FILE *log, const struct dialogue_result *result);

/* A rate; 0 when no time passed. */
double answer_print_rate(uint32_t n_tokens, int64_t ns);

#endif
