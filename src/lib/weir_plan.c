#include "lib/lib_int.h"

#include <stdio.h>

void weir_plan_free(struct weir_plan *plan)
{
    if (!plan) return;
    struct weir_model *model = plan->model;
    alloc_put(model->alloc, plan);
    atomic_fetch_sub(&model->n_holders, 1);
}

struct weir_plan *lib_plan_new(struct weir_model *model, const struct plan *plan, bool fits, struct err *err)
{
    struct weir_plan *p = alloc_get(model->alloc, sizeof *p, err);
    if (!p) return NULL;
    atomic_fetch_add(&model->n_holders, 1);
    p->model = model;
    p->plan = *plan;
    p->fits = fits;
    return p;
}

/* Of a machine that does nothing else: all its memory counts, less the reserve that every plan keeps. */
static struct memory_facts machine_of(uint64_t bytes)
{
    struct memory_facts facts = {.physical = {.state = FACT_KNOWN, .bytes = bytes}};
    const uint64_t gib = UINT64_C(1) << 30;
    if (bytes % gib == 0)
        snprintf(facts.physical.source, sizeof facts.physical.source, "%u GiB of memory", (unsigned)(bytes / gib));
    else
        snprintf(facts.physical.source, sizeof facts.physical.source, "%.3g GiB of memory",
                 (double)bytes / (double)gib);
    return facts;
}

static bool make(struct weir_plan **plan, struct weir_model *model, const struct weir_settings *given,
                 uint64_t memory_bytes, uint64_t disk_bytes_per_second, struct err *err)
{
    struct lib_settings settings;
    struct plan made;
    struct memory_facts facts = machine_of(memory_bytes);
    struct err no_memory = {0};
    if (!lib_need(plan, "plan", err)) return false;
    *plan = NULL;
    if (!lib_need(model, "model", err) || !lib_settings_read(&settings, model->path, given, err)) return false;
    bool fits = engine_fit(&made, model->alloc, model->fs, &settings.engine, memory_bytes ? &facts : NULL,
                           disk_bytes_per_second, err);
    if (!fits && err->kind != ERR_FIT) return false;
    *plan = lib_plan_new(model, &made, fits, &no_memory);
    if (!*plan) *err = no_memory;
    return fits && *plan;
}

enum weir_status weir_plan_make(struct weir_plan **plan, struct weir_model *model, const struct weir_settings *settings,
                                uint64_t memory_bytes, uint64_t disk_bytes_per_second, struct weir_error *error)
{
    struct err err = {0};
    return lib_end(make(plan, model, settings, memory_bytes, disk_bytes_per_second, &err), &err, error);
}

enum weir_status weir_plan_describe(const struct weir_plan *plan, struct weir_plan_facts *facts,
                                    struct weir_error *error)
{
    struct err err = {0};
    struct weir_plan_facts own = {0};
    bool ok = lib_need(plan, "plan", &err) && lib_need(facts, "facts", &err);
    if (ok) {
        const struct plan *p = &plan->plan;
        own.fits = plan->fits;
        own.budget_bytes = p->budget_bytes;
        own.used_bytes = p->used_bytes;
        own.budget_source = p->budget_source;
        own.n_items = p->n_items;
        own.prefill_chunk = p->prefill_chunk;
        own.n_slots = p->n_slots_total;
        own.slots_bytes = plan->fits ? p->items[p->n_items - 1].bytes : 0;
        own.slot_bytes = p->classes.n ? p->classes.of[0].slot_bytes : 0;
        own.is_thin = p->is_thin;
        own.token_bytes = p->token_bytes;
        own.hits_low = p->hits_low;
        own.hits_high = p->hits_high;
        own.rate_low = p->rate_low;
        own.rate_high = p->rate_high;
        own.rate_derivation = p->rate_derivation;
        ok = lib_give(facts, &own, sizeof own, "weir_plan_facts", &err);
    }
    return lib_end(ok, &err, error);
}

enum weir_status weir_plan_item(const struct weir_plan *plan, uint32_t i, const char **name, uint64_t *bytes,
                                const char **derivation, struct weir_error *error)
{
    struct err err = {0};
    bool ok = lib_need(plan, "plan", &err);
    if (ok && i >= plan->plan.n_items)
        ok = err_set(&err, ERR_USER, "line %u of a plan of %u lines", i, plan->plan.n_items);
    if (ok) {
        const struct plan_item *item = &plan->plan.items[i];
        if (name) *name = item->name;
        if (bytes) *bytes = item->bytes;
        if (derivation) *derivation = item->derivation;
    }
    return lib_end(ok, &err, error);
}
