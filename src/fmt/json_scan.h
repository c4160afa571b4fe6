#ifndef FMT_JSON_SCAN_H
#define FMT_JSON_SCAN_H
/* A strict reader of JSON text, front to back, without a tree.
 *
 * It exists for what a general parser hides: duplicate keys, numbers that a double cannot hold, and how much memory a
 * hostile file can make us take. It allocates nothing. The text need not end with a NUL. After a failure the scan is
 * over: the message names the file and the byte, and nothing more may be read. Owned by one thread. */
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 64 }; /* nesting that any file of ours may have */

struct json_scan {
    const char *name; /* of the file, for messages */
    const char *text;
    size_t bytes, at;
    size_t origin; /* where text[0] lies in the file, for messages */
};

/* Refuses text that is not UTF-8 or that holds a NUL. */
bool json_scan_init(struct json_scan *scan, const char *name, const char *text, size_t bytes, size_t origin,
                    struct err *err) MUST_CHECK;

/* The next byte behind white space, not taken; 0 at the end. */
char json_scan_peek(struct json_scan *scan);

/* Takes exactly this punctuation mark. */
bool json_scan_mark(struct json_scan *scan, char mark, struct err *err) MUST_CHECK;

/* Steps through the members of an object or the elements of an array, whose opening mark was taken: *more is false when
 * the closing mark was taken instead. `first` starts as true and is kept by the caller. */
bool json_scan_next(struct json_scan *scan, char close, bool *first, bool *more, struct err *err) MUST_CHECK;

/* Takes a string and gives its value, escapes resolved, to out with a NUL behind it; *out_bytes may be NULL. A value
 * that holds U+0000 or a lone surrogate, or does not fit, is refused. */
bool json_scan_string(struct json_scan *scan, char *out, size_t room, size_t *out_bytes, struct err *err) MUST_CHECK;

/* Takes a string like json_scan_string and the colon behind it. */
bool json_scan_key(struct json_scan *scan, char *out, size_t room, struct err *err) MUST_CHECK;

/* Takes an integer of digits only, at most 2^53. */
bool json_scan_whole(struct json_scan *scan, uint64_t *out, struct err *err) MUST_CHECK;

/* Takes any value, checking its grammar, and refuses nesting below JSON_DEPTH_MAX. */
bool json_scan_skip(struct json_scan *scan, struct err *err) MUST_CHECK;

/* Refuses anything but white space in what is left. */
bool json_scan_end(struct json_scan *scan, struct err *err) MUST_CHECK;

/* Fails at the current byte: "NAME: byte AT: <what>". Returns false. */
bool json_scan_fail(const struct json_scan *scan, struct err *err, const char *what);

#endif
