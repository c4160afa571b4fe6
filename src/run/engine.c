#include "run/engine.h"

#include "kern/kern.h"
#include "plat/clock.h"
#include "plat/cpu.h"
#include "resid/resident.h"
#include <math.h>

enum { CONTEXT_TOKENS = 4096, CHECKPOINT_PASS_ROWS = 128, LOGIT_ROWS = 16 };

struct engine {
    struct alloc *alloc;
    struct engine_settings settings;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    bool lacks_drafts; /* they were wished for */
    struct plan plan;
    struct streamed *streamed; /* a container: this one, by the plan */
    struct resident *resident; /* a checkpoint: this one */
    struct team *team;
    struct forward *forward;
    struct forward_row *rows; /* [pass_rows] */
};

struct engine_settings engine_settings_default(const char *model_dir)
{
    return (struct engine_settings){
        .model_dir = model_dir,
        .cpu_mask = UINT32_MAX,
        .context_tokens = CONTEXT_TOKENS,
        .n_sequences = 1,
        .logit_rows = LOGIT_ROWS,
        .latent_norm_eps = NAN,
        .ram_budget_bytes = PLAN_AUTO,
        .prompt_cache_bytes = PLAN_AUTO,
        .experts_resident = NAN,
        .streamed = streamed_settings_default(),
    };
}

/* A draft layer that was only wished for may be missing. */
static bool choose_drafts(struct engine *e, struct err *err)
{
    struct draft_choice *drafts = &e->settings.drafts;
    bool lacks = drafts->kind == DRAFT_MTP && e->inventory.mtp != CAPABILITY_PRESENT;
    if (lacks && !drafts->is_wish)
        return err_set(err, ERR_USER,
                       "%s: the MTP layer was asked for to draft with, and this model has none: %s; leave out --mtp on "
                       "and --draft mtp, or add the layer (weir convert --pass mtp)",
                       e->settings.model_dir, e->inventory.mtp_reason);
    if (lacks) *drafts = (struct draft_choice){.kind = DRAFT_OFF};
    e->lacks_drafts = lacks;
    uint32_t decode_rows = e->settings.n_sequences * (1 + drafts->n_max);
    if (e->settings.logit_rows < decode_rows) e->settings.logit_rows = decode_rows;
    return true;
}

static bool read_headers(struct engine *e, struct file_system fs, struct err *err)
{
    const char *dir = e->settings.model_dir;
    if (!config_read(&e->config, e->alloc, fs, dir, err)) return false;
    if (!isnan(e->settings.latent_norm_eps)) e->config.latent_eps = e->settings.latent_norm_eps;
    if (!catalogue_open(&e->catalogue, e->alloc, fs, dir, err)) return false;
    if (!inventory_build(&e->inventory, e->alloc, &e->config, &e->catalogue, err)) return false;
    const struct inventory *has = &e->inventory;
    if (has->dsa == CAPABILITY_REFUSED) return err_set(err, ERR_DATA, "%s: %s", dir, has->dsa_reason);
    if (has->mtp == CAPABILITY_REFUSED) return err_set(err, ERR_DATA, "%s: %s", dir, has->mtp_reason);
    return choose_drafts(e, err);
}

/* A checkpoint's narrow floats are expanded while they are read, which only the resident provider does. */
static bool is_container(const struct inventory *inventory)
{
    for (int role = 0; role < MODEL_ROLE_COUNT; role++)
        if (!spine_format_is_native(inventory->model[role].format)) return false;
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct weight_source *source = &inventory->layers[0].role[role];
        if (source->payload && !spine_format_is_native(source->format)) return false;
    }
    return true;
}

static uint32_t slots_wanted(const struct engine *e)
{
    double share = e->settings.experts_resident;
    if (isnan(share)) return 0;
    double n = ceil(share * e->inventory.n_routed_experts);
    return n < 1 ? 1 : (uint32_t)n;
}

static bool make_plan(struct engine *e, const struct memory_facts *facts, uint64_t disk_bytes_per_s, struct err *err)
{
    const struct engine_settings *s = &e->settings;
    const struct plan_request request = {
        .budget_bytes = s->ram_budget_bytes,
        .facts = facts,
        .context_tokens = s->context_tokens,
        .n_sequences = s->n_sequences,
        .n_drafts = (s->logit_rows + s->n_sequences - 1) / s->n_sequences - 1,
        .drafting_bytes = drafts_bytes(&s->drafts, &e->config, s->context_tokens),
        .kv_storage = s->kv_storage,
        .prefill_chunk = s->pass_rows,
        .n_threads = s->n_threads,
        .spine = s->streamed.spine,
        .prompt_cache_bytes = s->prompt_cache_bytes,
        .tokenizer_bytes = PLAN_AUTO,
        .requests_max = STREAMED_REQUESTS_MAX,
        .embedding_rows_kept = STREAMED_EMBEDDING_ROWS,
        .slots_max = slots_wanted(e),
        .disk_bytes_per_s = disk_bytes_per_s,
    };
    return plan_make(&e->plan, e->alloc, &e->inventory, &request, err);
}

static bool open_streamed(struct engine *e, struct file_system fs, struct err *err)
{
    struct engine_settings *s = &e->settings;
    struct memory_facts facts;
    memory_facts_read(&facts, e->alloc, fs, "");
    if (!make_plan(e, &facts, 0, err)) return false;
    s->pass_rows = e->plan.pass_rows;
    s->logit_rows = e->plan.logit_rows;
    s->streamed.plan = &e->plan;
    return streamed_open(&e->streamed, e->alloc, &e->inventory, &s->streamed, err);
}

