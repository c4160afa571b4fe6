#include "fmt/safetensors.h"
#include "run/verify_int.h"
#include "run/verify_values.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READ_FAILURES_MAX = 8 };
#define ARENA_BYTES_MAX (UINT64_C(1) << 30)

/* One file while it is read. */
struct reading {
    const struct verify_reader *reader;
    struct verify_file *out;
    struct file file;
    char path[VERIFY_PATH_MAX];
    struct digest digest;
    bool has_digest, is_whole; /* whole: every byte could be read */
    struct arena arena;
    struct safetensors header; /* by offset */
    uint32_t next;             /* of its tensors, the one that the next byte is of or in front of */
    struct verify_values values;
    unsigned n_failures;
};

static bool tell(struct reading *r, const char *tensor, const char *text, struct err *err)
{
    return verify_add_problem(r->reader->report, r->out, tensor, text, err);
}

/* --- the header --- */

static int compare_offsets(const void *a, const void *b)
{
    const struct tensor *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static bool parse_header(struct reading *r, struct err *why)
{
    unsigned char length[SAFETENSORS_LENGTH_BYTES];
    uint64_t bytes = r->file.identity.bytes, header_bytes;
    struct alloc *alloc = r->reader->job->alloc;
    if (bytes < sizeof length)
        return err_set(why, ERR_DATA, "%s: only %" PRIu64 " bytes, too short for a safetensors file", r->path, bytes);
    if (!file_read(&r->file, length, sizeof length, 0, why) ||
        !safetensors_length(r->path, length, bytes, &header_bytes, why))
        return false;
    char *text = alloc_get(alloc, header_bytes, why);
    if (!text) return false;
    bool ok = file_read(&r->file, text, header_bytes, sizeof length, why) &&
              safetensors_parse(&r->header, r->path, 0, text, header_bytes, bytes, why);
    alloc_put(alloc, text);
    if (ok && r->header.n_tensors > 0)
        qsort(r->header.tensors, r->header.n_tensors, sizeof *r->header.tensors, compare_offsets);
    return ok;
}

/* A header that is wrong leaves the file's bytes to be read for their digest alone. */
static bool read_header(struct reading *r, struct err *err)
{
    struct err why = {0};
    size_t n = strlen(r->out->name);
    static const char suffix[] = ".safetensors";
    if (n < sizeof suffix || strcmp(r->out->name + n - (sizeof suffix - 1), suffix) != 0) return true;
    if (parse_header(r, &why)) return true;
    r->header.n_tensors = 0;
    if (why.kind != ERR_NOMEM) return tell(r, "", why.text, err);
    *err = why;
    return false;
}

/* --- the values --- */

static bool end_tensor(struct reading *r, struct err *err)
{
    char text[200];
    const struct verify_values *v = &r->values;
    r->next++;
    if (v->n_bad == 0) return true;
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " %s, the first is number %" PRIu64 ": %g", v->n_bad,
             v->n_seen, v->is_scale ? "scales are not finite and positive" : "values are not finite", v->first_bad,
             v->first_value);
    return tell(r, v->tensor->name, text, err);
}

/* The bytes of the file from `offset` on; those of the header are in front of every tensor. */
static bool check_values(struct reading *r, const unsigned char *bytes, uint64_t n, uint64_t offset, struct err *err)
{
    uint64_t end = offset + n;
    while (r->next < r->header.n_tensors) {
        const struct tensor *t = &r->header.tensors[r->next];
        if (t->offset >= end && t->bytes > 0) return true;
        if (offset <= t->offset || r->values.tensor != t) verify_values_begin(&r->values, t);
        uint64_t from = t->offset > offset ? t->offset : offset;
        uint64_t to = t->offset + t->bytes < end ? t->offset + t->bytes : end;
        if (to > from) verify_values_add(&r->values, bytes + (from - offset), to - from);
        if (t->offset + t->bytes > end) return true;
        if (!end_tensor(r, err)) return false;
    }
    return true;
}

/* What lies in bytes that cannot be read: named, and not checked. */
static bool skip_values(struct reading *r, uint64_t n, uint64_t offset, const char *why, struct err *err)
{
    const char *first = "";
    uint64_t end = offset + n;
    uint32_t n_hit = 0;
    char text[700];
    while (r->next < r->header.n_tensors) {
        const struct tensor *t = &r->header.tensors[r->next];
        if (t->offset >= end) break;
        if (n_hit++ == 0) first = t->name;
        r->values = (struct verify_values){.tensor = t}; /* of a tensor with a hole nothing more is said */
        if (t->offset + t->bytes > end) break;
        r->next++;
    }
    snprintf(text, sizeof text, "%.500s", why);
    if (n_hit > 1) snprintf(text, sizeof text, "%.500s (this and %" PRIu32 " more tensors)", why, n_hit - 1);
    return tell(r, first, text, err);
}

