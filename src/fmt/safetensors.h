#ifndef FMT_SAFETENSORS_H
#define FMT_SAFETENSORS_H
/* The header of one safetensors file, read strictly: exactly its grammar, and extents that cover the data without gap,
 * overlap or remainder. A file that passes can be read at every tensor's offset without another look at sizes. */
#include "base/arena.h"
#include "fmt/catalogue.h"

enum {
    SAFETENSORS_LENGTH_BYTES = 8,       /* little endian, in front of the header */
    SAFETENSORS_HEADER_MAX = 100000000, /* the format's own limit */
    SAFETENSORS_NAME_MAX = 512,         /* bytes of a tensor's name */
    SAFETENSORS_METADATA_MAX = 1024,    /* entries of one header */
    SAFETENSORS_STAMPS_MAX = 4096,      /* format stamps of all headers together */
    SAFETENSORS_TENSORS_MAX = 4 * 1000 * 1000,
};

/* What a metadata stamp says about one tensor. */
struct stamp {
    const char *name, *format;
};

/* What headers add to. Names, shapes and stamps live in the arena; the two arrays are the owner's to give back. */
struct safetensors {
    struct alloc *alloc;
    struct arena *arena;
    struct tensor *tensors;
    uint32_t n_tensors, tensors_room;
    struct stamp *stamps;
    uint32_t n_stamps, stamps_room;
};

void safetensors_init(struct safetensors *out, struct alloc *alloc, struct arena *arena);
void safetensors_fini(struct safetensors *out);

/* Length of the header from the first 8 bytes of a file of `file_bytes` bytes. */
bool safetensors_length(const char *name, const unsigned char first[SAFETENSORS_LENGTH_BYTES], uint64_t file_bytes,
                        uint64_t *header_bytes, struct err *err) MUST_CHECK;

/* Adds the tensors of a header, as shard `shard`, in the order of their names. `text` are the header_bytes bytes that
 * follow the length. After a failure `out` may hold some of them and is only good for safetensors_fini. */
bool safetensors_parse(struct safetensors *out, const char *name, uint32_t shard, const char *text,
                       uint64_t header_bytes, uint64_t file_bytes, struct err *err) MUST_CHECK;

#endif
