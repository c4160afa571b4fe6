#ifndef SUPPORT_PROGRAM_H
#define SUPPORT_PROGRAM_H
/* The whole program inside a test's process: arguments and environment in, exit code and both streams out. */
#include <stdbool.h>

enum { PROGRAM_WORDS_MAX = 24, PROGRAM_VARIABLES_MAX = 16 };

struct program {
    char *environment[PROGRAM_VARIABLES_MAX + 1];
    unsigned n_variables;
    int code;
    char *out, *log; /* of the last run */
};

/* Replaces a variable of this name. "" takes it away. */
void program_set(struct program *program, const char *name, const char *value);
void program_fini(struct program *program);

/* Words up to a NULL, without the program's own name. */
int program_run(struct program *program, const char *const *words);
#define PROGRAM_RUN(program, ...) program_run(program, (const char *const[]){__VA_ARGS__, 0})

/* Stops the test unless the last run ended with this code and its streams hold these texts. */
void program_expect(const struct program *program, int code, const char *out, const char *log);

/* The same run in a child that is killed at the k-th system call of its first thread, from 1 on: a moment that does not
 * depend on how fast the machine is. True: it was killed; false: it ended before, with exit code 0. */
bool program_run_killed(const struct program *program, const char *const *words, unsigned k);

/* How many system calls the first thread makes in a run that nobody disturbs. */
unsigned program_count_calls(const struct program *program, const char *const *words);
#endif
