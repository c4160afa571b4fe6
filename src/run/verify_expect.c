#include "fmt/json_doc.h"
#include "run/verify_int.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORD_NAME "weir-conversion.json"
#define HEX_DIGITS "0123456789abcdef"
enum { RECORD_BYTES_MAX = 16 << 20, RECORDED_MAX = 4096 };

struct recorded {
    const char *name;
    char digest[DIGEST_TEXT];
    uint64_t bytes;
};

struct verify_expectations {
    const struct verify_job *job;
    struct recorded *recorded; /* [n] */
    uint32_t n;
    struct arena arena;
};

static bool add_entry(struct verify_expectations *x, struct json_object *entry, struct err *err)
{
    struct json_object *name = NULL, *bytes = NULL, *digest = NULL;
    if (x->n == RECORDED_MAX || !json_object_is_type(entry, json_type_object)) return true;
    json_object_object_get_ex(entry, "name", &name);
    json_object_object_get_ex(entry, "bytes", &bytes);
    json_object_object_get_ex(entry, "sha256", &digest);
    if (!json_object_is_type(name, json_type_string) || !json_object_is_type(digest, json_type_string)) return true;
    const char *text = json_object_get_string(name), *sum = json_object_get_string(digest);
    if (strchr(text, '/') || strlen(sum) != 64 || strspn(sum, HEX_DIGITS) != 64) return true;
    struct recorded *r = &x->recorded[x->n];
    r->name = arena_text(&x->arena, text, strlen(text), err);
    if (!r->name) return false;
    memcpy(r->digest, sum, DIGEST_TEXT);
    r->bytes = json_object_is_type(bytes, json_type_int) ? (uint64_t)json_object_get_int64(bytes) : UINT64_MAX;
    x->n++;
    return true;
}

static bool add_list(struct verify_expectations *x, struct json_object *doc, const char *key, struct err *err)
{
    struct json_object *list = NULL;
    if (!json_object_is_type(doc, json_type_object) || !json_object_object_get_ex(doc, key, &list) ||
        !json_object_is_type(list, json_type_array))
        return true;
    for (size_t i = 0; i < json_object_array_length(list); i++)
        if (!add_entry(x, json_object_array_get_idx(list, i), err)) return false;
    return true;
}

/* A record that cannot be read ends the run: without it, what is known of the other files would go unsaid. */
static bool read_record(struct verify_expectations *x, struct err *err)
{
    char path[VERIFY_PATH_MAX];
    size_t bytes;
    struct json_object *doc = NULL;
    const struct verify_job *job = x->job;
    if (snprintf(path, sizeof path, "%s/" RECORD_NAME, job->dir) >= (int)sizeof path)
        return err_set(err, ERR_USER,
                       "%.100s...: the path is too long; reach it by a shorter one, through a link or from nearer",
                       job->dir);
    if (!file_present(job->fs, path)) return true;
    char *text = file_read_all(job->alloc, job->fs, path, RECORD_BYTES_MAX, &bytes, err);
    if (!text) return false;
    bool is_json = json_doc_parse(&doc, job->alloc, &json_rules_file, path, text, bytes, err) ||
                   err_context(err, "the record of the conversion, without which no checksum is known; remove it to do "
                                    "without");
    bool ok = is_json && add_list(x, doc, "files", err) && add_list(x, doc, "outputs", err);
    json_object_put(doc);
    alloc_put(job->alloc, text);
    return ok;
}

bool verify_expectations_read(struct verify_expectations **expectations, const struct verify_job *job, struct err *err)
{
    struct verify_expectations *x = alloc_get(job->alloc, sizeof *x, err);
    if (!x) return false;
    x->job = job;
    arena_init(&x->arena, job->alloc, UINT64_C(64) << 20);
    x->recorded = alloc_get_array(job->alloc, RECORDED_MAX, sizeof *x->recorded, err);
    if (x->recorded && read_record(x, err)) {
        *expectations = x;
        return true;
    }
    verify_expectations_free(x);
    return false;
}

void verify_expectations_free(struct verify_expectations *x)
{
    if (!x) return;
    alloc_put(x->job->alloc, x->recorded);
    arena_fini(&x->arena);
    alloc_put(x->job->alloc, x);
}

/* ".../blobs/DIGEST": what hub clients call a content. */
static bool digest_from_link(const char *path, char digest[DIGEST_TEXT])
{
    static const char folder[] = "blobs/";
    char target[VERIFY_PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0) return false;
    target[n] = 0;
    char *name = strrchr(target, '/');
    size_t before = name ? (size_t)(name + 1 - target) : 0, digits = name ? strlen(name + 1) : 0;
    if (before < sizeof folder - 1 || strncmp(name + 1 - (sizeof folder - 1), folder, sizeof folder - 1) != 0)
        return false;
    if ((digits != 64 && digits != 40) || strspn(name + 1, HEX_DIGITS) != digits) return false;
    memcpy(digest, name + 1, digits + 1);
    return true;
}

void verify_expect(const struct verify_expectations *x, const char *name, struct verify_expectation *out)
{
    char path[VERIFY_PATH_MAX];
    *out = (struct verify_expectation){.bytes = UINT64_MAX};
    if (snprintf(path, sizeof path, "%s/%s", x->job->dir, name) < (int)sizeof path &&
        digest_from_link(path, out->digest)) {
        out->source = "its name in the hub cache";
        return;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        if (strcmp(x->recorded[i].name, name) != 0) continue;
        memcpy(out->digest, x->recorded[i].digest, DIGEST_TEXT);
        out->bytes = x->recorded[i].bytes;
        out->source = RECORD_NAME;
    }
}

const char *verify_expected_name(const struct verify_expectations *x, uint32_t number)
{
    return number < x->n ? x->recorded[number].name : NULL;
}
