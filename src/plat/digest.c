#include "plat/digest.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>

static bool start(struct digest *digest, const EVP_MD *kind, const char *name, struct err *err)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    digest->state = context;
    if (!context) return err_set(err, ERR_NOMEM, "out of memory: could not start a %s", name);
    if (EVP_DigestInit_ex(context, kind, NULL) != 1) {
        digest_fini(digest);
        return err_set(err, ERR_FAILED, "the crypto library refuses to compute %s", name);
    }
    return true;
}

bool digest_init(struct digest *digest, struct err *err)
{
    return start(digest, EVP_sha256(), "SHA-256", err);
}

bool digest_init_git_blob(struct digest *digest, uint64_t bytes, struct err *err)
{
    char header[32];
    int n = snprintf(header, sizeof header, "blob %" PRIu64, bytes);
    if (!start(digest, EVP_sha1(), "SHA-1", err)) return false;
    if (digest_add(digest, header, (size_t)n + 1, err)) return true; /* its NUL is part of it */
    digest_fini(digest);
    return false;
}

bool digest_add(struct digest *digest, const void *data, size_t bytes, struct err *err)
{
    if (EVP_DigestUpdate(digest->state, data, bytes) == 1) return true;
    return err_set(err, ERR_FAILED, "the crypto library failed inside a digest");
}

bool digest_text(struct digest *digest, char out[DIGEST_TEXT], struct err *err)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(digest->state, sum, &n) != 1 || 2 * n >= DIGEST_TEXT)
        return err_set(err, ERR_FAILED, "the crypto library failed at the end of a digest");
    for (unsigned i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
    return true;
}

void digest_fini(struct digest *digest)
{
    EVP_MD_CTX_free(digest->state);
    digest->state = NULL;
}

static bool add_file(struct digest *digest, const struct file *file, void *buffer, size_t room, struct err *err)
{
    uint64_t bytes = file->identity.bytes;
    for (uint64_t at = 0; at < bytes;) {
        size_t n = bytes - at < room ? (size_t)(bytes - at) : room;
        if (!file_read(file, buffer, n, at, err) || !digest_add(digest, buffer, n, err)) return false;
        at += n;
    }
    return true;
}

bool digest_file(char out[DIGEST_TEXT], const struct file *file, void *buffer, size_t room, struct err *err)
{
    struct digest digest;
    if (!digest_init(&digest, err)) return false;
    bool ok = add_file(&digest, file, buffer, room, err) && digest_text(&digest, out, err);
    digest_fini(&digest);
    return ok;
}
