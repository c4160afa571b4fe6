#ifndef CLI_TYPED_LINES_H
#define CLI_TYPED_LINES_H
/* What somebody types, line by line.
 *
 * On a terminal with line editing and a history that outlives the program; a text that is pasted stays one input, line
 * breaks and all. From a pipe plain lines. In both a backslash at the end of a line joins it with the next one, and the
 * line break stays.
 *
 * Main thread, which ignores SIGINT meanwhile: on a terminal Ctrl-C is a key here. While nothing is read the terminal
 * is as it was found. */
#include "base/buf.h"
#include <stdio.h>

struct typed_lines;

struct typed_lines_setup {
    FILE *in, *out, *log;
    bool is_terminal;         /* in and out are one, and it can edit */
    const char *state_folder; /* for the history; NULL: none is kept */
};

bool typed_lines_new(struct typed_lines **lines, struct alloc *alloc, const struct typed_lines_setup *setup,
                     struct err *err) MUST_CHECK;
void typed_lines_free(struct typed_lines *lines); /* NULL is fine */

enum typed { TYPED_LINE, TYPED_NOTHING, TYPED_END }; /* NOTHING: Ctrl-C took the line back */

/* Replaces what is in `out` by the next input, without the end of its last line. What is not UTF-8 becomes U+FFFD. */
bool typed_lines_read(struct typed_lines *lines, struct buf *out, enum typed *typed, struct err *err) MUST_CHECK;

#endif
