#include "convert/digest.h"

#include <openssl/evp.h>
#include <stdio.h>

bool digest_init(struct digest *digest, struct err *err)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    digest->state = context;
    if (!context) return err_set(err, ERR_NOMEM, "out of memory: could not start a SHA-256");
    if (EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        digest_fini(digest);
        return err_set(err, ERR_FAILED, "the crypto library refuses to compute SHA-256");
    }
    return true;
}

bool digest_add(struct digest *digest, const void *data, size_t bytes, struct err *err)
{
    if (EVP_DigestUpdate(digest->state, data, bytes) == 1) return true;
    return err_set(err, ERR_FAILED, "the crypto library failed inside a SHA-256");
}

bool digest_text(struct digest *digest, char out[DIGEST_TEXT], struct err *err)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(digest->state, sum, &n) != 1 || n != 32)
        return err_set(err, ERR_FAILED, "the crypto library failed at the end of a SHA-256");
    for (unsigned i = 0; i < 32; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
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
