#ifndef CLI_MANUAL_H
#define CLI_MANUAL_H
/* The manual pages weir(1) and weir-config(5) in the macros of man(7), made from the tables of commands and options
 * like the help. */
#include <stdio.h>

void manual_print(FILE *out);
void manual_print_config(FILE *out);

#endif
