#include "fmt/catalogue.h"

#include "base/assert.h"
#include "fmt/catalogue_int.h"
#include "fmt/config.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_MAX = 512, PATH_BYTES_MAX = 4096 };

#define SUFFIX ".safetensors"
#define ARENA_BYTES_MAX (UINT64_C(1) << 30) /* GLM-5.2 needs 10 MB */

/* Numbers are used as they lie in the file. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "model files are little endian, and so must this machine be");

/* --- the folder --- */

bool catalogue_numbered(const char *name, size_t *prefix_bytes, uint32_t *number)
{
    static const char *const prefixes[] = {"out-mtp-", "out-idx-", "out-"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) != 0) continue;
        size_t digits = strspn(name + n, "0123456789");
        if (digits == 0 || digits > 9 || strcmp(name + n + digits, SUFFIX) != 0) return false;
        *prefix_bytes = n;
        *number = (uint32_t)strtoul(name + n, NULL, 10);
        return true;
    }
    return false;
}

static bool is_of_a_family(const char *name)
{
    size_t prefix_bytes;
    uint32_t number;
    return strncmp(name, "model", 5) == 0 || catalogue_numbered(name, &prefix_bytes, &number);
}

static bool add_name(struct catalogue *c, const char *name, struct err *err)
{
    if (c->n_shards == SHARDS_MAX) return err_set(err, ERR_DATA, "%s: more than %d shards", c->dir, SHARDS_MAX);
    const char *copy = arena_text(&c->memory->arena, name, strlen(name), err);
    if (!copy) return false;
    c->shards[c->n_shards++] = (struct shard){.name = copy};
    return true;
}

static bool ignore_name(struct catalogue *c, const char *name, struct err *err)
{
    c->n_ignored_files++;
    if (c->ignored_file) return true;
    c->ignored_file = arena_text(&c->memory->arena, name, strlen(name), err);
    return c->ignored_file;
}

static int compare_shards(const void *a, const void *b)
{
    const struct shard *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool list_folder(struct catalogue *c, struct err *err)
{
    bool ok = true;
    DIR *folder = opendir(c->dir);
    if (!folder)
        return err_set(err, errno == ENOENT || errno == ENOTDIR ? ERR_DATA : ERR_IO, "%s: cannot open the folder: %s",
                       c->dir, strerror(errno));
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(folder);
        if (!entry) break;
        size_t n = strlen(entry->d_name);
        if (n <= strlen(SUFFIX) || strcmp(entry->d_name + n - strlen(SUFFIX), SUFFIX) != 0) continue;
        ok = is_of_a_family(entry->d_name) ? add_name(c, entry->d_name, err) : ignore_name(c, entry->d_name, err);
        if (!ok) break;
    }
    if (ok && errno != 0) ok = err_set(err, ERR_IO, "%s: cannot list the folder: %s", c->dir, strerror(errno));
    closedir(folder);
    if (!ok) return false;
    if (c->n_shards == 0)
        return err_set(err, ERR_DATA, "%s: holds no out-*" SUFFIX " and no model*" SUFFIX " (%" PRIu32 " others)",
                       c->dir, c->n_ignored_files);
    qsort(c->shards, c->n_shards, sizeof *c->shards, compare_shards);
    return true;
}

/* --- the shards --- */

static bool digest_add(struct catalogue *c, const void *data, size_t bytes, struct err *err)
{
    if (EVP_DigestUpdate(c->memory->digest, data, bytes) == 1) return true;
    return err_set(err, ERR_NOMEM, "%s: SHA-256 failed", c->dir);
}

static bool make_path(const struct catalogue *c, const char *name, char path[PATH_BYTES_MAX], struct err *err)
{
    if (snprintf(path, PATH_BYTES_MAX, "%s/%s", c->dir, name) < PATH_BYTES_MAX) return true;
    return err_set(err, ERR_USER, "%.100s...: the path is too long", c->dir);
}

static bool digest_config(struct catalogue *c, struct err *err)
{
    char path[PATH_BYTES_MAX];
    size_t bytes;
    if (!make_path(c, "config.json", path, err)) return false;
    char *text = file_read_all(c->memory->alloc, c->memory->fs, path, CONFIG_BYTES_MAX, &bytes, err);
    if (!text) return false;
    uint64_t length = bytes; /* so that no byte can move between the config and a header without being noticed */
    bool ok = digest_add(c, &length, sizeof length, err) && digest_add(c, text, bytes, err);
    alloc_put(c->memory->alloc, text);
    return ok;
}

static bool read_header(struct catalogue *c, uint32_t index, char *text, struct err *err)
{
    struct shard *shard = &c->shards[index];
    uint32_t before = c->memory->headers.n_tensors;
    if (!file_read(&shard->file, text, shard->header_bytes, SAFETENSORS_LENGTH_BYTES, err)) return false;
    if (!digest_add(c, text, shard->header_bytes, err)) return false;
    if (!safetensors_parse(&c->memory->headers, shard->file.path, index, text, shard->header_bytes,
                           shard->file.identity.bytes, err))
        return false;
    shard->n_tensors = c->memory->headers.n_tensors - before;
    return true;
}

static bool open_shard(struct catalogue *c, uint32_t index, struct err *err)
{
    char path[PATH_BYTES_MAX];
    unsigned char length[SAFETENSORS_LENGTH_BYTES];
    struct shard *shard = &c->shards[index];
    struct alloc *alloc = c->memory->alloc;
    if (!make_path(c, shard->name, path, err)) return false;
    if (!file_open(&shard->file, alloc, c->memory->fs, path, err)) return false;
    uint64_t file_bytes = shard->file.identity.bytes;
    if (file_bytes < sizeof length)
        return err_set(err, ERR_DATA, "%s: only %" PRIu64 " bytes, too short for a safetensors file", path, file_bytes);
    if (!file_read(&shard->file, length, sizeof length, 0, err)) return false;
    if (!safetensors_length(path, length, file_bytes, &shard->header_bytes, err)) return false;
    if (!digest_add(c, length, sizeof length, err)) return false;
    char *text = alloc_get(alloc, shard->header_bytes, err);
    if (!text) return false;
    bool ok = read_header(c, index, text, err);
    alloc_put(alloc, text);
    return ok;
}

