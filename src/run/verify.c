#include "run/verify.h"

#include "base/pace.h"
#include "fmt/inventory.h"
#include "run/verify_int.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 4096, BLOCK_BYTES = 4 << 20 };
#define ARENA_BYTES_MAX (UINT64_C(256) << 20)
#define SAVE_NS INT64_C(1000000000) /* small files are many and quick: not each of them is worth an fsync */

struct verification {
    const struct verify_job *job;
    struct verify_report *report;
    struct verify_expectations *expectations;
    struct pace pace;
    uint64_t bytes_done;
    const char *file;
    bool *is_done; /* [n_files] */
    int64_t saved_ns;
    void *block;
};

/* --- which files --- */

static bool has_file(const struct verify_report *report, const char *name)
{
    for (uint32_t i = 0; i < report->n_files; i++)
        if (strcmp(report->files[i].name, name) == 0) return true;
    return false;
}

static bool add_file(struct verification *v, const char *name, struct err *err)
{
    struct verify_report *report = v->report;
    char path[VERIFY_PATH_MAX];
    struct file file;
    struct err ignored = {0}; /* that it cannot be opened is found again, and told, when it is read */
    if (report->n_files == FILES_MAX)
        return err_set(err, ERR_DATA, "%s: more than %d files; give the folder of one model", v->job->dir,
                       (int)FILES_MAX);
    struct verify_file *out = &report->files[report->n_files];
    out->name = arena_text(&report->arena, name, strlen(name), err);
    if (!out->name) return false;
    report->n_files++;
    if (snprintf(path, sizeof path, "%s/%s", v->job->dir, name) >= (int)sizeof path) return true;
    if (!file_open(&file, v->job->alloc, v->job->fs, path, &ignored)) return true;
    out->identity = file.identity;
    out->bytes = file.identity.bytes;
    report->bytes += out->bytes;
    file_close(&file);
    return true;
}

/* Shards always, other files when something is known about them. */
static bool is_of_interest(const struct verification *v, const char *name)
{
    struct verify_expectation expectation;
    size_t n = strlen(name);
    static const char suffix[] = ".safetensors";
    if (n >= sizeof suffix && strcmp(name + n - (sizeof suffix - 1), suffix) == 0) return true;
    verify_expect(v->expectations, name, &expectation);
    return expectation.digest[0] != 0;
}

