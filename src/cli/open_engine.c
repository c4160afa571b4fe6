#include "cli/open_engine.h"

#include "base/nearest.h"
#include "cli/draft_settings.h"
#include "cli/folders.h"
#include "plat/cpu.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Takes one named instruction set out of the mask. */
static bool rule_out(uint32_t *mask, const char *name, size_t bytes, struct err *err)
{
    char word[32];
    struct nearest nearest = {.word = word};
    snprintf(word, sizeof word, "%.*s", (int)bytes, name);
    for (unsigned bit = 0; cpu_feature_name(bit); bit++) {
        if (strcmp(cpu_feature_name(bit), word) == 0) {
            *mask &= ~(UINT32_C(1) << bit);
            return true;
        }
        nearest_offer(&nearest, cpu_feature_name(bit));
    }
    return err_set(err, ERR_USER, "--cpu-mask: there is no instruction set '%s'; the nearest is '%s'", word,
                   nearest.best);
}

static bool cpu_mask_without(uint32_t *mask, const char *names, struct err *err)
{
    *mask = UINT32_MAX;
    while (names && *names) {
        size_t bytes = strcspn(names, ",");
        if (!rule_out(mask, names, bytes, err)) return false;
        names += bytes + (names[bytes] == ',');
    }
    return true;
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

/* Of the commands that generate, and of the one that plans for them. What no draft layer is used for is not loaded. */
static bool add_drafts(struct engine_settings *out, const struct command_context *context, struct err *err)
{
    enum command_id id = context->command->id;
    if (id != COMMAND_GENERATE && id != COMMAND_CHAT && id != COMMAND_SERVE && id != COMMAND_FIT) return true;
    if (!draft_settings_from(&out->drafts, context, err)) return false;
    out->streamed.spine.with_mtp = out->drafts.kind == DRAFT_MTP;
    return true;
}

bool engine_settings_from(struct engine_settings *out, const struct command_context *context, struct err *err)
{
    const struct settings *s = context->settings;
    *out = engine_settings_default(context->n_operands ? context->operands[0] : NULL);
    if (s->threads != SETTING_WORD) out->n_threads = (unsigned)s->threads;
    if (s->ram_budget_bytes != SETTING_WORD) out->ram_budget_bytes = s->ram_budget_bytes;
    if (s->prompt_cache_bytes != SETTING_WORD) out->prompt_cache_bytes = s->prompt_cache_bytes;
    if (s->prefill_chunk != SETTING_WORD) out->pass_rows = (uint32_t)s->prefill_chunk;
    if (s->io_depth != SETTING_WORD) out->streamed.io_depth = (unsigned)s->io_depth;
    if (s->policy) out->streamed.policy = s->policy;
    out->context_tokens = (uint32_t)s->context_length;
    out->latent_norm_eps = (float)s->latent_norm_eps; /* NAN: as the model says */
    out->numerics = (enum numerics)s->numerics;
    out->kv_storage = (enum kv_storage)s->kv;
    out->streamed.direct = (enum direct_choice)s->direct_io;
    out->streamed.prefetch = s->prefetch == 1;
    out->streamed.mirrors = s->mirror.text;
    out->streamed.n_mirrors = (uint32_t)s->mirror.n;
    if (s->experts_resident && !read_percent(&out->experts_resident, s->experts_resident, err)) return false;
    return cpu_mask_without(&out->cpu_mask, s->cpu_mask, err) && add_drafts(out, context, err);
}

bool open_engine(struct engine **engine, const struct command_context *context, struct err *err)
{
    struct engine_settings settings;
    char folder[4096] = "", note[STREAMED_NOTE_MAX];
    const struct settings *s = context->settings;
    if (!engine_settings_from(&settings, context, err)) return false;
    if (s->usage_history && s->state_folder) {
        snprintf(folder, sizeof folder, "%s/", s->state_folder);
        folders_make(folder);
        settings.streamed.usage_folder = s->state_folder;
    }
    settings.streamed.usage_import = s->usage_import;
    if (!engine_open(engine, context->alloc, context->fs, &settings, err)) return false;
    while (engine_streamed(*engine) && streamed_take_note(engine_streamed(*engine), note))
        fprintf(context->log, "weir: %s\n", note);
    if (*engine_no_drafts(*engine)) fprintf(context->log, "weir: no drafts: %s\n", engine_no_drafts(*engine));
    return true;
}
