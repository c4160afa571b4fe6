#include "fmt/safetensors.h"

#include "base/assert.h"
#include "base/checked.h"
#include "fmt/format.h"
#include "fmt/json_scan.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 32, FIRST_ROOM = 256 };

#define STAMP_KEY "colibri.fmt"

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[DTYPE_COUNT] = {
#define X(name, bits) [DTYPE_##name] = {#name, bits},
    DTYPE_LIST(X)
#undef X
};

const char *dtype_name(enum dtype dtype)
{
    ASSERT((unsigned)dtype < DTYPE_COUNT);
    return dtypes[dtype].name;
}

uint64_t dtype_bits(enum dtype dtype)
{
    ASSERT((unsigned)dtype < DTYPE_COUNT);
    return dtypes[dtype].bits;
}

void safetensors_init(struct safetensors *out, struct alloc *alloc, struct arena *arena)
{
    *out = (struct safetensors){.alloc = alloc, .arena = arena};
}

void safetensors_fini(struct safetensors *out)
{
    if (!out->alloc) return;
    alloc_put(out->alloc, out->tensors);
    alloc_put(out->alloc, out->stamps);
    *out = (struct safetensors){0};
}

/* Makes room for one more element of an array that the owner gives back. */
static bool grow(struct alloc *alloc, void **array, uint32_t n, uint32_t *room, size_t element_bytes, struct err *err)
{
    if (n < *room) return true;
    uint32_t more = *room ? *room * 2 : FIRST_ROOM;
    void *fresh = alloc_resize(alloc, *array, (uint64_t)more * element_bytes, err);
    if (!fresh) return false;
    *array = fresh;
    *room = more;
    return true;
}

bool safetensors_length(const char *name, const unsigned char first[SAFETENSORS_LENGTH_BYTES], uint64_t file_bytes,
                        uint64_t *header_bytes, struct err *err)
{
    uint64_t n = 0;
    for (int i = SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--) n = n << 8 | first[i];
    *header_bytes = n;
    if (n < 2) return err_set(err, ERR_DATA, "%s: a header of %" PRIu64 " bytes is none", name, n);
    if (n > SAFETENSORS_HEADER_MAX)
        return err_set(err, ERR_DATA,
                       "%s: a header of %" PRIu64 " bytes, more than the limit of %d; is this a safetensors file?",
                       name, n, SAFETENSORS_HEADER_MAX);
    if (n > file_bytes - SAFETENSORS_LENGTH_BYTES)
        return err_set(err, ERR_DATA,
                       "%s: has %" PRIu64 " bytes, but its header alone needs %" PRIu64
                       "; was the download interrupted?",
                       name, file_bytes, n + SAFETENSORS_LENGTH_BYTES);
    return true;
}

/* --- one tensor --- */

static bool parse_dtype(struct json_scan *scan, enum dtype *out, struct err *err)
{
    char word[WORD_MAX];
    if (!json_scan_string(scan, word, sizeof word, NULL, err)) return false;
    for (int d = 0; d < DTYPE_COUNT; d++) {
        if (strcmp(word, dtypes[d].name) != 0) continue;
        *out = (enum dtype)d;
        return true;
    }
    return err_set(err, ERR_DATA, "%s: byte %zu: unknown dtype '%s'", scan->name, scan->origin + scan->at, word);
}

static bool parse_shape(struct json_scan *scan, struct tensor *tensor, uint64_t *shape, struct err *err)
{
    bool first = true, more;
    if (!json_scan_mark(scan, '[', err)) return false;
    for (;;) {
        if (!json_scan_next(scan, ']', &first, &more, err)) return false;
        if (!more) return true;
        if (tensor->rank == TENSOR_RANK_MAX) return json_scan_fail(scan, err, "more than 8 dimensions");
        if (!json_scan_whole(scan, &shape[tensor->rank], err)) return false;
        tensor->rank++;
    }
}

