/* weir verify: every byte of a model read once, and what is wrong with it. */
#include "base/buf.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "fmt/json_text.h"
#include "run/verify.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JSON_BYTES_MAX (UINT64_C(256) << 20)

struct verifying {
    struct command_context *context;
    struct progress progress;
    const atomic_bool *cancel;
    struct verify_report report;
    struct buf commands; /* a JSON list, or lines */
    bool is_first;
};

static bool see_progress(void *context, const struct verify_progress *p)
{
    struct verifying *v = context;
    progress_draw(&v->progress, p->bytes_done, p->bytes, p->bytes_per_second, p->seconds_left, p->file);
    return !atomic_load(v->cancel);
}

/* --- what to do --- */

static bool add_command(struct verifying *v, const char *text, struct err *err)
{
    bool is_json = v->context->settings->json;
    const char *between = v->is_first ? "" : is_json ? ", " : "\n";
    v->is_first = false;
    if (!buf_add_text(&v->commands, between, err)) return false;
    return is_json ? json_text_add_string(&v->commands, text, strlen(text), err)
                   : buf_printf(&v->commands, err, "  %s", text);
}

/* Inside single quotes nothing means anything to a shell but the quote itself. */
static bool add_quoted(struct buf *out, const char *text, struct err *err)
{
    if (!buf_add_char(out, '\'', err)) return false;
    for (; *text; text++)
        if (!(*text == '\'' ? buf_add_text(out, "'\\''", err) : buf_add_char(out, *text, err))) return false;
    return buf_add_char(out, '\'', err);
}

/* Removes what the name leads to: in a hub cache the blob, not the link. */
static bool add_removal(struct verifying *v, const char *name, struct err *err)
{
    char path[2 * PATH_MAX], target[PATH_MAX];
    struct buf line;
    int n = snprintf(path, sizeof path, "%s/%s", v->context->operands[0], name);
    if (n < 0 || n >= (int)sizeof path || access(path, F_OK) != 0) return true; /* nothing is there to remove */
    buf_init(&line, v->context->alloc, 8 * PATH_MAX);
    bool ok = buf_add_text(&line, "rm ", err) && add_quoted(&line, realpath(path, target) ? target : path, err) &&
              add_command(v, line.data, err);
    buf_fini(&line);
    return ok;
}

/* ".../models--ORG--NAME/snapshots/COMMIT": how to ask for it again, or false. */
static bool get_command(const char *dir, char *text, size_t room)
{
    char path[PATH_MAX];
    if (!realpath(dir, path)) return false;
    char *commit = strrchr(path, '/');
    *commit++ = 0;
    char *snapshots = strrchr(path, '/');
    if (!snapshots || strcmp(snapshots, "/snapshots") != 0) return false;
    *snapshots = 0;
    char *repo = strrchr(path, '/');
    if (!repo || strncmp(repo, "/models--", 9) != 0) return false;
    repo += 9;
    char *between = strstr(repo, "--");
    int n = snprintf(text, room, "weir get %.*s%s%s --revision %s", between ? (int)(between - repo) : INT_MAX, repo,
                     between ? "/" : "", between ? between + 2 : "", commit);
    return n > 0 && n < (int)room;
}

static bool find_commands(struct verifying *v, struct err *err)
{
    char get[1024];
    bool is_fetched = get_command(v->context->operands[0], get, sizeof get);
    for (uint32_t i = 0; i < v->report.n_files; i++)
        if (v->report.files[i].n_problems > 0 && !add_removal(v, v->report.files[i].name, err)) return false;
    return !is_fetched || add_command(v, get, err);
}

/* --- the report --- */

static const char *const sum_names[] = {
    [VERIFY_SUM_UNKNOWN] = "unknown", [VERIFY_SUM_RIGHT] = "right", [VERIFY_SUM_WRONG] = "wrong"};

static void print_problems(FILE *out, const struct verify_file *file)
{
    uint32_t n = 0;
    for (const struct verify_problem *p = file->problems; p; p = p->next, n++)
        fprintf(out, "%s: %s%s%s\n", file->name, p->tensor, p->tensor[0] ? ": " : "", p->text);
    if (n < file->n_problems) fprintf(out, "%s: and %" PRIu32 " more problems\n", file->name, file->n_problems - n);
}