/* --- all tensors --- */

static int compare_tensors(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool index_tensors(struct catalogue *c, struct err *err)
{
    c->tensors = c->memory->headers.tensors;
    c->n_tensors = c->memory->headers.n_tensors;
    if (c->n_tensors == 0) return err_set(err, ERR_DATA, "%s: its shards hold no tensors", c->dir);
    qsort(c->tensors, c->n_tensors, sizeof *c->tensors, compare_tensors);
    for (uint32_t i = 1; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensors[i];
        if (strcmp(t[-1].name, t->name) == 0)
            return err_set(err, ERR_DATA, "%s: tensor '%s' is in both %s and %s", c->dir, t->name,
                           c->shards[t[-1].shard].name, c->shards[t->shard].name);
    }
    return true;
}

static int compare_stamps(const void *a, const void *b)
{
    const struct stamp *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool index_stamps(struct catalogue *c, struct err *err)
{
    struct stamp *stamps = c->memory->headers.stamps;
    uint32_t n = c->memory->headers.n_stamps;
    if (n == 0) return true;
    qsort(stamps, n, sizeof *stamps, compare_stamps);
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(stamps[i - 1].name, stamps[i].name) == 0 && strcmp(stamps[i - 1].format, stamps[i].format) != 0)
            return err_set(err, ERR_DATA, "%s: tensor '%s' is stamped both %s and %s", c->dir, stamps[i].name,
                           stamps[i - 1].format, stamps[i].format);
    return true;
}

static bool prepare(struct catalogue *c, struct alloc *alloc, struct file_system fs, const char *dir, struct err *err)
{
    c->memory = alloc_get(alloc, sizeof *c->memory, err);
    if (!c->memory) return false;
    c->memory->alloc = alloc;
    c->memory->fs = fs;
    arena_init(&c->memory->arena, alloc, ARENA_BYTES_MAX);
    safetensors_init(&c->memory->headers, alloc, &c->memory->arena);
    c->dir = arena_text(&c->memory->arena, dir, strlen(dir), err);
    if (!c->dir) return false;
    c->shards = alloc_get_array(alloc, SHARDS_MAX, sizeof *c->shards, err);
    if (!c->shards) return false;
    c->memory->digest = EVP_MD_CTX_new();
    if (!c->memory->digest || EVP_DigestInit_ex(c->memory->digest, EVP_sha256(), NULL) != 1)
        return err_set(err, ERR_NOMEM, "%s: SHA-256 is not available", dir);
    return true;
}

bool catalogue_open(struct catalogue *catalogue, struct alloc *alloc, struct file_system fs, const char *dir,
                    struct err *err)
{
    *catalogue = (struct catalogue){0};
    if (!prepare(catalogue, alloc, fs, dir, err)) goto fail;
    if (!digest_config(catalogue, err)) goto fail;
    if (!list_folder(catalogue, err)) goto fail;
    for (uint32_t i = 0; i < catalogue->n_shards; i++)
        if (!open_shard(catalogue, i, err)) goto fail;
    if (!index_tensors(catalogue, err)) goto fail;
    if (!index_stamps(catalogue, err)) goto fail;
    if (EVP_DigestFinal_ex(catalogue->memory->digest, catalogue->identity, NULL) != 1) {
        err_set(err, ERR_NOMEM, "%s: SHA-256 failed", dir);
        goto fail;
    }
    EVP_MD_CTX_free(catalogue->memory->digest);
    catalogue->memory->digest = NULL;
    return true;
fail:
    catalogue_close(catalogue);
    return false;
}

void catalogue_close(struct catalogue *catalogue)
{
    struct catalogue_memory *memory = catalogue->memory;
    if (!memory) return;
    for (uint32_t i = 0; i < catalogue->n_shards; i++) file_close(&catalogue->shards[i].file);
    alloc_put(memory->alloc, catalogue->shards);
    EVP_MD_CTX_free(memory->digest);
    safetensors_fini(&memory->headers);
    arena_fini(&memory->arena);
    alloc_put(memory->alloc, memory);
    *catalogue = (struct catalogue){0};
}

const struct tensor *catalogue_find(const struct catalogue *catalogue, const char *name)
{
    const struct tensor key = {.name = name};
    return bsearch(&key, catalogue->tensors, catalogue->n_tensors, sizeof key, compare_tensors);
}

const char *catalogue_stamp(const struct catalogue *catalogue, const char *name)
{
    const struct safetensors *headers = &catalogue->memory->headers;
    const struct stamp key = {.name = name}, *found = NULL;
    if (headers->n_stamps > 0) found = bsearch(&key, headers->stamps, headers->n_stamps, sizeof key, compare_stamps);
    return found ? found->format : NULL;
}

bool catalogue_read(const struct catalogue *catalogue, const struct tensor *tensor, uint64_t offset, void *buffer,
                    uint64_t bytes, struct err *err)
{
    ASSERT(offset <= tensor->bytes);
    ASSERT(bytes <= tensor->bytes - offset);
    if (file_read(&catalogue->shards[tensor->shard].file, buffer, bytes, tensor->offset + offset, err)) return true;
    return err_context(err, "tensor '%s'", tensor->name);
}
