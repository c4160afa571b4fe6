#include "cli/serve_models.h"

#include "cli/library.h"
#include "cli/open_engine.h"
#include "run/engine_child.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { SCORE_LOGIT_ROWS = 32 }; /* rows of a prompt whose log-probabilities are asked for, in one pass */

#define NS_PER_S INT64_C(1000000000)

static void see_state(void *context, enum service_state state, const struct err *err)
{
    const struct serve_model *m = context;
    m->all->changed(m->all->told, m, state, err);
}

static void see_warning(void *context, const struct err *warning)
{
    const struct serve_model *m = context;
    m->all->warned(m->all->told, m, warning);
}

/* --- one model --- */

/* The folder's name, unless there is an alias. */
static void make_name(struct serve_model *m, const char *alias)
{
    const char *path = alias ? alias : m->dir;
    size_t end = strlen(path);
    while (!alias && end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (!alias && start > 0 && path[start - 1] != '/') start--;
    if (alias) start = 0;
    snprintf(m->name, sizeof m->name, "%.*s", (int)(end - start), path + start);
}

/* Of everything that alters answers: the program, the kernels, the model, its numerics, and how its state is kept. What
 * is not the default of the last two is named behind the hash. */
static void make_fingerprint(struct serve_model *m)
{
    const struct engine_settings *engine = &m->with.engine;
    const char *numerics = numerics_name(engine->numerics), *kv = kv_codec_of(engine->kv_storage)->name;
    bool is_exact = engine->numerics == NUMERICS_EXACT, is_f32 = engine->kv_storage == KV_STORAGE_F32;
    char text[512];
    int n = snprintf(text, sizeof text, "%s %08" PRIx32 " %s %s %s %g %016" PRIx64, version_text(), engine->cpu_mask,
                     m->name, numerics, kv, (double)engine->latent_norm_eps, XXH3_64bits(&m->config, sizeof m->config));
    snprintf(m->fingerprint, sizeof m->fingerprint, "weir-%016" PRIx64 "%s%s%s%s", XXH3_64bits(text, (size_t)n),
             is_exact ? "" : "-", is_exact ? "" : numerics, is_f32 ? "" : "-", is_f32 ? "" : kv);
}

/* A seed of the command line is that of every request that has none. */
static bool make_answers(struct serve_model *m, const struct command_context *context, struct err *err)
{
    const struct text_model *text = &m->text;
    enum sampling_fault fault;
    if (!answer_settings_init(&m->answers, context, &text->defaults, text->n_logits, text->n_tokens, err)) return false;
    const struct sampling_value seed = {.kind = SAMPLING_INTEGER, .integer = (int64_t)context->settings->seed};
    return !m->answers.has_seed || sampling_put(&m->answers.sampling, SAMPLING_SEED, "--seed", seed, &fault, err);
}

/* States of several models are not for each other to count and remove: each has a folder of its own in DIR, which is
 * made here, because whoever opens one makes only the last part of its name. */
static bool name_ssd_dir(struct serve_model *m, const struct settings *settings, struct err *err)
{
    const char *dir = settings->ssd_cache;
    struct write_system ws = m->with.ws;
    bool is_shared = dir && m->all->n > 1;
    m->with.ssd_dir = is_shared ? m->ssd_dir : dir;
    if (!is_shared) return true;
    if (ws.ops->mkdir(ws.context, dir, 0700) != 0 && errno != EEXIST)
        return err_set(err, ERR_IO, "--ssd-cache: %s: cannot make this folder: %s", dir, strerror(errno));
    int n = snprintf(m->ssd_dir, sizeof m->ssd_dir, "%s/%s", dir, m->name);
    return n < (int)sizeof m->ssd_dir || err_set(err, ERR_USER, "--ssd-cache: the path is too long");
}

static bool fill_settings(struct serve_model *m, const struct command_context *context, struct err *err)
{
    const struct settings *settings = context->settings;
    m->with = (struct service_settings){
        .fs = context->fs,
        .model = &m->text,
        .n_waiting_max = (uint32_t)settings->max_queue,
        .decode_stall_ns_max = (int64_t)settings->decode_stall_s * NS_PER_S,
        .ssd_bytes_max = settings->ssd_cache_max_bytes / m->all->n, /* it is for all of them together */
        .demote_idle_ns = (int64_t)settings->demote_idle_s * NS_PER_S,
        .ws = write_system_real(),
        .clock = clock_real(),
        .context = m,
        .changed = see_state,
        .warned = see_warning,
    };
    if (!name_ssd_dir(m, settings, err)) return false;
    if (!engine_settings_from(&m->with.engine, context, err)) return false;
    m->with.engine.n_sequences = (uint32_t)settings->batch;
    m->with.engine.logit_rows = (uint32_t)settings->batch + SCORE_LOGIT_ROWS;
    m->with.engine.streamed.usage_folder = library_usage_folder(context);
    m->with.engine.streamed.usage_import = settings->usage_import;
    make_fingerprint(m);
    return true;
}

static bool open_model(struct serve_models *all, size_t i, struct err *err)
{
    struct serve_model *m = &all->models[i];
    struct command_context context = *all->context; /* as of a command with this model alone */
    context.operands += i;
    context.n_operands = 1;
    m->all = all;
    m->dir = context.operands[0];
    make_name(m, context.settings->alias);
    if (!config_read(&m->config, context.alloc, context.fs, m->dir, err)) return false;
    if (!text_model_open(&m->text, context.alloc, context.fs, m->dir, &m->config, err)) return false;
    if (!make_answers(m, &context, err)) return false;
    return fill_settings(m, &context, err);
}

static struct served_model as_served(const struct serve_model *m)
{
    return (struct served_model){
        .name = m->name,
        .fingerprint = m->fingerprint,
        .numerics = numerics_name(m->with.engine.numerics),
        .kv = kv_codec_of(m->with.engine.kv_storage)->name,
        .text = &m->text,
        .service = m->service,
        .sampling = &m->answers.sampling,
        .chat = m->answers.chat,
        .context_tokens = m->with.engine.context_tokens,
        .is_isolated = m->keeper != NULL,
    };
}

/* --- all of them --- */

static bool check_names(const struct serve_models *all, struct err *err)
{
    if (all->n > 1 && all->context->settings->alias)
        return err_set(err, ERR_USER, "--alias names one model; several are called as their folders");
    for (size_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(all->models[i].name, all->models[k].name) == 0)
                return err_set(err, ERR_USER,
                               "two models would be called '%.100s': %.200s and %.200s; clients could not tell them "
                               "apart, so reach one by a link of another name",
                               all->models[i].name, all->models[k].dir, all->models[i].dir);
    return true;
}

/* Each engine that may be there gets the same part of the budget. */
static bool share_budget(struct serve_models *all, uint32_t n_seats, struct err *err)
{
    uint64_t budget_bytes = all->context->settings->ram_budget_bytes;
    if (n_seats == 1) return true;
    if (budget_bytes == SETTING_WORD)
        return err_set(err, ERR_USER, "--model-pool %" PRIu32 " needs --ram-budget, which the engines share evenly",
                       n_seats);
    for (size_t i = 0; i < all->n; i++) all->models[i].with.engine.ram_budget_bytes = budget_bytes / n_seats;
    return true;
}

static bool make_pool(struct serve_models *all, struct err *err)
{
    uint64_t asked = all->context->settings->model_pool;
    uint32_t n = (uint32_t)all->n, n_seats = asked < n ? (uint32_t)asked : n;
    if (n == 1) return true;
    if (!share_budget(all, n_seats, err)) return false;
    if (!engine_pool_new(&all->pool, all->context->alloc, n_seats, n, err)) return false;
    for (uint32_t i = 0; i < n; i++) {
        all->models[i].with.pool = all->pool;
        all->models[i].with.pool_member = i;
    }
    return true;
}

/* True also in the processes that this makes, when their role is over. */
static bool make_keeper(struct serve_models *all, struct serve_model *m, struct err *err)
{
    int fd;
    struct err why = {0};
    if (!keeper_start(&m->keeper, all->context->alloc, &all->role, &fd, err)) return false;
    m->with.keeper = m->keeper;
    if (all->role != KEEPER_CHILD) return true;
    all->child_failed = !engine_child_run(fd, all->context->alloc, &m->with, &why); /* the owner was told why */
    close(fd);
    return true;
}

static bool make_keepers(struct serve_models *all, struct err *err)
{
    if (all->n == 1 && !all->context->settings->isolate) return true;
    for (size_t i = 0; i < all->n; i++) {
        if (!make_keeper(all, &all->models[i], err)) return false;
        if (all->role != KEEPER_OWNER) return true;
    }
    return true;
}

bool serve_models_start(struct serve_models *models, struct err *err)
{
    struct serve_models *all = models;
    struct alloc *alloc = all->context->alloc;
    all->n = all->context->n_operands;
    all->models = alloc_get_array(alloc, all->n, sizeof *all->models, err);
    if (!all->models) return false;
    all->served = alloc_get_array(alloc, all->n, sizeof *all->served, err);
    if (!all->served) return false;
    for (size_t i = 0; i < all->n; i++)
        if (!open_model(all, i, err)) return false;
    if (!check_names(all, err) || !make_pool(all, err) || !make_keepers(all, err)) return false;
    if (all->role != KEEPER_OWNER) return true;
    for (size_t i = 0; i < all->n; i++) {
        if (!service_new(&all->models[i].service, alloc, &all->models[i].with, err)) return false;
        all->served[i] = as_served(&all->models[i]);
    }
    return true;
}

void serve_models_close(struct serve_models *models)
{
    for (size_t i = 0; i < models->n; i++) service_close(models->models[i].service);
}

uint32_t serve_models_open_requests(struct serve_models *models)
{
    uint32_t n = 0;
    struct service_stats stats;
    for (size_t i = 0; i < models->n; i++) {
        service_stats(models->models[i].service, &stats);
        n += stats.n_open;
    }
    return n;
}

/* All are cancelled before the first is stopped, or those that wait for its seat would take it. */
uint32_t serve_models_stop(struct serve_models *models)
{
    uint32_t n_cancelled = 0;
    size_t n = models->models ? models->n : 0;
    for (size_t i = 0; i < n; i++)
        if (models->models[i].service) {
            service_close(models->models[i].service);
            n_cancelled += service_cancel_all(models->models[i].service);
        }
    for (size_t i = 0; i < n; i++)
        if (models->models[i].service) service_stop(models->models[i].service, 0);
    return n_cancelled;
}

/* Keepers go in the opposite order of their coming: each holds the streams of those before it. */
void serve_models_fini(struct serve_models *models)
{
    struct alloc *alloc = models->context->alloc;
    for (size_t i = models->n; models->models && i-- > 0;) service_free(models->models[i].service);
    for (size_t i = models->n; models->models && i-- > 0;) {
        keeper_free(models->models[i].keeper);
        text_model_close(&models->models[i].text);
    }
    engine_pool_free(models->pool);
    alloc_put(alloc, models->served);
    alloc_put(alloc, models->models);
}
