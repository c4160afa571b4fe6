/* weir get: a model from a hub into the cache that all hub clients share. */
#include "base/units.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/resolve_model.h"
#include "fetch/fetch.h"
#include "fmt/json_text.h"
#include "store/scan.h"
#include <inttypes.h>
#include <string.h>

enum { TOKEN_FILE_BYTES_MAX = 64 << 10, CONNECT_S_MAX = 20, STALL_S_MAX = 30 };
#define JSON_BYTES_MAX (UINT64_C(256) << 20)
#define DEFAULT_ENDPOINT "https://huggingface.co"

struct getting {
    struct command_context *context;
    struct fetch_job job;
    struct progress progress;
    struct location cache;
    char *token;            /* what the token file holds, or NULL */
    struct buf plan;        /* for --dry-run: the files, as JSON */
    uint64_t bytes_missing; /* of the plan */
    const atomic_bool *cancel;
};

/* --- what the environment says --- */

/* A token goes into a header, so it has no blanks and no control characters inside. */
static bool check_token(const char *token, const char *where, struct err *err)
{
    for (const char *c = token; *c; c++)
        if (*c <= ' ' || *c > '~')
            return err_set(err, ERR_USER, "%s: holds characters that no token has; write it again", where);
    return true;
}

static bool read_token_file(struct getting *g, struct err *err)
{
    struct location path;
    struct command_context *c = g->context;
    size_t bytes;
    if (!location_hub_token(&path, c->environment, err)) return false;
    if (!file_present(c->fs, path.path)) return true;
    g->token = file_read_all(c->alloc, c->fs, path.path, TOKEN_FILE_BYTES_MAX, &bytes, err);
    if (!g->token) return err_context(err, "the hub's token (HF_TOKEN_PATH can name another file)");
    char *token = g->token + strspn(g->token, " \t\r\n");
    size_t n = strcspn(token, " \t\r\n");
    if (token[n + strspn(token + n, " \t\r\n")]) n = strlen(token); /* more than one word: refused below */
    token[n] = 0;
    if (n > 0) g->job.network.token = token;
    return check_token(token, path.path, err);
}

static bool find_token(struct getting *g, struct err *err)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *token = environment_get(g->context->environment, names[i]);
        if (!token) continue;
        g->job.network.token = token;
        return check_token(token, names[i], err);
    }
    return read_token_file(g, err);
}

static const char *first_of(char *const *environment, const char *a, const char *b, const char *c, const char *d)
{
    const char *names[] = {a, b, c, d};
    const char *value = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !value; i++)
        value = names[i] ? environment_get(environment, names[i]) : NULL;
    return value;
}

static bool read_network(struct getting *g, struct err *err)
{
    char *const *environment = g->context->environment;
    struct fetch_network *n = &g->job.network;
    const char *endpoint = environment_get(environment, "HF_ENDPOINT");
    n->endpoint = endpoint ? endpoint : DEFAULT_ENDPOINT;
    bool is_plain = strncmp(n->endpoint, "http://", 7) == 0;
    if (!is_plain && strncmp(n->endpoint, "https://", 8) != 0)
        return err_set(err, ERR_USER,
                       "HF_ENDPOINT: '%.200s' is no address such as " DEFAULT_ENDPOINT "; unset it for that one",
                       n->endpoint);
    /* In capitals HTTP_PROXY is left alone: a server that runs programs sets it from a visitor's header. */
    n->proxy = is_plain ? first_of(environment, "http_proxy", "all_proxy", "ALL_PROXY", NULL)
                        : first_of(environment, "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY");
    n->no_proxy = first_of(environment, "no_proxy", "NO_PROXY", NULL, NULL);
    n->agent = "weir/" WEIR_VERSION;
    n->is_offline = environment_says_yes(environment, "HF_HUB_OFFLINE");
    n->connect_s_max = CONNECT_S_MAX;
    n->stall_s_max = STALL_S_MAX;
    return find_token(g, err);
}

/* --- what is told on the way --- */

static const char *const state_names[] = {
    [FETCH_MISSING] = "missing", [FETCH_PARTIAL] = "partial", [FETCH_COMPLETE] = "here"};

static void print_plan(const struct getting *g, const struct fetch_plan *plan)
{
    FILE *out = g->context->out;
    char first[UNITS_TEXT_MAX];
    fprintf(out, "%12s  %-8s %s\n", "size", "state", "file");
    for (uint32_t i = 0; i < plan->n_files; i++)
        fprintf(out, "%12s  %-8s %s\n", units_format_bytes(first, plan->files[i].file->bytes),
                state_names[plan->files[i].state], plan->files[i].file->path);
}

static bool add_plan(struct getting *g, const struct fetch_plan *plan, struct err *err)
{
    struct buf *out = &g->plan;
    for (uint32_t i = 0; i < plan->n_files; i++) {
        const struct fetch_file *f = &plan->files[i];
        if (!buf_add_text(out, i ? ", {\"path\": " : "{\"path\": ", err) ||
            !json_text_add_string(out, f->file->path, strlen(f->file->path), err) ||
            !buf_printf(out, err,
                        ", \"bytes\": %" PRIu64 ", \"digest\": \"%s\", \"state\": \"%s\", \"here\": %" PRIu64 "}",
                        f->file->bytes, f->file->blob, state_names[f->state], f->credit))
            return false;
    }
    return true;
}

