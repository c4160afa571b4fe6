#ifndef CLI_PROMPT_TEXT_H
#define CLI_PROMPT_TEXT_H
/* Texts that people give: as an argument, in a file, or piped in.
 *
 * Bytes of an argument may come from anywhere, so that what is not UTF-8 in it becomes U+FFFD; in a file or a pipe it
 * is a mistake that is reported with its place. */
#include "base/buf.h"
#include "cli/commands.h"

enum { PROMPT_BYTES_MAX = 64 << 20 };

/* The prompt of a command, from exactly one of: its second operand, --prompt, --prompt-file, or standard input, which
 * "-" stands for and which is read when nothing else is given and it is no terminal. Fills `out`, which is empty.
 * *is_typed: it was an argument; else it may end with the end of its last line. */
bool prompt_text_read(struct buf *out, bool *is_typed, const struct command_context *context,
                      struct err *err) MUST_CHECK;

/* The text of a file, or of standard input for "-", into `out`, which is empty. */
bool prompt_text_of_file(struct buf *out, const struct command_context *context, const char *path,
                         struct err *err) MUST_CHECK;

/* Appends an argument. */
bool prompt_text_of_argument(struct buf *out, const char *text, struct err *err) MUST_CHECK;

#endif
