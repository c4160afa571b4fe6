/* A safetensors file. Whatever it is, it is read or refused; of what is read, names are ascending and different, and
 * extents have the bytes of their shapes and cover the data area exactly once. */
#include "fmt/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool ok)
{
    if (!ok) abort();
}

static void check(const struct safetensors *headers, uint64_t data_at, uint64_t file_bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < headers->n_tensors; i++) {
        const struct tensor *t = &headers->tensors[i];
        uint64_t bits = dtype_bits(t->dtype);
        must(i == 0 || strcmp(headers->tensors[i - 1].name, t->name) < 0);
        must(t->rank <= TENSOR_RANK_MAX && t->name[0]);
        for (uint32_t d = 0; d < t->rank; d++) bits *= t->shape[d];
        must(bits == 8 * t->bytes);
        must(t->offset >= data_at && t->offset <= file_bytes && t->bytes <= file_bytes - t->offset);
        sum += t->bytes;
        for (uint32_t k = 0; k < i && headers->n_tensors < 100; k++) {
            const struct tensor *o = &headers->tensors[k];
            must(t->offset + t->bytes <= o->offset || o->offset + o->bytes <= t->offset);
        }
    }
    must(sum == file_bytes - data_at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct alloc alloc = {0};
    struct arena arena;
    struct safetensors headers;
    struct err err = {0};
    uint64_t header_bytes;
    if (bytes < SAFETENSORS_LENGTH_BYTES) return 0;
    if (!safetensors_length("input", data, bytes, &header_bytes, &err)) {
        must(err.kind == ERR_DATA);
        return 0;
    }
    arena_init(&arena, &alloc, UINT64_C(1) << 30);
    safetensors_init(&headers, &alloc, &arena);
    if (safetensors_parse(&headers, "input", 0, (const char *)data + SAFETENSORS_LENGTH_BYTES, header_bytes, bytes,
                          &err))
        check(&headers, SAFETENSORS_LENGTH_BYTES + header_bytes, bytes);
    else
        must(err.kind == ERR_DATA && err.text[0]);
    safetensors_fini(&headers);
    arena_fini(&arena);
    must(alloc.live == 0);
    return 0;
}
