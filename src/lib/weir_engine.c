#include "lib/lib_int.h"

#include "plat/file_write.h"
#include "plat/peak_memory.h"
#include "run/state_identity.h"
#include <stdio.h>
#include <string.h>

enum {
    WAITING_MAX = 64,
    STALL_S = 30,
    DEMOTE_S = 300,
    BLOCKS_UNPLANNED = 256,
    TEXTS_BYTES_MAX = 1 << 20,
};

#define SECOND_NS INT64_C(1000000000)

bool lib_enter(struct weir_engine *engine, struct err *err)
{
    if (!lib_need(engine, "engine", err)) return false;
    if (!atomic_flag_test_and_set(&engine->is_inside)) return true;
    return err_set(err, ERR_BUSY, "the engine is in use: by another thread, or by the call that this callback is of");
}

void lib_leave(struct weir_engine *engine)
{
    atomic_flag_clear(&engine->is_inside);
}

/* Settings that point to texts of the caller's get copies. */
static bool keep_text(struct arena *arena, const char **text, struct err *err)
{
    if (*text) *text = arena_text(arena, *text, strlen(*text), err);
    return *text || err->kind == ERR_NONE;
}

static bool keep_texts(struct arena *arena, struct streamed_settings *s, struct err *err)
{
    const char **mirrors = arena_get_array(arena, s->n_mirrors + 1, sizeof *mirrors, err);
    if (!mirrors) return false;
    for (uint32_t i = 0; i < s->n_mirrors; i++) {
        mirrors[i] = s->mirrors[i];
        if (!lib_need(mirrors[i], "a mirror", err) || !keep_text(arena, &mirrors[i], err)) return false;
    }
    s->mirrors = mirrors;
    return keep_text(arena, &s->policy, err) && keep_text(arena, &s->usage_folder, err) &&
           keep_text(arena, &s->usage_import, err);
}

static bool open_ssd(struct weir_engine *e, const struct weir_settings *given, struct err *err)
{
    if (!given->ssd_cache) return true;
    const struct ssd_settings settings = {
        .dir = arena_text(&e->texts, given->ssd_cache, strlen(given->ssd_cache), err),
        .bytes_max = given->ssd_cache_bytes_max,
        .identity = state_identity_of(e->engine),
        .pool = forward_kv_pool(engine_forward(e->engine)),
        .fs = e->model->fs,
        .saver = {.ws = write_system_real(), .clock = e->clock, .has_thread = true},
    };
    return settings.dir && ssd_cache_open(&e->ssd, e->alloc, &settings, err);
}

/* What is known of earlier prompts may fill all the state that running answers leave over. */
static uint32_t prefix_blocks(const struct weir_engine *e)
{
    const struct plan *plan = engine_plan(e->engine);
    const struct engine_settings *with = engine_settings_of(e->engine);
    if (plan) return plan->kv_blocks + plan->prompt_cache_blocks;
    return kv_blocks_for(with->context_tokens) * with->n_sequences + BLOCKS_UNPLANNED;
}

static bool open_scheduler(struct weir_engine *e, struct err *err)
{
    struct scheduler_settings with = scheduler_settings_for(e->engine);
    with.n_tokens = e->text ? e->text->n_tokens : engine_config(e->engine)->vocab;
    with.n_running_max = engine_settings_of(e->engine)->n_sequences;
    with.n_waiting_max = WAITING_MAX;
    with.prefix_blocks_max = prefix_blocks(e);
    with.decode_stall_ns_max = STALL_S * SECOND_NS;
    with.ssd = e->ssd;
    with.demote_idle_ns = DEMOTE_S * SECOND_NS;
    with.clock = e->clock;
    return scheduler_new(&e->scheduler, e->engine, &with, err);
}

static void free_engine(struct weir_engine *e)
{
    struct weir_model *model = e->model;
    scheduler_free(e->scheduler);
    ssd_cache_close(e->ssd);
    engine_close(e->engine);
    form_tables_fini(&e->forms);
    arena_fini(&e->texts);
    alloc_put(e->alloc, e);
    atomic_fetch_sub(&model->n_holders, 1);
}

static bool open_parts(struct weir_engine *e, const struct weir_settings *given, struct err *err)
{
    struct lib_settings settings;
    bool has_tokenizer;
    if (!lib_settings_read(&settings, e->model->path, given, err)) return false;
    if (!keep_texts(&e->texts, &settings.engine.streamed, err)) return false;
    if (!lib_config(e->model, err) || !lib_has_tokenizer(e->model, &has_tokenizer, err)) return false;
    if (has_tokenizer && !(e->text = lib_text(e->model, err))) return false;
    if (e->text) form_tables_init(&e->forms, e->alloc, e->text);
    return engine_open(&e->engine, e->alloc, e->model->fs, &settings.engine, err) &&
           open_ssd(e, &settings.given, err) && open_scheduler(e, err);
}

static bool open_engine(struct weir_engine **engine, struct weir_model *model, const struct weir_settings *given,
                        struct err *err)
{
    if (!lib_need(engine, "engine", err)) return false;
    *engine = NULL;
    if (!lib_need(model, "model", err)) return false;
    struct weir_engine *e = alloc_get(model->alloc, sizeof *e, err);
    if (!e) return false;
    e->model = model;
    e->alloc = model->alloc;
    e->clock = clock_real();
    atomic_flag_clear(&e->is_inside);
    arena_init(&e->texts, e->alloc, TEXTS_BYTES_MAX);
    atomic_fetch_add(&model->n_holders, 1);
    bool ok = open_parts(e, given, err);
    if (ok)
        *engine = e;
    else
        free_engine(e);
    return ok;
}

