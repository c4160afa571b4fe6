#ifndef BASE_UNITS_H
#define BASE_UNITS_H
/* Byte sizes and times as people write and read them. Pure functions. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "4096", "512M", "20G", "20GiB", "1.5T": K M G T alone or with iB count in powers of 1024, with B in powers of 1000.
 * False when the text is anything else or the size does not fit in 64 bits; *bytes is then untouched. */
bool units_parse_bytes(const char *text, uint64_t *bytes);

/* Seconds: "300", "300s", "5m", "2h", "1d". */
bool units_parse_seconds(const char *text, uint64_t *seconds);

enum { UNITS_TEXT_MAX = 32 };

/* "512 B", "1.5 KiB", "357.2 GiB", into text, which is returned. */
const char *units_format_bytes(char text[UNITS_TEXT_MAX], uint64_t bytes);

#endif
