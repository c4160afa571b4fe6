#ifndef BASE_BANNED_H
#define BASE_BANNED_H
/* Calls that do not compile under src/. The build puts this header in front of every file there.
 *
 * Some are banned everywhere, because a better one exists; some outside their one home, which the list BANNED_HOMES in
 * CMakeLists.txt allows with BANNED_ALLOW_name. The ban is a redeclaration, so it sees every use, addresses included,
 * and leaves the system's own headers alone. */
#pragma GCC diagnostic error "-Wdeprecated-declarations"

#define BANNED(advice) __attribute__((deprecated("banned here: " advice)))

#include <stddef.h>

char *strcpy(char *restrict, const char *restrict) BANNED("memcpy or snprintf, with a size");
char *strcat(char *restrict, const char *restrict) BANNED("struct buf or snprintf, with a size");
char *strncpy(char *restrict, const char *restrict, size_t) BANNED("it leaves texts without their end; snprintf");
char *strncat(char *restrict, const char *restrict, size_t) BANNED("struct buf or snprintf");
int sprintf(char *restrict, const char *restrict, ...) BANNED("snprintf");
char *strtok(char *restrict, const char *restrict) BANNED("it has hidden state; strcspn and strspn");
int atoi(const char *) BANNED("it cannot tell an error; strtoull with its end checked");
long atol(const char *) BANNED("it cannot tell an error; strtoull with its end checked");
double atof(const char *) BANNED("it cannot tell an error; strtod with its end checked");

/* In front of the system headers stand those that these define inline. */
#ifndef BANNED_ALLOW_printf
int printf(const char *restrict, ...) BANNED("only the command line prints, to the stream that it was given");
int puts(const char *) BANNED("only the command line prints, to the stream that it was given");
int putchar(int) BANNED("only the command line prints, to the stream that it was given");
#endif

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tm *gmtime(const time_t *) BANNED("it shares its answer between threads; gmtime_r");
struct tm *localtime(const time_t *) BANNED("it shares its answer between threads; localtime_r");

#ifndef BANNED_ALLOW_malloc
void *malloc(size_t) BANNED("memory comes from struct alloc or struct arena");
void *calloc(size_t, size_t) BANNED("memory comes from struct alloc or struct arena");
void *realloc(void *, size_t) BANNED("memory comes from struct alloc or struct arena");
void *aligned_alloc(size_t, size_t) BANNED("memory comes from struct alloc or struct arena");
char *strdup(const char *) BANNED("memory comes from struct alloc or struct arena");
void free(void *) BANNED("memory goes back by alloc_put");
#endif

#ifndef BANNED_ALLOW_getenv
char *getenv(const char *) BANNED("settings come from struct settings");
#endif

#ifndef BANNED_ALLOW_exit
_Noreturn void exit(int) BANNED("only main ends the process; report through struct err");
_Noreturn void _exit(int) BANNED("only main ends the process; report through struct err");
#endif

#endif
