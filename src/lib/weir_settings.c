#include "lib/lib_int.h"

#include "base/assert.h"
#include "base/nearest.h"
#include "plat/cpu.h"
#include "run/prompt_lookup.h"
#include <stdio.h>
#include <string.h>

enum {
    CONTEXT_MAX = 1 << 20,
    CONTEXT_USUAL = 4096,
    SEQUENCES_MAX = 64,
    THREADS_MAX = 1024,
    CHUNK_MAX = ENGINE_CHUNK_MAX,
    DEPTH_MAX = 1024,
    NGRAM_DRAFTS_USUAL = 10,
    NGRAM_MIN_USUAL = 1,
    NGRAM_MAX_USUAL = 3,
    MIRRORS_MAX_GIVEN = 16,
};

#define SSD_BYTES_USUAL UINT64_C(50000000000)

static struct weir_settings usual(void)
{
    return (struct weir_settings){
        .ram_budget_bytes = WEIR_AUTO,
        .prompt_cache_bytes = WEIR_AUTO,
        .latent_norm_eps = -1,
    };
}

void weir_settings_init(struct weir_settings *settings, size_t size)
{
    const struct weir_settings own = usual();
    lib_init(settings, size, &own, sizeof own);
}

static bool check_counts(const struct weir_settings *s, struct err *err)
{
    const struct {
        const char *name;
        uint32_t value, max;
    } counts[] = {
        {"context_tokens", s->context_tokens, CONTEXT_MAX},
        {"n_sequences", s->n_sequences, SEQUENCES_MAX},
        {"n_threads", s->n_threads, THREADS_MAX},
        {"prefill_chunk", s->prefill_chunk, CHUNK_MAX},
        {"numerics", s->numerics, WEIR_NUMERICS_INT8},
        {"kv", s->kv, WEIR_KV_Q8},
        {"direct_io", s->direct_io, WEIR_DIRECT_OFF},
        {"io_depth", s->io_depth, DEPTH_MAX},
        {"n_mirrors", s->n_mirrors, MIRRORS_MAX_GIVEN},
        {"draft", s->draft, WEIR_DRAFT_MTP},
        {"n_drafts", s->n_drafts, s->draft == WEIR_DRAFT_NGRAM ? PROMPT_LOOKUP_DRAFT_MAX : DRAFTS_MTP_MAX},
        {"ngram_max", s->ngram_max, PROMPT_LOOKUP_LENGTH_MAX},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value > counts[i].max)
            return err_set(err, ERR_USER, "%s is %u, and may be %u at most", counts[i].name, counts[i].value,
                           counts[i].max);
    return true;
}

static bool check(const struct weir_settings *s, struct err *err)
{
    if (!check_counts(s, err)) return false;
    if (!(s->experts_resident >= 0 && s->experts_resident <= 1))
        return err_set(err, ERR_USER, "experts_resident is %g, and is a share from 0 to 1", s->experts_resident);
    if (!(s->latent_norm_eps <= 1))
        return err_set(err, ERR_USER, "latent_norm_eps is %g, and may be 1 at most", s->latent_norm_eps);
    if (s->n_mirrors && !lib_need(s->mirrors, "mirrors", err)) return false;
    if (s->n_drafts && s->draft == WEIR_DRAFT_OFF)
        return err_set(err, ERR_USER, "n_drafts has no effect without drafts");
    if ((s->ngram_min || s->ngram_max) && s->draft != WEIR_DRAFT_NGRAM)
        return err_set(err, ERR_USER, "ngram_min and ngram_max have an effect with WEIR_DRAFT_NGRAM only");
    if (s->ssd_cache_bytes_max && !s->ssd_cache)
        return err_set(err, ERR_USER, "ssd_cache_bytes_max has no effect without ssd_cache");
    return true;
}