enum weir_status weir_engine_open(struct weir_engine **engine, struct weir_model *model,
                                  const struct weir_settings *settings, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(open_engine(engine, model, settings, &err), &err, error);
}

enum weir_status weir_engine_close(struct weir_engine *engine, struct weir_error *error)
{
    struct err err = {0};
    if (!engine) return lib_end(true, &err, error);
    bool ok = lib_enter(engine, &err);
    if (ok && engine->n_sessions > 0) {
        ok = err_set(&err, ERR_BUSY, "%u sessions of the engine are still there", engine->n_sessions);
        lib_leave(engine);
    }
    if (ok) free_engine(engine);
    return lib_end(ok, &err, error);
}

enum weir_status weir_engine_plan(struct weir_engine *engine, struct weir_plan **plan, struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_need(engine, "engine", &err) && lib_need(plan, "plan", &err);
    if (ok) {
        const struct plan *own = engine_plan(engine->engine);
        *plan = own ? lib_plan_new(engine->model, own, true, &err) : NULL;
        ok = *plan || own || err_set(&err, ERR_USER, "%s: a checkpoint, which is not planned", engine->model->path);
        ok = ok && *plan;
    }
    return lib_end(ok, &err, error);
}

/* The next thing worth telling; false: nothing. */
static bool take_note(struct weir_engine *e, char *text, size_t room)
{
    char note[STREAMED_NOTE_MAX];
    struct err warning = {0};
    struct streamed *streamed = engine_streamed(e->engine);
    bool had_none = !*engine_no_drafts(e->engine) || e->told_no_drafts;
    e->told_no_drafts = true;
    if (!had_none)
        snprintf(text, room, "no drafts: %s", engine_no_drafts(e->engine));
    else if (streamed && streamed_take_note(streamed, note))
        snprintf(text, room, "%s", note);
    else if (e->ssd && ssd_cache_take_warning(e->ssd, &warning))
        snprintf(text, room, "%s", warning.text);
    else
        return false;
    return true;
}

bool weir_engine_note(struct weir_engine *engine, char *text, size_t room)
{
    struct err err = {0};
    if (room == 0 || !lib_enter(engine, &err)) return false;
    bool has_note = take_note(engine, text, room);
    lib_leave(engine);
    return has_note;
}

static void count_streaming(struct weir_counters *c, struct streamed *streamed)
{
    const struct slots_stats *slots = slots_stats(streamed_slots(streamed));
    c->is_streamed = true;
    c->n_slots = slots->n_slots;
    c->n_slots_resident = slots->n_resident;
    c->n_hits = slots->n_hits;
    c->n_misses = slots->n_misses + slots->n_joined;
    c->expert_bytes_read = slots->bytes_loaded;
    c->expert_wait_ns = streamed_stats(streamed)->waited_ns;
}

static void count_drafts(struct weir_counters *c, const struct weir_engine *e, const struct scheduler_stats *stats)
{
    static const enum weir_draft kinds[] = {
        [DRAFT_OFF] = WEIR_DRAFT_OFF, [DRAFT_NGRAM] = WEIR_DRAFT_NGRAM, [DRAFT_MTP] = WEIR_DRAFT_MTP};
    const struct draft_stats *d = &stats->drafts;
    struct draft_totals totals = draft_totals(d, scheduler_expert_bytes(e->scheduler));
    c->draft = kinds[engine_settings_of(e->engine)->drafts.kind];
    c->n_draft_passes = d->n_passes;
    c->n_forced = stats->n_forced;
    c->n_draft_experts = totals.n_experts;
    c->draft_bytes = totals.bytes;
    c->draft_expected_gain_ns = (int64_t)d->expected_gain_ns;
    c->draft_gain_ns = (int64_t)d->gain_ns;
}

static void count(struct weir_counters *c, const struct weir_engine *e)
{
    const struct scheduler_stats stats = scheduler_stats(e->scheduler);
    const struct kv_pool *pool = forward_kv_pool(engine_forward(e->engine));
    *c = (struct weir_counters){
        .n_passes = stats.n_passes,
        .n_prompt_tokens = stats.n_prompt_tokens,
        .n_cached_tokens = stats.n_cached_tokens,
        .n_generated = stats.n_generated,
        .n_drafted = stats.n_drafted,
        .n_accepted = stats.n_accepted,
        .n_waiting = stats.n_waiting,
        .n_running = stats.n_running,
        .n_state_blocks = pool->n_blocks,
        .n_state_blocks_max = pool->n_blocks_max,
        .state_block_bytes = pool->layout.block_bytes,
        .peak_memory_bytes = peak_memory_bytes(),
    };
    count_drafts(c, e, &stats);
    if (engine_streamed(e->engine)) count_streaming(c, engine_streamed(e->engine));
    if (!e->ssd) return;
    const struct ssd_stats ssd = ssd_cache_stats(e->ssd);
    c->n_states_saved = ssd.n_saved;
    c->n_states_restored = ssd.n_restored;
    c->n_state_failures = ssd.n_failed;
}

enum weir_status weir_engine_counters(struct weir_engine *engine, struct weir_counters *counters,
                                      struct weir_error *error)
{
    struct err err = {0};
    struct weir_counters own;
    bool ok = lib_need(counters, "counters", &err) && lib_enter(engine, &err);
    if (ok) {
        count(&own, engine);
        lib_leave(engine);
        ok = lib_give(counters, &own, sizeof own, "weir_counters", &err);
    }
    return lib_end(ok, &err, error);
}
