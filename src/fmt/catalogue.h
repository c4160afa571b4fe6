#ifndef FMT_CATALOGUE_H
#define FMT_CATALOGUE_H
/* Every tensor of a folder of safetensors shards, by name.
 *
 * The folder is the index: all shards' headers are read and checked strictly (container rules), payloads are not
 * touched. Owner: whoever opened it. Read-only after catalogue_open, so any thread may look things up and read. */
#include "plat/file.h"
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_U8, DTYPE_I8, DTYPE_OTHER };

enum { TENSOR_RANK_MAX = 8 };

struct tensor {
    const char *name;
    enum dtype dtype;
    uint32_t rank;
    const uint64_t *shape; /* [rank] */
    uint32_t shard;
    uint64_t offset;       /* of the first payload byte, from the start of the file */
    uint64_t bytes;
};

struct shard {
    struct file file;
    const char *name; /* without the folder */
    uint64_t header_bytes;
    uint32_t n_tensors;
};

struct catalogue {
    struct shard *shards; /* [n_shards], by name */
    uint32_t n_shards;
    struct tensor *tensors; /* [n_tensors], by name */
    uint32_t n_tensors;
    uint32_t n_ignored_files;    /* *.safetensors of no known family */
    const char *ignored_file;    /* one of them, or NULL */
    uint8_t identity[32];        /* SHA-256 over config.json and all shard headers */
    struct catalogue_memory *memory;
};

bool catalogue_open(struct catalogue *catalogue, struct alloc *alloc, struct file_system fs, const char *dir,
                    struct err *err) MUST_CHECK;
void catalogue_close(struct catalogue *catalogue);

const struct tensor *catalogue_find(const struct catalogue *catalogue, const char *name); /* NULL: no such tensor */

/* The format that the metadata stamp gives this tensor, or NULL. */
const char *catalogue_stamp(const struct catalogue *catalogue, const char *name);

/* `bytes` bytes of the tensor from its byte `offset` on. */
bool catalogue_read(const struct catalogue *catalogue, const struct tensor *tensor, uint64_t offset, void *buffer,
                    uint64_t bytes, struct err *err) MUST_CHECK;

#endif