/* Takes one named instruction set out of the mask. */
static bool rule_out(uint32_t *mask, const char *name, size_t bytes, struct err *err)
{
    char word[32];
    struct nearest nearest = {.word = word};
    snprintf(word, sizeof word, "%.*s", (int)(bytes < sizeof word ? bytes : sizeof word - 1), name);
    for (unsigned bit = 0; cpu_feature_name(bit); bit++) {
        if (strcmp(cpu_feature_name(bit), word) == 0) {
            *mask &= ~(UINT32_C(1) << bit);
            return true;
        }
        nearest_offer(&nearest, cpu_feature_name(bit));
    }
    return err_set(err, ERR_USER, "there is no instruction set '%s' to do without; the nearest is '%s'", word,
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

static bool choose_drafts(struct draft_choice *out, const struct weir_settings *s, struct err *err)
{
    bool is_ngram = s->draft == WEIR_DRAFT_NGRAM;
    *out = (struct draft_choice){.kind = DRAFT_OFF};
    if (s->draft == WEIR_DRAFT_OFF) return true;
    out->kind = is_ngram ? DRAFT_NGRAM : DRAFT_MTP;
    out->is_wish = s->draft == WEIR_DRAFT_AUTO;
    out->is_weighed = s->n_drafts == 0;
    out->n_max = s->n_drafts ? s->n_drafts : is_ngram ? NGRAM_DRAFTS_USUAL : DRAFTS_MTP_MAX;
    if (!is_ngram) return true;
    out->ngram_min = s->ngram_min ? s->ngram_min : NGRAM_MIN_USUAL;
    out->ngram_max = s->ngram_max ? s->ngram_max : NGRAM_MAX_USUAL;
    return out->ngram_min <= out->ngram_max ||
           err_set(err, ERR_USER, "ngram_min is %u, more than ngram_max, which is %u", out->ngram_min, out->ngram_max);
}

static void fill_engine(struct engine_settings *e, const struct weir_settings *s)
{
    e->n_threads = s->n_threads;
    e->context_tokens = s->context_tokens;
    e->n_sequences = s->n_sequences;
    e->pass_rows = s->prefill_chunk;
    if (s->latent_norm_eps >= 0) e->latent_norm_eps = (float)s->latent_norm_eps;
    e->numerics = (enum numerics)s->numerics;
    e->kv_storage = (enum kv_storage)s->kv;
    e->ram_budget_bytes = s->ram_budget_bytes == WEIR_AUTO ? PLAN_AUTO : s->ram_budget_bytes;
    e->prompt_cache_bytes = s->prompt_cache_bytes == WEIR_AUTO ? PLAN_AUTO : s->prompt_cache_bytes;
    if (s->experts_resident > 0) e->experts_resident = s->experts_resident;
    e->streamed.direct = (enum direct_choice)s->direct_io;
    if (s->io_depth) e->streamed.io_depth = s->io_depth;
    e->streamed.prefetch = !s->no_prefetch;
    if (s->policy) e->streamed.policy = s->policy;
    e->streamed.mirrors = s->mirrors;
    e->streamed.n_mirrors = s->n_mirrors;
    e->streamed.usage_folder = s->usage_folder;
    e->streamed.usage_import = s->usage_import;
}

bool lib_settings_read(struct lib_settings *out, const char *model_dir, const struct weir_settings *given,
                       struct err *err)
{
    static_assert((int)WEIR_NUMERICS_INT8 == (int)NUMERICS_INT8, "the same order");
    static_assert((int)WEIR_KV_Q8 == (int)KV_STORAGE_Q8, "the same order");
    static_assert((int)WEIR_DIRECT_OFF == (int)DIRECT_OFF, "the same order");
    struct weir_settings *s = &out->given;
    *out = (struct lib_settings){.given = usual(), .engine = engine_settings_default(model_dir)};
    if (!lib_take(s, sizeof *s, given, "weir_settings", err)) return false;
    if (!check(s, err)) return false;
    if (s->context_tokens == 0) s->context_tokens = CONTEXT_USUAL;
    if (s->n_sequences == 0) s->n_sequences = 1;
    if (s->ssd_cache && s->ssd_cache_bytes_max == 0) s->ssd_cache_bytes_max = SSD_BYTES_USUAL;
    fill_engine(&out->engine, s);
    if (!choose_drafts(&out->engine.drafts, s, err)) return false;
    out->engine.streamed.spine.with_mtp = out->engine.drafts.kind == DRAFT_MTP; /* or it is of no use */
    return cpu_mask_without(&out->engine.cpu_mask, s->without_cpu, err);
}
