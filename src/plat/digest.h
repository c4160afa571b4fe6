#ifndef PLAT_DIGEST_H
#define PLAT_DIGEST_H
/* Digests in pieces, as lower-case hexadecimal: SHA-256, or the SHA-1 by which git names a blob. */
#include "base/err.h"
#include "plat/file.h"
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_TEXT = 65 }; /* 64 digits at most and a NUL */

struct digest {
    void *state;
};

bool digest_init(struct digest *digest, struct err *err) MUST_CHECK; /* SHA-256 */

/* SHA-1 over git's header for a blob of so many bytes, which then follow: 40 digits. Names of blobs, no security. */
bool digest_init_git_blob(struct digest *digest, uint64_t bytes, struct err *err) MUST_CHECK;

bool digest_add(struct digest *digest, const void *data, size_t bytes, struct err *err) MUST_CHECK;
bool digest_text(struct digest *digest, char out[DIGEST_TEXT], struct err *err) MUST_CHECK; /* once, at the end */
void digest_fini(struct digest *digest);                                                    /* safe twice */

/* Of a whole file, through `buffer` of `room` bytes. */
bool digest_file(char out[DIGEST_TEXT], const struct file *file, void *buffer, size_t room, struct err *err) MUST_CHECK;

#endif
