#ifndef CLI_MANUAL_H
#define CLI_MANUAL_H
/* The manual page weir(1) in the macros of man(7), made from the tables of commands and options like the help. */
#include <stdio.h>

void manual_print(FILE *out);

#endif