static bool see_plan(void *context, const struct fetch_plan *plan)
{
    struct getting *g = context;
    const struct settings *s = g->context->settings;
    char all[UNITS_TEXT_MAX], missing[UNITS_TEXT_MAX], room[UNITS_TEXT_MAX];
    struct err ignored = {0};
    g->bytes_missing = plan->bytes_missing;
    progress_clear(&g->progress);
    fprintf(g->context->log,
            "%s, revision %s, commit %.12s: %" PRIu32 " files, %s (%" PRIu32 " other files are not needed)\n",
            g->job.repo.id, g->job.repo.revision, plan->commit, plan->n_files, units_format_bytes(all, plan->bytes),
            plan->n_left_out);
    fprintf(g->context->log, "%s to fetch, %s free in %s\n", units_format_bytes(missing, plan->bytes_missing),
            units_format_bytes(room, plan->bytes_free), g->cache.path);
    if (!s->dry_run) return true;
    if (!s->json) print_plan(g, plan);
    return !s->json || add_plan(g, plan, &ignored);
}

static bool see_progress(void *context, const struct fetch_progress *p)
{
    struct getting *g = context;
    char done[UNITS_TEXT_MAX], all[UNITS_TEXT_MAX];
    if (p->bytes > 0 && !p->has_finished)
        progress_draw(&g->progress, p->bytes_done, p->bytes, p->bytes_per_second, p->seconds_left,
                      p->is_waiting ? "waiting" : p->path);
    if (p->has_finished && !g->progress.is_shown)
        fprintf(g->context->log, "%s: done, %s of %s\n", p->path, units_format_bytes(done, p->bytes_done),
                units_format_bytes(all, p->bytes));
    return !atomic_load(g->cancel);
}

/* --- the command --- */

static bool see_passed_over(void *context, const char *path, const char *reason)
{
    const struct getting *g = context;
    (void)path;
    fprintf(g->context->log, "not registered as a model: %s\n", reason);
    return true;
}

/* So that it can be named without a scan. That this fails (only some files were wanted, or the registry cannot be
 * written) makes the fetched files no worse. */
static void register_model(struct getting *g, const char *path)
{
    struct err err = {0};
    struct registry *registry = NULL;
    struct command_context *c = g->context;
    struct scan_job job = {.watch = {.context = g, .passed_over = see_passed_over}, .alloc = c->alloc, .fs = c->fs};
    bool ok = open_registry(&registry, c, true, &err);
    job.registry = registry;
    if (!ok || !scan_one(&job, path, &err)) fprintf(c->log, "not registered as a model: %s\n", err.text);
    registry_close(registry);
}

static bool print_result(struct getting *g, const struct fetch_result *r, struct err *err)
{
    FILE *out = g->context->out;
    const struct settings *s = g->context->settings;
    struct buf path;
    if (!s->json) {
        if (!s->dry_run) fprintf(out, "%s\n", r->path);
        return true;
    }
    buf_init(&path, g->context->alloc, JSON_BYTES_MAX);
    bool ok = json_text_add_string(&path, r->path, strlen(r->path), err);
    if (ok) {
        fprintf(out, "{\"repo\": \"%s\", \"revision\": \"%s\", \"commit\": \"%s\", \"path\": %s, \"files\": ",
                g->job.repo.id, g->job.repo.revision, r->commit, path.data);
        if (s->dry_run)
            fprintf(out, "[%s], \"bytes_missing\": %" PRIu64, g->plan.data ? g->plan.data : "", g->bytes_missing);
        else
            fprintf(out, "%" PRIu32 ", \"bytes_fetched\": %" PRIu64, r->n_files, r->bytes_fetched);
        fprintf(out, ", \"bytes\": %" PRIu64 ", \"offline\": %s}\n", r->bytes, r->was_offline ? "true" : "false");
    }
    buf_fini(&path);
    return ok;
}

static bool get(struct getting *g, struct err *err)
{
    struct fetch_result result;
    struct command_context *c = g->context;
    const struct settings *s = c->settings;
    g->job = (struct fetch_job){
        .cache = g->cache.path,
        .selection = {.include = s->include, .exclude = s->exclude},
        .only_plan = s->dry_run,
        .tuning = fetch_tuning_default(),
        .watch = {.context = g, .planned = see_plan, .progress = see_progress},
        .alloc = c->alloc,
        .fs = c->fs,
        .ws = write_system_real(),
        .clock = clock_real(),
    };
    if (!hub_parse_repo(&g->job.repo, c->operands[0], s->revision, err)) return false;
    if (!location_hub_cache(&g->cache, c->environment, err) || !read_network(g, err)) return false;
    bool ok = fetch_repo(&g->job, &result, err);
    progress_clear(&g->progress);
    if (!ok) return false;
    if (result.was_offline)
        fprintf(c->log, "HF_HUB_OFFLINE is set: the hub was not asked, this is what an earlier run fetched\n");
    if (!s->dry_run) register_model(g, result.path);
    return print_result(g, &result, err);
}

int command_get(struct command_context *context)
{
    struct err err = {0};
    struct getting g = {.context = context, .progress = progress_on(context->log, context->settings->dumb_terminal)};
    if (environment_says_yes(context->environment, "HF_HUB_DISABLE_PROGRESS_BARS")) g.progress.is_shown = false;
    buf_init(&g.plan, context->alloc, JSON_BYTES_MAX);
    g.cancel = interrupt_watch();
    bool ok = get(&g, &err);
    interrupt_unwatch();
    buf_fini(&g.plan);
    alloc_put(context->alloc, g.token);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
