#include "run/engine.h"

#include "kern/kern.h"
#include "plat/cpu.h"
#include "resid/resident.h"
#include <math.h>

enum { CONTEXT_TOKENS = 4096, PASS_ROWS = 128, LOGIT_ROWS = 16 };

struct engine {
    struct alloc *alloc;
    struct engine_settings settings;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    struct resident *resident;
    struct team *team;
    struct forward *forward;
};

struct engine_settings engine_settings_default(const char *model_dir)
{
    return (struct engine_settings){
        .model_dir = model_dir,
        .cpu_mask = UINT32_MAX,
        .context_tokens = CONTEXT_TOKENS,
        .pass_rows = PASS_ROWS,
        .logit_rows = LOGIT_ROWS,
        .latent_norm_eps = NAN,
    };
}

static bool open_model(struct engine *e, struct file_system fs, struct err *err)
{
    const char *dir = e->settings.model_dir;
    if (!config_read(&e->config, e->alloc, fs, dir, err)) return false;
    if (!isnan(e->settings.latent_norm_eps)) e->config.latent_eps = e->settings.latent_norm_eps;
    if (!catalogue_open(&e->catalogue, e->alloc, fs, dir, err)) return false;
    if (!inventory_build(&e->inventory, e->alloc, &e->config, &e->catalogue, err)) return false;
    return resident_open(&e->resident, e->alloc, fs, &e->inventory, err);
}

static bool make_forward(struct engine *e, struct err *err)
{
    struct kern kern;
    struct engine_settings *s = &e->settings;
    s->cpu_mask &= cpu_mask();
    if (s->n_threads == 0) s->n_threads = cpu_threads_usable();
    if (s->pass_rows > s->context_tokens) s->pass_rows = s->context_tokens;
    if (s->logit_rows > s->pass_rows) s->logit_rows = s->pass_rows;
    kern_select(&kern, s->cpu_mask);
    if (!team_new(&e->team, e->alloc, s->n_threads, err)) return false;
    const struct forward_options options = {
        .rows_max = s->pass_rows, .logit_rows_max = s->logit_rows, .positions_max = s->context_tokens};
    return forward_new(&e->forward, e->alloc, &e->config, resident_weights(e->resident), &kern, e->team, &options, err);
}

bool engine_open(struct engine **engine, struct alloc *alloc, struct file_system fs,
                 const struct engine_settings *settings, struct err *err)
{
    struct engine *e = alloc_get(alloc, sizeof *e, err);
    if (!e) return false;
    e->alloc = alloc;
    e->settings = *settings;
    if (!open_model(e, fs, err)) goto fail;
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
    forward_free(engine->forward);
    team_free(engine->team);
    resident_close(engine->resident);
    inventory_fini(&engine->inventory);
    catalogue_close(&engine->catalogue);
    alloc_put(engine->alloc, engine);
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
struct forward *engine_forward(struct engine *engine)
{
    return engine->forward;
}
struct alloc *engine_alloc(struct engine *engine)
{
    return engine->alloc;
}
