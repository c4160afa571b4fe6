#ifndef BASE_ERR_H
#define BASE_ERR_H
/* The one error idiom: a function that can fail returns bool and fills a struct err, its last parameter.
 *
 * The message is written once, where the fact is known: which file, which offset, what was expected, what was found,
 * what to do. Callers may put context in front, never replace it. The caller owns the struct; err_set never allocates,
 * so it works when memory is what ran out. Not shared between threads. */
#include <stdbool.h>
#include <stdint.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

enum err_kind {
    ERR_NONE,
    ERR_FAILED,    /* failed while running, for a reason that is none of the below */
    ERR_USER,      /* the request or the command line is wrong */
    ERR_FIT,       /* the memory plan does not fit */
    ERR_DATA,      /* a file is damaged, incomplete or of a kind that is not supported */
    ERR_IO,        /* the operating system could not read or write */
    ERR_NOMEM,     /* an allocation failed */
    ERR_BUSY,      /* a bound was reached; trying again later can work */
    ERR_CANCELLED, /* somebody asked for it to stop */
    ERR_NETWORK,
};

struct err {
    enum err_kind kind;
    char text[1024]; /* one line, no final full stop; cut (visibly) when longer */
};

/* Both return false always, so that `return err_set(...)` reads as what it does. A NULL err is allowed. */
bool err_set(struct err *err, enum err_kind kind, const char *format, ...) PRINTF_LIKE(3, 4);
bool err_context(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
