#include "serve/names.h"

#include "base/assert.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum { LETTERS = 24 };

const char *name_fresh(char name[NAME_BYTES], const char *prefix)
{
    static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned char bytes[LETTERS];
    size_t n_prefix = strlen(prefix);
    ssize_t n;
    ASSERT(n_prefix + LETTERS < NAME_BYTES);
    do n = getrandom(bytes, sizeof bytes, 0);
    while (n < 0 && errno == EINTR);
    ASSERT(n == (ssize_t)sizeof bytes); /* the kernel gives up to 256 bytes whole once it has started */
    memcpy(name, prefix, n_prefix);
    for (size_t i = 0; i < LETTERS; i++) name[n_prefix + i] = alphabet[bytes[i] % (sizeof alphabet - 1)];
    name[n_prefix + LETTERS] = 0;
    return name;
}
