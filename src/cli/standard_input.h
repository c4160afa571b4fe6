#ifndef CLI_STANDARD_INPUT_H
#define CLI_STANDARD_INPUT_H
/* Standard input, whole or in lines. */
#include "base/buf.h"

/* Replaces what is in `input` by standard input up to and with the next byte `stop`, or to the end for EOF. Nothing is
 * in it at the end. */
bool input_read(struct buf *input, int stop, struct err *err) MUST_CHECK;

#endif
