#include "cli/standard_input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool input_read(struct buf *input, int stop, struct err *err)
{
    int c;
    buf_clear(input);
    while ((c = getc_unlocked(stdin)) != EOF) {
        if (!buf_add_char(input, (char)c, err)) return err_context(err, "standard input");
        if (c == stop) break;
    }
    return !ferror(stdin) || err_set(err, ERR_IO, "standard input: %s", strerror(errno));
}
