#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(char *out, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(out, size, format, args);
    if (n >= (int)size) memcpy(out + size - 4, "...", 4);
}

bool err_set(struct err *err, enum err_kind kind, const char *format, ...)
{
    if (!err) return false;
    va_list args;
    va_start(args, format);
    err->kind = kind;
    fill(err->text, sizeof err->text, format, args);
    va_end(args);
    return false;
}

bool err_context(struct err *err, const char *format, ...)
{
    if (!err) return false;
    char front[sizeof err->text];
    va_list args;
    va_start(args, format);
    fill(front, sizeof front, format, args);
    va_end(args);

    /* Put "front: " before the old text, which gives way at its end when both do not fit. */
    size_t used = strlen(front), kept = strlen(err->text);
    if (used + 2 >= sizeof front) return false; /* no room for context: the fact itself matters more */
    if (kept > sizeof front - used - 3) kept = sizeof front - used - 3;
    memmove(err->text + used + 2, err->text, kept);
    memcpy(err->text, front, used);
    memcpy(err->text + used, ": ", 2);
    err->text[used + 2 + kept] = 0;
    return false;
}
