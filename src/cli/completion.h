#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H
/* What a shell needs to complete command lines, made from the tables of commands and options. */
#include "base/err.h"
#include <stdio.h>

/* `shell`: bash, zsh or fish; any other is ERR_USER and tells the nearest. */
bool completion_print(FILE *out, const char *shell, struct err *err) MUST_CHECK;

#endif