static bool parse_offsets(struct json_scan *scan, struct tensor *tensor, struct err *err)
{
    uint64_t begin, end;
    if (!json_scan_mark(scan, '[', err) || !json_scan_whole(scan, &begin, err) || !json_scan_mark(scan, ',', err) ||
        !json_scan_whole(scan, &end, err) || !json_scan_mark(scan, ']', err))
        return false;
    if (begin > end) return json_scan_fail(scan, err, "data_offsets that end before they begin");
    tensor->offset = begin;
    tensor->bytes = end - begin;
    return true;
}

/* The extent must be what shape and dtype make, for every dtype. */
static bool check_bytes(const struct json_scan *scan, const struct tensor *tensor, const uint64_t *shape,
                        struct err *err)
{
    uint64_t bits = dtypes[tensor->dtype].bits;
    for (uint32_t d = 0; d < tensor->rank; d++)
        if (!checked_mul(&bits, bits, shape[d]))
            return err_set(err, ERR_DATA, "%s: tensor '%s': its shape overflows", scan->name, tensor->name);
    if (bits % 8 == 0 && bits / 8 == tensor->bytes) return true;
    return err_set(err, ERR_DATA,
                   "%s: tensor '%s': data_offsets span %" PRIu64 " bytes, but shape and dtype %s make %" PRIu64,
                   scan->name, tensor->name, tensor->bytes, dtypes[tensor->dtype].name, div_up(bits, 8));
}

static bool parse_fields(struct json_scan *scan, struct tensor *tensor, uint64_t *shape, struct err *err)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0;
    bool first = true, more;
    if (!json_scan_mark(scan, '{', err)) return false;
    for (;;) {
        char key[WORD_MAX];
        if (!json_scan_next(scan, '}', &first, &more, err)) return false;
        if (!more) break;
        if (!json_scan_key(scan, key, sizeof key, err)) return false;
        unsigned field = strcmp(key, "dtype") == 0          ? DTYPE
                         : strcmp(key, "shape") == 0        ? SHAPE
                         : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                            : 0;
        if (field == 0) return json_scan_fail(scan, err, "a tensor has only dtype, shape and data_offsets");
        if (seen & field) return json_scan_fail(scan, err, "a key that is given twice");
        seen |= field;
        if (field == DTYPE && !parse_dtype(scan, &tensor->dtype, err)) return false;
        if (field == SHAPE && !parse_shape(scan, tensor, shape, err)) return false;
        if (field == OFFSETS && !parse_offsets(scan, tensor, err)) return false;
    }
    if (seen == (DTYPE | SHAPE | OFFSETS)) return true;
    return err_set(err, ERR_DATA, "%s: tensor '%s': has no %s", scan->name, tensor->name,
                   !(seen & DTYPE)   ? "dtype"
                   : !(seen & SHAPE) ? "shape"
                                     : "data_offsets");
}

static bool parse_tensor(struct safetensors *out, struct json_scan *scan, const char *name, uint32_t shard,
                         struct err *err)
{
    uint64_t shape[TENSOR_RANK_MAX];
    struct tensor tensor = {.shard = shard};
    if (out->n_tensors == SAFETENSORS_TENSORS_MAX)
        return err_set(err, ERR_DATA, "%s: more than %d tensors in this folder", scan->name, SAFETENSORS_TENSORS_MAX);
    if (!name[0]) return json_scan_fail(scan, err, "a tensor without a name");
    for (const char *c = name; *c; c++) /* names are printed, and nobody's terminal may be driven by a file */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return json_scan_fail(scan, err, "a control character in a tensor's name");
    tensor.name = arena_text(out->arena, name, strlen(name), err);
    if (!tensor.name) return false;
    if (!parse_fields(scan, &tensor, shape, err)) return false;
    if (!check_bytes(scan, &tensor, shape, err)) return false;
    uint64_t *kept = arena_get_array(out->arena, tensor.rank, sizeof *kept, err);
    if (!kept) return false;
    memcpy(kept, shape, tensor.rank * sizeof *kept);
    tensor.shape = kept;
    if (!grow(out->alloc, (void **)&out->tensors, out->n_tensors, &out->tensors_room, sizeof tensor, err)) return false;
    out->tensors[out->n_tensors++] = tensor;
    return true;
}

