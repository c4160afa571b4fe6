#include "support/plain_tensors.h"

#include "support/temp_folder.h"
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>

unsigned char *plain_add(struct plain_set *set, const char *name, const char *dtype, uint64_t rows, uint64_t columns,
                         const void *data, uint64_t bytes)
{
    set->tensors = realloc(set->tensors, (set->n + 1) * sizeof *set->tensors);
    struct plain_tensor *t = &set->tensors[set->n++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->rank = columns ? 2 : 1;
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->data = malloc(bytes + 1);
    if (data) memcpy(t->data, data, bytes);
    t->bytes = bytes;
    return t->data;
}

struct plain_tensor *plain_find(const struct plain_set *set, const char *name)
{
    for (unsigned i = 0; i < set->n; i++)
        if (!strcmp(set->tensors[i].name, name)) return &set->tensors[i];
    return NULL;
}

static uint64_t number_at(struct json_object *array, size_t i)
{
    return (uint64_t)json_object_get_int64(json_object_array_get_idx(array, i));
}

static void add_described(struct plain_set *set, const char *name, struct json_object *entry, const unsigned char *data)
{
    struct json_object *shape, *offsets, *dtype;
    assert_true(json_object_object_get_ex(entry, "shape", &shape));
    assert_true(json_object_object_get_ex(entry, "data_offsets", &offsets));
    assert_true(json_object_object_get_ex(entry, "dtype", &dtype));
    uint64_t begin = number_at(offsets, 0), end = number_at(offsets, 1);
    size_t rank = json_object_array_length(shape);
    assert_in_range(rank, 1, 2);
    plain_add(set, name, json_object_get_string(dtype), number_at(shape, 0), rank == 2 ? number_at(shape, 1) : 0,
              data + begin, end - begin);
}

void plain_read(struct plain_set *set, const char *path)
{
    size_t bytes;
    unsigned char *file = take_file(path, &bytes);
    uint64_t length = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)file[i] << 8 * i;
    struct json_tokener *tokener = json_tokener_new();
    struct json_object *header = json_tokener_parse_ex(tokener, (char *)file + 8, (int)length);
    if (!header) fail_msg("%s: header is not JSON", path);
    json_object_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") != 0) add_described(set, name, entry, file + 8 + length);
    }
    json_object_put(header);
    json_tokener_free(tokener);
    free(file);
}

unsigned char *plain_bytes(const struct plain_set *set, size_t *bytes)
{
    uint64_t data_bytes = 0, at = 0;
    for (unsigned i = 0; i < set->n; i++) data_bytes += set->tensors[i].bytes;
    char *text = malloc(300 * (set->n + 1));
    size_t n = 0;
    for (unsigned i = 0; i < set->n; i++) {
        const struct plain_tensor *t = &set->tensors[i];
        n += (size_t)sprintf(text + n, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, i ? ',' : '{', t->name,
                             t->dtype, t->shape[0]);
        if (t->rank == 2) n += (size_t)sprintf(text + n, ",%" PRIu64, t->shape[1]);
        n += (size_t)sprintf(text + n, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + t->bytes);
        at += t->bytes;
    }
    n += (size_t)sprintf(text + n, set->n ? "}" : "{}");
    while (n % 8) text[n++] = ' ';
    unsigned char *file = malloc(8 + n + data_bytes);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(file + 8, text, n);
    *bytes = 8 + n;
    for (unsigned i = 0; i < set->n; i++) {
        memcpy(file + *bytes, set->tensors[i].data, set->tensors[i].bytes);
        *bytes += set->tensors[i].bytes;
    }
    free(text);
    return file;
}

void plain_write(const struct plain_set *set, const char *path)
{
    size_t bytes;
    unsigned char *file = plain_bytes(set, &bytes);
    put_file(path, file, bytes);
    free(file);
}

void plain_free(struct plain_set *set)
{
    for (unsigned i = 0; i < set->n; i++) free(set->tensors[i].data);
    free(set->tensors);
    *set = (struct plain_set){0};
}

static float ieee(uint32_t code, int exponent_bits, int fraction_bits)
{
    uint32_t fraction = code & ((1u << fraction_bits) - 1);
    int exponent = (int)(code >> fraction_bits & ((1u << exponent_bits) - 1)), bias = (1 << (exponent_bits - 1)) - 1;
    double value = exponent ? ldexp(ldexp(1, fraction_bits) + fraction, exponent - bias - fraction_bits)
                            : ldexp(fraction, 1 - bias - fraction_bits);
    return (float)(code >> (exponent_bits + fraction_bits) & 1 ? -value : value);
}

float *plain_floats(const struct plain_set *set, const struct plain_tensor *t)
{
    uint64_t columns = t->rank == 2 ? t->shape[1] : 1, n = t->shape[0] * columns;
    float *out = malloc((n + 1) * sizeof *out);
    char name[200];
    snprintf(name, sizeof name, "%s_scale_inv", t->name);
    const struct plain_tensor *scale = plain_find(set, name);
    for (uint64_t i = 0; i < n; i++) {
        if (!strcmp(t->dtype, "F32"))
            memcpy(&out[i], t->data + 4 * i, 4);
        else if (!strcmp(t->dtype, "BF16"))
            out[i] = ieee((uint32_t)(t->data[2 * i] | t->data[2 * i + 1] << 8), 8, 7);
        else if (!strcmp(t->dtype, "F16"))
            out[i] = ieee((uint32_t)(t->data[2 * i] | t->data[2 * i + 1] << 8), 5, 10);
        else if (!strcmp(t->dtype, "F8_E4M3"))
            out[i] = ieee(t->data[i], 4, 3);
        else
            fail_msg("%s: %s", t->name, t->dtype);
        if (!scale) continue;
        float factor;
        memcpy(&factor, scale->data + 4 * (i / columns / 128 * scale->shape[1] + i % columns / 128), 4);
        out[i] = out[i] * factor;
    }
    return out;
}
