#include "base/buf.h"
#include "fmt/json_doc.h"
#include "fmt/json_text.h"
#include "run/verify_int.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_BYTES_MAX = 16 << 20, KEY_DIGITS = 16 };

/* A file for each folder, named by the folder's path. */
static bool state_path(const struct verify_job *job, char path[VERIFY_PATH_MAX], struct err *err)
{
    char folder[PATH_MAX], digest[DIGEST_TEXT];
    struct digest state;
    if (!realpath(job->dir, folder))
        return err_set(err, ERR_IO, "%s: cannot be followed to its end: %s", job->dir, strerror(errno));
    if (!digest_init(&state, err)) return false;
    bool ok = digest_add(&state, folder, strlen(folder), err) && digest_text(&state, digest, err);
    digest_fini(&state);
    if (!ok) return false;
    digest[KEY_DIGITS] = 0;
    if (snprintf(path, VERIFY_PATH_MAX, "%s/verify-%s.json", job->state_folder, digest) < VERIFY_PATH_MAX) return true;
    return err_set(err, ERR_USER, "%.100s...: the path is too long; XDG_STATE_HOME can name a shorter one",
                   job->state_folder);
}

/* --- reading --- */

static bool number_at(struct json_object *object, const char *key, int64_t *number)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, json_type_int)) return false;
    *number = json_object_get_int64(value);
    return true;
}

static const char *text_at(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, key, &value)) return NULL;
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

static bool is_same(const struct verify_file *file, struct json_object *entry)
{
    int64_t device, inode, bytes, modified;
    return number_at(entry, "device", &device) && number_at(entry, "inode", &inode) &&
           number_at(entry, "bytes", &bytes) && number_at(entry, "modified_ns", &modified) &&
           (uint64_t)device == file->identity.device && (uint64_t)inode == file->identity.inode &&
           (uint64_t)bytes == file->identity.bytes && modified == file->identity.modified_ns;
}

static bool take_problems(struct verify_report *report, struct verify_file *file, struct json_object *entry,
                          struct err *err)
{
    struct json_object *list = NULL;
    int64_t n = 0;
    if (!json_object_object_get_ex(entry, "problems", &list) || !json_object_is_type(list, json_type_array))
        return true;
    for (size_t i = 0; i < json_object_array_length(list) && i < VERIFY_PROBLEMS_MAX; i++) {
        struct json_object *problem = json_object_array_get_idx(list, i);
        const char *tensor = text_at(problem, "tensor"), *text = text_at(problem, "text");
        if (tensor && text && !verify_add_problem(report, file, tensor, text, err)) return false;
    }
    if (number_at(entry, "n_problems", &n) && n > file->n_problems && n <= UINT32_MAX) file->n_problems = (uint32_t)n;
    return true;
}

static bool take_entry(struct verify_report *report, struct json_object *entry, struct err *err)
{
    const char *name = text_at(entry, "name");
    int64_t sum;
    for (uint32_t i = 0; name && i < report->n_files; i++) {
        struct verify_file *file = &report->files[i];
        if (strcmp(file->name, name) != 0 || file->was_read_before || !is_same(file, entry)) continue;
        if (!number_at(entry, "sum", &sum) || sum < VERIFY_SUM_UNKNOWN || sum > VERIFY_SUM_WRONG) continue;
        file->sum = (enum verify_sum)sum;
        file->was_read_before = true;
        return take_problems(report, file, entry, err);
    }
    return true;
}

/* A state that is damaged, or of something else, is none. */
bool verify_state_load(const struct verify_job *job, struct verify_report *report, struct err *err)
{
    char path[VERIFY_PATH_MAX];
    size_t bytes;
    struct err why = {0};
    struct json_object *doc = NULL, *files = NULL;
    if (!job->state_folder) return true;
    if (!state_path(job, path, err)) return false;
    if (!file_present(job->fs, path)) return true;
    char *text = file_read_all(job->alloc, job->fs, path, STATE_BYTES_MAX, &bytes, &why);
    bool ok = text && json_doc_parse(&doc, job->alloc, &json_rules_file, path, text, bytes, &why);
    alloc_put(job->alloc, text);
    if (!ok && why.kind == ERR_NOMEM) {
        *err = why;
        return false;
    }
    const char *format = ok ? text_at(doc, "format") : NULL;
    if (ok && format && strcmp(format, "weir-verify 1") == 0 && json_object_object_get_ex(doc, "files", &files) &&
        json_object_is_type(files, json_type_array))
        for (size_t i = 0; ok && i < json_object_array_length(files); i++)
            ok = take_entry(report, json_object_array_get_idx(files, i), err);
    else
        ok = true;
    json_object_put(doc);
    return ok;
}

/* --- writing --- */

static bool print_text(struct buf *out, const char *key, const char *text, struct err *err)
{
    return buf_printf(out, err, "\"%s\": ", key) && json_text_add_string(out, text, strlen(text), err);
}

static bool print_file(struct buf *out, const struct verify_file *file, struct err *err)
{
    const struct file_identity *id = &file->identity;
    if (!buf_add_text(out, "{", err) || !print_text(out, "name", file->name, err) ||
        !buf_printf(out, err,
                    ", \"device\": %" PRIu64 ", \"inode\": %" PRIu64 ", \"bytes\": %" PRIu64
                    ", \"modified_ns\": %" PRId64 ", \"sum\": %d, \"n_problems\": %" PRIu32 ", \"problems\": [",
                    id->device, id->inode, id->bytes, id->modified_ns, (int)file->sum, file->n_problems))
        return false;
    for (const struct verify_problem *p = file->problems; p; p = p->next)
        if (!buf_add_text(out, p == file->problems ? "{" : ", {", err) || !print_text(out, "tensor", p->tensor, err) ||
            !buf_add_text(out, ", ", err) || !print_text(out, "text", p->text, err) || !buf_add_text(out, "}", err))
            return false;
    return buf_add_text(out, "]}", err);
}

bool verify_state_save(const struct verify_job *job, const struct verify_report *report, const bool *is_done,
                       bool only_good, struct err *err)
{
    char path[VERIFY_PATH_MAX];
    struct buf out;
    bool is_first = true;
    if (!job->state_folder) return true;
    if (!state_path(job, path, err) || !folder_make(job->alloc, job->ws, job->state_folder, err)) return false;
    buf_init(&out, job->alloc, STATE_BYTES_MAX);
    bool ok = buf_add_text(&out, "{\"format\": \"weir-verify 1\", \"files\": [", err);
    for (uint32_t i = 0; ok && i < report->n_files; i++) {
        const struct verify_file *file = &report->files[i];
        if (!is_done[i] || (only_good && file->n_problems > 0)) continue;
        ok = buf_add_text(&out, is_first ? "\n" : ",\n", err) && print_file(&out, file, err);
        is_first = false;
    }
    ok = ok && buf_add_text(&out, "\n]}\n", err) && file_write_all(job->alloc, job->ws, path, out.data, out.bytes, err);
    buf_fini(&out);
    return ok;
}

bool verify_state_remove(const struct verify_job *job, struct err *err)
{
    char path[VERIFY_PATH_MAX];
    if (!job->state_folder) return true;
    if (!state_path(job, path, err)) return false;
    return !file_present(job->fs, path) || file_remove(job->alloc, job->ws, path, err);
}