static bool print_text(struct verifying *v, struct err *err)
{
    const struct verify_report *r = &v->report;
    FILE *out = v->context->out;
    char bytes[UNITS_TEXT_MAX], read[UNITS_TEXT_MAX];
    for (uint32_t i = 0; i < r->n_files; i++) print_problems(out, &r->files[i]);
    if (r->model_problem[0]) fprintf(out, "the model: %s\n", r->model_problem);
    fprintf(out,
            "%" PRIu32 " files, %s (%s read now): %" PRIu32 " checksums are right, %" PRIu32 " files are damaged\n",
            r->n_files, units_format_bytes(bytes, r->bytes), units_format_bytes(read, r->bytes_read), r->n_sums_right,
            r->n_bad_files);
    if (verify_is_clean(r)) return true;
    if (!find_commands(v, err)) return false;
    if (v->commands.bytes) fprintf(out, "To replace only what is damaged:\n%s\n", v->commands.data);
    return true;
}

static bool add_text(struct buf *out, const char *key, const char *text, struct err *err)
{
    return buf_printf(out, err, "\"%s\": ", key) && json_text_add_string(out, text, strlen(text), err);
}

static bool add_file(struct buf *out, const struct verify_file *file, struct err *err)
{
    if (!buf_add_text(out, "{", err) || !add_text(out, "name", file->name, err) ||
        !buf_printf(out, err,
                    ", \"bytes\": %" PRIu64 ", \"checksum\": \"%s\", \"n_problems\": %" PRIu32 ", \"problems\": [",
                    file->bytes, sum_names[file->sum], file->n_problems))
        return false;
    for (const struct verify_problem *p = file->problems; p; p = p->next)
        if (!buf_add_text(out, p == file->problems ? "{" : ", {", err) || !add_text(out, "tensor", p->tensor, err) ||
            !buf_add_text(out, ", ", err) || !add_text(out, "text", p->text, err) || !buf_add_text(out, "}", err))
            return false;
    return buf_add_text(out, "]}", err);
}

static bool add_report(struct verifying *v, struct buf *out, struct err *err)
{
    const struct verify_report *r = &v->report;
    if (!buf_printf(out, err, "{\"ok\": %s, ", verify_is_clean(r) ? "true" : "false") ||
        !add_text(out, "path", v->context->operands[0], err) ||
        !buf_printf(out, err,
                    ", \"bytes\": %" PRIu64 ", \"bytes_read\": %" PRIu64 ", \"checksums_right\": %" PRIu32
                    ", \"damaged_files\": %" PRIu32 ", ",
                    r->bytes, r->bytes_read, r->n_sums_right, r->n_bad_files) ||
        !add_text(out, "model_problem", r->model_problem, err) || !buf_add_text(out, ", \"files\": [", err))
        return false;
    for (uint32_t i = 0; i < r->n_files; i++)
        if (!buf_add_text(out, i ? ",\n" : "\n", err) || !add_file(out, &r->files[i], err)) return false;
    if (!verify_is_clean(r) && !find_commands(v, err)) return false;
    return buf_printf(out, err, "], \"commands\": [%s]}\n", v->commands.data ? v->commands.data : "");
}

static bool print_json(struct verifying *v, struct err *err)
{
    struct buf out;
    buf_init(&out, v->context->alloc, JSON_BYTES_MAX);
    bool ok = add_report(v, &out, err);
    if (ok) fwrite(out.data, 1, out.bytes, v->context->out);
    buf_fini(&out);
    return ok;
}

static bool verify(struct verifying *v, struct err *err)
{
    struct command_context *c = v->context;
    const struct verify_job job = {
        .dir = c->operands[0],
        .state_folder = c->settings->state_folder,
        .context = v,
        .progress = see_progress,
        .alloc = c->alloc,
        .fs = c->fs,
        .ws = write_system_real(),
        .clock = clock_real(),
    };
    v->cancel = interrupt_watch();
    bool ok = verify_folder(&job, &v->report, err);
    interrupt_unwatch();
    progress_clear(&v->progress);
    if (!ok || !(c->settings->json ? print_json(v, err) : print_text(v, err))) return false;
    if (verify_is_clean(&v->report)) return true;
    return err_set(err, ERR_DATA,
                   "%s: damaged or not complete (%" PRIu32
                   " files%s); the report says what, and how to replace only that",
                   job.dir, v->report.n_bad_files, v->report.model_problem[0] ? ", and the model as a whole" : "");
}

int command_verify(struct command_context *context)
{
    struct err err = {0};
    struct verifying v = {
        .context = context, .progress = progress_on(context->log, context->settings->dumb_terminal), .is_first = true};
    buf_init(&v.commands, context->alloc, JSON_BYTES_MAX);
    bool ok = verify(&v, &err);
    buf_fini(&v.commands);
    verify_report_fini(&v.report);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
