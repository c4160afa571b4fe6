#ifndef CONVERT_DIGEST_H
#define CONVERT_DIGEST_H
/* SHA-256, in pieces, as lower-case hexadecimal. */
#include "base/err.h"
#include "plat/file.h"
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_TEXT = 65 }; /* 64 digits and a NUL */

struct digest {
    void *state;
};

bool digest_init(struct digest *digest, struct err *err) MUST_CHECK;
bool digest_add(struct digest *digest, const void *data, size_t bytes, struct err *err) MUST_CHECK;
bool digest_text(struct digest *digest, char out[DIGEST_TEXT], struct err *err) MUST_CHECK; /* once, at the end */
void digest_fini(struct digest *digest);                                                    /* safe twice */

/* Of a whole file, through `buffer` of `room` bytes. */
bool digest_file(char out[DIGEST_TEXT], const struct file *file, void *buffer, size_t room, struct err *err) MUST_CHECK;

#endif