static int compare_files(const void *a, const void *b)
{
    const struct verify_file *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool list_files(struct verification *v, struct err *err)
{
    bool ok = true;
    const char *name;
    DIR *folder = opendir(v->job->dir);
    if (!folder)
        return err_set(
            err, errno == ENOENT || errno == ENOTDIR ? ERR_DATA : ERR_IO,
            "%s: cannot open the folder: %s; give the folder of a model, or part of a name that weir models lists",
            v->job->dir, strerror(errno));
    for (struct dirent *entry; ok && (entry = readdir(folder));)
        ok = !is_of_interest(v, entry->d_name) || add_file(v, entry->d_name, err);
    closedir(folder);
    for (uint32_t i = 0; ok && (name = verify_expected_name(v->expectations, i)); i++)
        ok = has_file(v->report, name) || add_file(v, name, err); /* one that lacks is told when it is read */
    if (ok && v->report->n_files > 0)
        qsort(v->report->files, v->report->n_files, sizeof *v->report->files, compare_files);
    return ok;
}

/* --- the work --- */

static bool see_bytes(void *context, uint64_t bytes, struct err *err)
{
    struct verification *v = context;
    const struct verify_job *job = v->job;
    v->bytes_done += bytes;
    v->report->bytes_read += bytes;
    pace_add(&v->pace, clock_now_ns(job->clock), v->report->bytes_read);
    /* A file that could not be opened when they were listed, or has grown since, was not counted. */
    uint64_t whole = v->report->bytes > v->bytes_done ? v->report->bytes : v->bytes_done;
    const struct verify_progress progress = {.file = v->file,
                                             .bytes_done = v->bytes_done,
                                             .bytes = whole,
                                             .bytes_per_second = pace_per_second(&v->pace),
                                             .seconds_left = pace_seconds_left(&v->pace, whole - v->bytes_done)};
    return !job->progress || job->progress(job->context, &progress) ||
           err_set(err, ERR_CANCELLED, "stopped; the same command goes on");
}

static bool save(struct verification *v, bool must, struct err *err)
{
    int64_t now_ns = clock_now_ns(v->job->clock);
    if (!must && now_ns - v->saved_ns < SAVE_NS) return true;
    v->saved_ns = now_ns;
    return verify_state_save(v->job, v->report, v->is_done, false, err);
}

static bool read_one(struct verification *v, uint32_t index, struct err *err)
{
    struct verify_file *file = &v->report->files[index];
    struct verify_expectation expectation;
    const struct verify_reader reader = {.job = v->job,
                                         .report = v->report,
                                         .block = v->block,
                                         .block_bytes = v->job->block_bytes ? v->job->block_bytes : BLOCK_BYTES,
                                         .context = v,
                                         .progress = see_bytes};
    v->file = file->name;
    if (file->was_read_before) {
        v->bytes_done += file->bytes;
    } else {
        verify_expect(v->expectations, file->name, &expectation);
        if (!verify_read_file(&reader, file, &expectation, err)) return false;
    }
    v->is_done[index] = true;
    v->report->n_bad_files += file->n_problems > 0;
    v->report->n_sums_right += file->sum == VERIFY_SUM_RIGHT;
    return file->was_read_before || save(v, false, err);
}

static bool read_all(struct verification *v, struct err *err)
{
    for (uint32_t i = 0; i < v->report->n_files; i++) {
        if (read_one(v, i, err)) continue;
        struct err ignored = {0}; /* the reason for stopping is the one to tell */
        return save(v, true, &ignored) && false;
    }
    return true;
}

/* Whether all the files together are a model. */
static bool check_model(struct verification *v, struct err *err)
{
    struct model {
        struct config config;
        struct catalogue catalogue;
        struct inventory inventory;
    } *m = alloc_get(v->job->alloc, sizeof *m, err);
    const struct verify_job *job = v->job;
    struct err why = {0};
    if (!m) return false;
    bool ok = config_read(&m->config, job->alloc, job->fs, job->dir, &why) &&
              catalogue_open(&m->catalogue, job->alloc, job->fs, job->dir, &why) &&
              inventory_build(&m->inventory, job->alloc, &m->config, &m->catalogue, &why);
    if (ok && m->inventory.dsa == CAPABILITY_REFUSED)
        ok = err_set(&why, ERR_DATA, "the sparse index is incomplete: %s", m->inventory.dsa_reason);
    if (ok && m->inventory.mtp == CAPABILITY_REFUSED)
        ok = err_set(&why, ERR_DATA, "the MTP layer is incomplete: %s", m->inventory.mtp_reason);
    inventory_fini(&m->inventory);
    catalogue_close(&m->catalogue);
    alloc_put(job->alloc, m);
    if (ok) return true;
    if (why.kind == ERR_NOMEM) {
        *err = why;
        return false;
    }
    snprintf(v->report->model_problem, sizeof v->report->model_problem, "%s", why.text);
    return true;
}

static bool end_state(struct verification *v, struct err *err)
{
    if (verify_is_clean(v->report)) return verify_state_remove(v->job, err);
    return verify_state_save(v->job, v->report, v->is_done, true, err);
}

static bool verify(struct verification *v, struct err *err)
{
    const struct verify_job *job = v->job;
    uint64_t block_bytes = job->block_bytes ? job->block_bytes : BLOCK_BYTES;
    v->report->files = alloc_get_array(job->alloc, FILES_MAX, sizeof *v->report->files, err);
    v->is_done = v->report->files ? alloc_get_array(job->alloc, FILES_MAX, sizeof *v->is_done, err) : NULL;
    v->block = v->is_done ? alloc_get(job->alloc, block_bytes, err) : NULL;
    if (!v->block || !verify_expectations_read(&v->expectations, job, err)) return false;
    v->saved_ns = clock_now_ns(job->clock);
    return list_files(v, err) && verify_state_load(job, v->report, err) && read_all(v, err) && check_model(v, err) &&
           end_state(v, err);
}

bool verify_folder(const struct verify_job *job, struct verify_report *report, struct err *err)
{
    struct verification v = {.job = job, .report = report};
    *report = (struct verify_report){.alloc = job->alloc};
    arena_init(&report->arena, job->alloc, ARENA_BYTES_MAX);
    bool ok = verify(&v, err);
    verify_expectations_free(v.expectations);
    alloc_put(job->alloc, v.block);
    alloc_put(job->alloc, v.is_done);
    if (!ok) verify_report_fini(report);
    return ok;
}

void verify_report_fini(struct verify_report *report)
{
    if (!report->alloc) return;
    alloc_put(report->alloc, report->files);
    arena_fini(&report->arena);
    *report = (struct verify_report){0};
}
