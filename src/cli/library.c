#include "cli/library.h"

#include "base/assert.h"
#include "cli/draft_settings.h"
#include "cli/folders.h"
#include <math.h>
#include <stdlib.h>

enum { USAGE_HISTORY_ON }; /* of the choices of --usage-history */

static enum err_kind kind_of(enum weir_status status)
{
    switch (status) {
    case WEIR_OK: return ERR_NONE;
    case WEIR_USER: return ERR_USER;
    case WEIR_FIT: return ERR_FIT;
    case WEIR_DATA: return ERR_DATA;
    case WEIR_IO: return ERR_IO;
    case WEIR_NOMEM: return ERR_NOMEM;
    case WEIR_BUSY: return ERR_BUSY;
    case WEIR_CANCELLED: return ERR_CANCELLED;
    case WEIR_FAILED: break;
    }
    return ERR_FAILED;
}

bool library_ok(enum weir_status status, const struct weir_error *error, struct err *err)
{
    return status == WEIR_OK || err_set(err, kind_of(status), "%s", error->text);
}

bool library_open_model(struct weir_model **model, const struct command_context *context, struct err *err)
{
    struct weir_error error;
    return library_ok(weir_model_open(model, context->operands[0], &error), &error, err);
}

bool library_needs_text(struct weir_model *model, struct err *err)
{
    struct weir_error error;
    uint32_t *ids;
    size_t n;
    if (!library_ok(weir_tokenize(model, "", 0, WEIR_MARKERS_ARE_TEXT, &ids, &n, &error), &error, err)) return false;
    weir_free(ids);
    return true;
}

void library_close_model(struct weir_model *model)
{
    enum weir_status status = weir_model_close(model, NULL);
    ASSERT(status == WEIR_OK);
}

/* "25" or "25%". */
static bool read_percent(double *share, const char *text, struct err *err)
{
    char *end;
    double percent = strtod(text, &end);
    if (*end == '%') end++;
    if (end == text || *end || !(percent > 0 && percent <= 100))
        return err_set(err, ERR_USER, "--experts-resident: '%s' is not a percentage above 0 and up to 100", text);
    *share = percent / 100;
    return true;
}

static bool generates(const struct command_context *context)
{
    return context->command->id == COMMAND_GENERATE || context->command->id == COMMAND_CHAT;
}

bool library_drafts(const struct command_context *context)
{
    enum command_id id = context->command->id;
    return generates(context) || id == COMMAND_SERVE || id == COMMAND_FIT;
}

bool library_settings(struct weir_settings *settings, const struct command_context *context, struct err *err)
{
    const struct settings *s = context->settings;
    weir_settings_init(settings, sizeof *settings);
    if (s->threads != SETTING_WORD) settings->n_threads = (uint32_t)s->threads;
    if (s->ram_budget_bytes != SETTING_WORD) settings->ram_budget_bytes = s->ram_budget_bytes;
    if (s->prompt_cache_bytes != SETTING_WORD) settings->prompt_cache_bytes = s->prompt_cache_bytes;
    if (s->prefill_chunk != SETTING_WORD) settings->prefill_chunk = (uint32_t)s->prefill_chunk;
    if (s->io_depth != SETTING_WORD) settings->io_depth = (uint32_t)s->io_depth;
    if (!isnan(s->latent_norm_eps)) settings->latent_norm_eps = s->latent_norm_eps;
    settings->context_tokens = (uint32_t)s->context_length;
    settings->numerics = (enum weir_numerics)s->numerics;
    settings->kv = (enum weir_kv)s->kv;
    settings->direct_io = (enum weir_direct)s->direct_io;
    settings->no_prefetch = s->prefetch == 0;
    settings->policy = s->policy;
    settings->mirrors = s->mirror.text;
    settings->n_mirrors = (uint32_t)s->mirror.n;
    settings->without_cpu = s->cpu_mask;
    if (generates(context) && s->ssd_cache) {
        settings->ssd_cache = s->ssd_cache;
        settings->ssd_cache_bytes_max = s->ssd_cache_max_bytes;
    }
    if (s->experts_resident && !read_percent(&settings->experts_resident, s->experts_resident, err)) return false;
    settings->draft = WEIR_DRAFT_OFF;
    return !library_drafts(context) || draft_settings(settings, context, err);
}

const char *library_usage_folder(const struct command_context *context)
{
    const struct settings *s = context->settings;
    char folder[4096];
    if (s->usage_history != USAGE_HISTORY_ON || !s->state_folder) return NULL;
    snprintf(folder, sizeof folder, "%s/", s->state_folder);
    folders_make(folder);
    return s->state_folder;
}

bool library_open_engine(struct weir_engine **engine, struct weir_model *model, const struct command_context *context,
                         struct err *err)
{
    struct weir_settings settings;
    struct weir_error error;
    char note[1024];
    if (!library_settings(&settings, context, err)) return false;
    settings.usage_folder = library_usage_folder(context);
    settings.usage_import = context->settings->usage_import;
    if (!library_ok(weir_engine_open(engine, model, &settings, &error), &error, err)) return false;
    while (weir_engine_note(*engine, note, sizeof note)) fprintf(context->log, "weir: %s\n", note);
    return true;
}

void library_close_engine(struct weir_engine *engine)
{
    enum weir_status status = weir_engine_close(engine, NULL);
    ASSERT(status == WEIR_OK);
}

void library_close_session(struct weir_session *session)
{
    enum weir_status status = weir_session_free(session, NULL);
    ASSERT(status == WEIR_OK);
}
