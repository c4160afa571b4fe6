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
    bool log_is_terminal, has_progress; /* has_progress: a line of it stands on the terminal */
    char last;                          /* byte of content that was printed; 0: none */
};

void answer_print_init(struct answer_print *print, const struct command_context *context);

/* An answer_fn, with the struct answer_print as its context. */
bool answer_print_event(void *print, const struct answer_event *event, struct err *err);

/* Ends the line, and makes ready for the next answer. */
void answer_print_end(struct answer_print *print);

/* One line about an answer for people: times, rates, memory; and, of an engine that streams, what it has read so far
 * (engine NULL: leave that out). */
void answer_print_facts(FILE *log, const struct dialogue_result *result, struct engine *engine);

/* The experts of an engine that streams, since it was opened. */
struct answer_residency {
    uint64_t n_hits, n_misses; /* wants that found their expert in memory; that had to wait for the disk */
    uint64_t bytes_read;
    double waited_s;
};
bool answer_print_residency(struct answer_residency *out, struct engine *engine); /* false: it does not stream */

/* How much of a prompt has been read: a line on a terminal, until the end. A progress function of struct
 * dialogue_request, with the struct answer_print as its context. */
void answer_print_progress(void *print, uint32_t n_read, uint32_t n_prompt);
void answer_print_progress_end(struct answer_print *print);

/* A rate; 0 when no time passed. */
double answer_print_rate(uint32_t n_tokens, int64_t ns);

#endif
