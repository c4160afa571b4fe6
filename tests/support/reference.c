#include "support/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void give_up(const char *what, const char *where)
{
    fprintf(stderr, "fixture: %s: %s\n", where, what);
    exit(1);
}

static char *read_whole(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) give_up("cannot open (tests run from the root of the source tree)", path);
    fseek(file, 0, SEEK_END);
    long n = ftell(file);
    rewind(file);
    char *data = malloc((size_t)n + 1);
    if (!data || fread(data, 1, (size_t)n, file) != (size_t)n) give_up("cannot read", path);
    fclose(file);
    data[n] = 0;
    *bytes = (size_t)n;
    return data;
}

void reference_open(struct reference *reference, const char *dir)
{
    char path[512];
    size_t bytes;
    snprintf(path, sizeof path, "%s/reference.json", dir);
    char *text = read_whole(path, &bytes);
    reference->json = json_tokener_parse(text);
    free(text);
    if (!reference->json) give_up("not JSON", path);

    snprintf(path, sizeof path, "%s/reference.safetensors", dir);
    reference->file = read_whole(path, &bytes);
    uint64_t n;
    memcpy(&n, reference->file, 8);
    char *header = strndup(reference->file + 8, (size_t)n);
    reference->header = json_tokener_parse(header);
    free(header);
    if (!reference->header) give_up("no safetensors header", path);
    reference->data_at = 8 + (size_t)n;
}

void reference_close(struct reference *reference)
{
    json_object_put(reference->json);
    json_object_put(reference->header);
    free(reference->file);
}

const void *reference_tensor(const struct reference *reference, const char *prompt, const char *key, size_t *rows,
                             size_t *columns)
{
    char name[256];
    struct json_object *entry, *shape, *offsets;
    snprintf(name, sizeof name, "%s.%s", prompt, key);
    if (!json_object_object_get_ex(reference->header, name, &entry)) return NULL;
    json_object_object_get_ex(entry, "shape", &shape);
    json_object_object_get_ex(entry, "data_offsets", &offsets);
    size_t rank = json_object_array_length(shape);
    *rows = 1;
    for (size_t i = 0; i + 1 < rank; i++) *rows *= (size_t)json_object_get_int64(json_object_array_get_idx(shape, i));
    *columns = (size_t)json_object_get_int64(json_object_array_get_idx(shape, rank - 1));
    return reference->file + reference->data_at + (size_t)json_object_get_int64(json_object_array_get_idx(offsets, 0));
}

struct json_object *reference_prompt(const struct reference *reference, const char *prompt)
{
    struct json_object *prompts, *one;
    if (!json_object_object_get_ex(reference->json, "prompts", &prompts)) give_up("no such key", "prompts");
    if (!json_object_object_get_ex(prompts, prompt, &one)) give_up("no such prompt", prompt);
    return one;
}

uint32_t *reference_ids(const struct reference *reference, const char *prompt, const char *key, size_t *n)
{
    struct json_object *array;
    if (!json_object_object_get_ex(reference_prompt(reference, prompt), key, &array)) give_up("no such key", key);
    *n = json_object_array_length(array);
    uint32_t *ids = calloc(*n, sizeof *ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (uint32_t)json_object_get_int64(json_object_array_get_idx(array, i));
    return ids;
}

double relative_error(const float *got, const float *want, size_t n)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    return sqrt(difference / (norm > 0 ? norm : 1));
}
