#ifndef FMT_CATALOGUE_H
#define FMT_CATALOGUE_H
/* Every tensor of a folder of safetensors shards, by name.
 *
 * The folder is the index: all shards' headers are read and checked strictly (container rules), payloads are not
 * touched. Owner: whoever opened it. Read-only after catalogue_open, so any thread may look things up and read. */
#include "plat/file.h"
#include <stdint.h>

/* X(name as in the file, bits of an element): all that safetensors has. */
#define DTYPE_LIST(X) \
    X(F32, 32)        \
    X(F16, 16)        \
    X(BF16, 16)       \
    X(F8_E4M3, 8)     \
    X(U8, 8)          \
    X(I8, 8)          \
    X(BOOL, 8)        \
    X(F4, 4)          \
    X(F6_E2M3, 6)     \
    X(F6_E3M2, 6)     \
    X(F8_E5M2, 8)     \
    X(F8_E8M0, 8)     \
    X(I16, 16)        \
    X(U16, 16)        \
    X(I32, 32)        \
    X(U32, 32)        \
    X(I64, 64)        \
    X(U64, 64)        \
    X(F64, 64)        \
    X(C64, 64)

enum dtype {
#define X(name, bits) DTYPE_##name,
    DTYPE_LIST(X)
#undef X
        DTYPE_COUNT
};

const char *dtype_name(enum dtype dtype); /* "F8_E4M3" */
uint64_t dtype_bits(enum dtype dtype);

enum { TENSOR_RANK_MAX = 8 };

struct tensor {
    const char *name;
    enum dtype dtype;
    uint32_t rank;
    const uint64_t *shape; /* [rank] */
    uint32_t shard;
    uint64_t offset; /* of the first payload byte, from the start of the file */
    uint64_t bytes;
};

struct shard {
    struct file file;
    const char *name; /* without the folder */
    uint64_t header_bytes;
    uint32_t n_tensors;
};

struct catalogue {
    const char *dir;      /* as it was given */
    struct shard *shards; /* [n_shards], by name */
    uint32_t n_shards;
    struct tensor *tensors; /* [n_tensors], by name */
    uint32_t n_tensors;
    uint32_t n_ignored_files; /* *.safetensors of no known family */
    const char *ignored_file; /* one of them, or NULL */
    uint8_t identity[32];     /* SHA-256 over config.json and all shard headers */
    struct catalogue_memory *memory;
};

/* Known families are out-N, out-mtp-N and out-idx-N (N: digits) and model*, each with ".safetensors" behind it. */
bool catalogue_open(struct catalogue *catalogue, struct alloc *alloc, struct file_system fs, const char *dir,
                    struct err *err) MUST_CHECK;

/* Safe twice, on a zeroed catalogue and after a failed open. */
void catalogue_close(struct catalogue *catalogue);

const struct tensor *catalogue_find(const struct catalogue *catalogue, const char *name); /* NULL: no such tensor */

/* The format that the metadata stamp gives this tensor, or NULL. */
const char *catalogue_stamp(const struct catalogue *catalogue, const char *name);

/* `bytes` bytes of the tensor from its byte `offset` on. A failure names the tensor. */
bool catalogue_read(const struct catalogue *catalogue, const struct tensor *tensor, uint64_t offset, void *buffer,
                    uint64_t bytes, struct err *err) MUST_CHECK;

/* For the message about a tensor that is not there: which shards seem to be missing, from the index that checkpoints
 * come with, the "-of-N" in their names, or gaps in the numbering. True when one of them names a shard; otherwise the
 * text can still say where a shard may lack, or be empty. It begins with "; ". An index that cannot be read is no
 * error: this is only a hint. */
bool catalogue_explain_missing(const struct catalogue *catalogue, const char *tensor, char *text, size_t room);

/* The number in the name of a shard of a numbered family, whose prefix ("out-mtp-") has prefix_bytes bytes. */
bool catalogue_numbered(const char *name, size_t *prefix_bytes, uint32_t *number);

#endif
