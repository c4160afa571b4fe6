#ifndef FMT_CATALOGUE_INT_H
#define FMT_CATALOGUE_INT_H
/* For the files of the catalogue only: what it owns. */
#include "fmt/safetensors.h"
#include <openssl/evp.h>

struct catalogue_memory {
    struct alloc *alloc;
    struct file_system fs;
    struct arena arena;
    struct safetensors headers;
    EVP_MD_CTX *digest; /* of the identity, while it is made */
};

#endif