static bool open_weights(struct engine *e, struct file_system fs, struct err *err)
{
    struct engine_settings *s = &e->settings;
    if (is_container(&e->inventory)) return open_streamed(e, fs, err);
    if (s->pass_rows == 0) s->pass_rows = CHECKPOINT_PASS_ROWS;
    s->pass_rows += s->logit_rows; /* decode rows ride along with a prompt's */
    return resident_open(&e->resident, e->alloc, fs, &e->inventory, err);
}

static int64_t now_ns(void *context)
{
    (void)context;
    return clock_now_ns(clock_real());
}

static bool make_forward(struct engine *e, struct err *err)
{
    struct kern kern;
    struct engine_settings *s = &e->settings;
    struct weights *weights = e->streamed ? streamed_weights(e->streamed) : resident_weights(e->resident);
    s->cpu_mask &= cpu_mask();
    kern_select(&kern, s->cpu_mask);
    e->rows = alloc_get_array(e->alloc, s->pass_rows, sizeof *e->rows, err);
    if (!e->rows) return false;
    if (!team_new(&e->team, e->alloc, s->n_threads, err)) return false;
    const struct forward_options options = {.rows_max = s->pass_rows,
                                            .logit_rows_max = s->logit_rows,
                                            .positions_max = s->context_tokens,
                                            .kv_storage = s->kv_storage,
                                            .numerics = s->numerics,
                                            .kv_blocks_max = e->plan.kv_blocks + e->plan.prompt_cache_blocks,
                                            .foresees = e->streamed && s->streamed.prefetch};
    if (!forward_new(&e->forward, e->alloc, &e->config, weights, &kern, e->team, &options, err)) return false;
    forward_set_clock(e->forward, now_ns, NULL);
    return true;
}

static struct engine *new_engine(struct alloc *alloc, const struct engine_settings *settings, struct err *err)
{
    struct engine *e = alloc_get(alloc, sizeof *e, err);
    if (!e) return NULL;
    e->alloc = alloc;
    e->settings = *settings;
    if (e->settings.n_threads == 0) e->settings.n_threads = cpu_threads_usable();
    if (e->settings.logit_rows < e->settings.n_sequences) e->settings.logit_rows = e->settings.n_sequences;
    return e;
}

bool engine_fit(struct plan *plan, struct alloc *alloc, struct file_system fs, const struct engine_settings *settings,
                const struct memory_facts *facts, uint64_t disk_bytes_per_s, struct err *err)
{
    struct memory_facts here;
    struct engine *e = new_engine(alloc, settings, err);
    *plan = (struct plan){0};
    if (!e) return false;
    if (!facts) memory_facts_read(&here, alloc, fs, "");
    bool ok = read_headers(e, fs, err);
    if (ok && !is_container(&e->inventory))
        ok = err_set(err, ERR_DATA,
                     "%s: a checkpoint, which is expanded into memory as a whole and not planned; weir "
                     "convert makes a container of it",
                     settings->model_dir);
    ok = ok && make_plan(e, facts ? facts : &here, disk_bytes_per_s, err);
    *plan = e->plan;
    engine_close(e);
    return ok;
}

bool engine_open(struct engine **engine, struct alloc *alloc, struct file_system fs,
                 const struct engine_settings *settings, struct err *err)
{
    struct engine *e = new_engine(alloc, settings, err);
    if (!e) return false;
    if (!read_headers(e, fs, err)) goto fail;
    if (!open_weights(e, fs, err)) goto fail;
    if (!make_forward(e, err)) goto fail;
    *engine = e;
    return true;
fail:
    engine_close(e);
    return false;
}

void engine_close(struct engine *engine)
{
    if (!engine) return;
    if (engine->rows) alloc_put(engine->alloc, engine->rows);
    forward_free(engine->forward);
    team_free(engine->team);
    streamed_close(engine->streamed);
    resident_close(engine->resident);
    inventory_fini(&engine->inventory);
    catalogue_close(&engine->catalogue);
    alloc_put(engine->alloc, engine);
}

bool engine_pass(struct engine *engine, const struct forward_row *rows, size_t n_rows, struct err *err)
{
    struct streamed *streamed = engine->streamed;
    if (streamed && !streamed_before_pass(streamed, err)) return false;
    bool ok = forward_pass(engine->forward, rows, n_rows, err);
    if (streamed) streamed_after_pass(streamed, ok ? NULL : err);
    return ok;
}

bool engine_mtp(struct engine *engine, const struct forward_mtp_row *rows, size_t n_rows, struct err *err)
{
    struct streamed *streamed = engine->streamed;
    if (streamed && !streamed_before_pass(streamed, err)) return false;
    bool ok = forward_mtp(engine->forward, rows, n_rows, err);
    if (streamed) streamed_after_pass(streamed, ok ? NULL : err);
    return ok;
}

const struct config *engine_config(const struct engine *engine)
{
    return &engine->config;
}
const struct inventory *engine_inventory(const struct engine *engine)
{
    return &engine->inventory;
}
const struct engine_settings *engine_settings_of(const struct engine *engine)
{
    return &engine->settings;
}
const char *engine_no_drafts(const struct engine *engine)
{
    return engine->lacks_drafts ? engine->inventory.mtp_reason : "";
}
struct forward_row *engine_rows(struct engine *engine)
{
    return engine->rows;
}
struct forward *engine_forward(struct engine *engine)
{
    return engine->forward;
}
struct alloc *engine_alloc(struct engine *engine)
{
    return engine->alloc;
}
const struct plan *engine_plan(const struct engine *engine)
{
    return engine->streamed ? &engine->plan : NULL;
}
struct streamed *engine_streamed(struct engine *engine)
{
    return engine->streamed;
}