/* --- metadata --- */

static bool add_stamp(struct safetensors *out, const struct json_scan *scan, const char *tensor, const char *format,
                      struct err *err)
{
    if (!format_is_known(format))
        return err_set(err, ERR_DATA, "%s: stamps tensor '%s' as '%s', which is no format that weir knows", scan->name,
                       tensor, format);
    if (out->n_stamps == SAFETENSORS_STAMPS_MAX)
        return err_set(err, ERR_DATA, "%s: more than %d format stamps in this folder", scan->name,
                       SAFETENSORS_STAMPS_MAX);
    if (!grow(out->alloc, (void **)&out->stamps, out->n_stamps, &out->stamps_room, sizeof *out->stamps, err))
        return false;
    struct stamp *stamp = &out->stamps[out->n_stamps];
    stamp->name = arena_text(out->arena, tensor, strlen(tensor), err);
    if (!stamp->name) return false;
    stamp->format = arena_text(out->arena, format, strlen(format), err);
    if (!stamp->format) return false;
    out->n_stamps++;
    return true;
}

/* The stamp is JSON inside a JSON string: an object of tensor names and format names. */
static bool parse_stamps(struct safetensors *out, const char *name, const char *text, size_t bytes, struct err *err)
{
    struct json_scan scan;
    char label[512];
    bool first = true, more;
    snprintf(label, sizeof label, "%s: metadata " STAMP_KEY, name);
    if (!json_scan_init(&scan, label, text, bytes, 0, err)) return false;
    if (!json_scan_mark(&scan, '{', err)) return false;
    for (;;) {
        char tensor[SAFETENSORS_NAME_MAX], format[WORD_MAX];
        if (!json_scan_next(&scan, '}', &first, &more, err)) return false;
        if (!more) return json_scan_end(&scan, err);
        if (!json_scan_key(&scan, tensor, sizeof tensor, err)) return false;
        if (!json_scan_string(&scan, format, sizeof format, NULL, err)) return false;
        if (!add_stamp(out, &scan, tensor, format, err)) return false;
    }
}