/* --- the bytes --- */

static bool read_block(struct reading *r, uint64_t offset, uint64_t n, bool *goes_on, struct err *err)
{
    struct err why = {0};
    const struct verify_reader *reader = r->reader;
    if (file_read(&r->file, reader->block, n, offset, &why)) {
        if (r->has_digest && !digest_add(&r->digest, reader->block, n, err)) return false;
        return check_values(r, reader->block, n, offset, err);
    }
    r->is_whole = false;
    *goes_on = why.kind == ERR_IO && ++r->n_failures < READ_FAILURES_MAX; /* a file that shrank has no more to say */
    return skip_values(r, n, offset, why.text, err);
}

static bool read_blocks(struct reading *r, struct err *err)
{
    const struct verify_reader *reader = r->reader;
    bool goes_on = true;
    uint64_t bytes = r->file.identity.bytes;
    r->is_whole = true;
    for (uint64_t at = 0; goes_on && at < bytes;) {
        uint64_t n = bytes - at < reader->block_bytes ? bytes - at : reader->block_bytes;
        if (!read_block(r, at, n, &goes_on, err)) return false;
        at += n;
        if (!reader->progress(reader->context, n, err)) return false;
    }
    struct err why = {0};
    if (r->is_whole && !file_recheck(&r->file, &why)) return tell(r, "", why.text, err);
    return true;
}

static bool start_digest(struct reading *r, const struct verify_expectation *expectation, struct err *err)
{
    size_t digits = strlen(expectation->digest);
    if (digits == 0) return true;
    r->has_digest =
        digits == 40 ? digest_init_git_blob(&r->digest, r->file.identity.bytes, err) : digest_init(&r->digest, err);
    return r->has_digest;
}

static bool compare_digest(struct reading *r, const struct verify_expectation *expectation, struct err *err)
{
    char digest[DIGEST_TEXT], text[300];
    if (!r->has_digest || !r->is_whole) return true;
    if (!digest_text(&r->digest, digest, err)) return false;
    bool is_right = strcmp(digest, expectation->digest) == 0;
    r->out->sum = is_right ? VERIFY_SUM_RIGHT : VERIFY_SUM_WRONG;
    if (is_right) return true;
    snprintf(text, sizeof text, "its checksum is %s, but should be %s (says %s)", digest, expectation->digest,
             expectation->source);
    return tell(r, "", text, err);
}

static bool check_size(struct reading *r, const struct verify_expectation *expectation, struct err *err)
{
    char text[200];
    uint64_t bytes = r->file.identity.bytes;
    if (expectation->bytes == UINT64_MAX || expectation->bytes == bytes) return true;
    snprintf(text, sizeof text, "%" PRIu64 " bytes, but should have %" PRIu64 " (says %s)", bytes, expectation->bytes,
             expectation->source);
    return tell(r, "", text, err);
}

bool verify_read_file(const struct verify_reader *reader, struct verify_file *file,
                      const struct verify_expectation *expectation, struct err *err)
{
    struct err why = {0};
    struct reading r = {.reader = reader, .out = file};
    const struct verify_job *job = reader->job;
    if (snprintf(r.path, sizeof r.path, "%s/%s", job->dir, file->name) >= (int)sizeof r.path)
        return err_set(err, ERR_USER,
                       "%.100s...: the path is too long; reach it by a shorter one, through a link or from nearer",
                       job->dir);
    if (!file_open(&r.file, job->alloc, job->fs, r.path, &why)) {
        if (why.kind != ERR_NOMEM) return tell(&r, "", why.text, err);
        *err = why;
        return false;
    }
    file->identity = r.file.identity;
    arena_init(&r.arena, job->alloc, ARENA_BYTES_MAX);
    safetensors_init(&r.header, job->alloc, &r.arena);
    bool ok = check_size(&r, expectation, err) && read_header(&r, err) && start_digest(&r, expectation, err) &&
              read_blocks(&r, err) && compare_digest(&r, expectation, err);
    digest_fini(&r.digest);
    safetensors_fini(&r.header);
    arena_fini(&r.arena);
    file_close(&r.file);
    return ok;
}
