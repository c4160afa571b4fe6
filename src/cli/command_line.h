#ifndef CLI_COMMAND_LINE_H
#define CLI_COMMAND_LINE_H
/* The program but its process: which command the words name, its settings, its model, and its exit code. */
#include <stdio.h>

/* argv and environment each end with a NULL. Results go to out, everything else to log. Returns the exit code. */
int command_line_run(char *const *argv, char *const *environment, FILE *out, FILE *log);

#endif
