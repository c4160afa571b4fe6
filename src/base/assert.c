#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void assert_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "weir: %s:%d: internal error, please report: this must hold: %s\n", file, line, condition);
    abort();
}