static bool parse_stamp_value(struct safetensors *out, struct json_scan *scan, struct err *err)
{
    struct json_scan ahead = *scan; /* how long the value is at most */
    size_t bytes;
    if (!json_scan_string(&ahead, NULL, 0, NULL, err)) return false;
    size_t room = ahead.at - scan->at + 1;
    char *value = alloc_get(out->alloc, room, err);
    if (!value) return false;
    bool ok = json_scan_string(scan, value, room, &bytes, err) && parse_stamps(out, scan->name, value, bytes, err);
    alloc_put(out->alloc, value);
    return ok;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool parse_metadata(struct safetensors *out, struct json_scan *scan, struct err *err)
{
    const char *keys[SAFETENSORS_METADATA_MAX];
    size_t n = 0;
    bool first = true, more;
    if (!json_scan_mark(scan, '{', err)) return false;
    for (;;) {
        char key[SAFETENSORS_NAME_MAX];
        if (!json_scan_next(scan, '}', &first, &more, err)) return false;
        if (!more) break;
        if (n == SAFETENSORS_METADATA_MAX) return json_scan_fail(scan, err, "more than 1024 metadata entries");
        if (!json_scan_key(scan, key, sizeof key, err)) return false;
        keys[n] = arena_text(out->arena, key, strlen(key), err);
        if (!keys[n++]) return false;
        bool is_stamp = strcmp(key, STAMP_KEY) == 0;
        if (is_stamp && !parse_stamp_value(out, scan, err)) return false;
        if (!is_stamp && !json_scan_string(scan, NULL, 0, NULL, err)) return false;
    }
    qsort(keys, n, sizeof *keys, compare_texts);
    for (size_t i = 1; i < n; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            return err_set(err, ERR_DATA, "%s: metadata key '%s' is given twice", scan->name, keys[i]);
    return true;
}

/* --- the whole --- */

static bool parse_object(struct safetensors *out, struct json_scan *scan, uint32_t shard, struct err *err)
{
    bool first = true, more, has_metadata = false;
    if (scan->text[0] != '{') return json_scan_fail(scan, err, "the header does not begin with '{'");
    scan->at = 1;
    for (;;) {
        char key[SAFETENSORS_NAME_MAX];
        if (!json_scan_next(scan, '}', &first, &more, err)) return false;
        if (!more) break;
        if (!json_scan_key(scan, key, sizeof key, err)) return false;
        bool is_metadata = strcmp(key, "__metadata__") == 0;
        if (is_metadata && has_metadata) return json_scan_fail(scan, err, "key '__metadata__' is given twice");
        has_metadata |= is_metadata;
        if (is_metadata && !parse_metadata(out, scan, err)) return false;
        if (!is_metadata && !parse_tensor(out, scan, key, shard, err)) return false;
    }
    while (scan->at < scan->bytes && scan->text[scan->at] == ' ') scan->at++;
    if (scan->at == scan->bytes) return true;
    return json_scan_fail(scan, err, "only spaces may follow behind the header's object");
}

static int compare_offsets(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Sorted by offset, each tensor must begin where the one before it ends, the last at the end of the file. */
static bool check_extents(const char *name, struct tensor *tensors, uint32_t n, uint64_t data_bytes, struct err *err)
{
    uint64_t end = 0;
    if (n > 0) qsort(tensors, n, sizeof *tensors, compare_offsets);
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *t = &tensors[i];
        if (t->offset + t->bytes > end) end = t->offset + t->bytes;
    }
    if (end > data_bytes)
        return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes are missing at its end; was the download interrupted?",
                       name, end - data_bytes);
    end = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *t = &tensors[i];
        if (t->offset > end)
            return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes before tensor '%s' belong to no tensor", name,
                           t->offset - end, t->name);
        if (t->offset < end)
            return err_set(err, ERR_DATA, "%s: tensors '%s' and '%s' overlap by %" PRIu64 " bytes", name,
                           tensors[i - 1].name, t->name, end - t->offset);
        end += t->bytes;
    }
    if (end == data_bytes) return true;
    return err_set(err, ERR_DATA, "%s: %" PRIu64 " bytes behind the last tensor belong to no tensor", name,
                   data_bytes - end);
}

bool safetensors_parse(struct safetensors *out, const char *name, uint32_t shard, const char *text,
                       uint64_t header_bytes, uint64_t file_bytes, struct err *err)
{
    struct json_scan scan;
    uint32_t first = out->n_tensors;
    uint64_t data_at = SAFETENSORS_LENGTH_BYTES + header_bytes;
    ASSERT(header_bytes >= 2 && header_bytes <= SAFETENSORS_HEADER_MAX);
    ASSERT(data_at <= file_bytes);
    if (!json_scan_init(&scan, name, text, header_bytes, SAFETENSORS_LENGTH_BYTES, err)) return false;
    if (!parse_object(out, &scan, shard, err)) return false;

    struct tensor *tensors = out->tensors ? out->tensors + first : NULL;
    uint32_t n = out->n_tensors - first;
    if (!check_extents(name, tensors, n, file_bytes - data_at, err)) return false;
    if (n > 0) qsort(tensors, n, sizeof *tensors, compare_names);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(tensors[i - 1].name, tensors[i].name) == 0)
            return err_set(err, ERR_DATA, "%s: tensor '%s' is there twice", name, tensors[i].name);
        tensors[i].offset += data_at;
    }
    return true;
}
