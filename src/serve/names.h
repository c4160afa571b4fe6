#ifndef SERVE_NAMES_H
#define SERVE_NAMES_H
/* Fresh identifiers that nobody can guess: "chatcmpl-" and 24 letters or digits. Any thread. */
#include <stddef.h>

enum { NAME_BYTES = 48 };

/* The prefix has at most 20 characters. Returns `name`. */
const char *name_fresh(char name[NAME_BYTES], const char *prefix);

#endif
