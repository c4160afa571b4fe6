#ifndef CLI_OPEN_TOKENIZER_H
#define CLI_OPEN_TOKENIZER_H
/* What commands that need a tokenizer and no model have in common: opening it, and reading standard input. */
#include "base/buf.h"
#include "cli/commands.h"
#include "fmt/tokenizer.h"

/* The command's first operand: a folder that holds a tokenizer.json, or such a file itself. */
bool open_tokenizer(struct tokenizer **tokenizer, const struct command_context *context, struct err *err) MUST_CHECK;
bool open_tokenizer_is_folder(const struct command_context *context);

/* Replaces what is in `input` by standard input up to and with the next byte `stop`, or to the end for EOF. Nothing is
 * in it at the end. */
bool input_read(struct buf *input, int stop, struct err *err) MUST_CHECK;

#endif
