/* weir fit: the memory plan of a model, from its headers alone. */
#include "base/buf.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/open_engine.h"
#include "fmt/json_text.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define JSON_BYTES_MAX (UINT64_C(1) << 20)

static void print_plan(FILE *out, const struct plan *plan, bool fits)
{
    char bytes[UNITS_TEXT_MAX];
    for (uint32_t i = 0; i < plan->n_items; i++)
        fprintf(out, "%-16s %12s  %s\n", plan->items[i].name, units_format_bytes(bytes, plan->items[i].bytes),
                plan->items[i].derivation);
    fprintf(out, "%-16s %12s  of a budget of ", "together", units_format_bytes(bytes, plan->used_bytes));
    fprintf(out, "%s (%s)\n", units_format_bytes(bytes, plan->budget_bytes), plan->budget_source);
    if (!fits) return;
    fprintf(out, "\nA prompt is read in passes of %" PRIu32 " tokens.\n", plan->prefill_chunk);
    fprintf(out, "A token needs %s of experts, and finds %.1f to %.1f %% of them in memory (predicted).\n",
            units_format_bytes(bytes, plan->token_bytes), 100 * plan->hits_low, 100 * plan->hits_high);
    if (plan->rate_high > 0)
        fprintf(out, "Predicted: %.3g to %.3g tokens a second (%s).\n", plan->rate_low, plan->rate_high,
                plan->rate_derivation);
    if (plan->is_thin)
        fprintf(
            out,
            "Fewer slots than one token's experts: it runs, but reads of a layer cannot all be under way together.\n");
}

/* Keys are the line items' names with _ for blanks. */
static bool add_items(struct buf *json, const struct plan *plan, struct err *err)
{
    for (uint32_t i = 0; i < plan->n_items; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s", plan->items[i].name);
        for (char *c = key; *c; c++)
            if (*c == ' ') *c = '_';
        if (!buf_printf(json, err, "%s\"%s\":{\"bytes\":%" PRIu64 ",\"derivation\":", i ? "," : "", key,
                        plan->items[i].bytes) ||
            !json_text_add_string(json, plan->items[i].derivation, strlen(plan->items[i].derivation), err) ||
            !buf_add_char(json, '}', err))
            return false;
    }
    return true;
}

static bool add_json(struct buf *json, const struct plan *plan, bool fits, struct err *err)
{
    const struct slot_class *class = &plan->classes.of[0];
    if (!buf_add_text(json, "{\"items\":{", err) || !add_items(json, plan, err)) return false;
    if (!buf_printf(json, err,
                    "},\"fits\":%s,\"budget\":%" PRIu64 ",\"used\":%" PRIu64 ",\"slots\":%" PRIu32
                    ",\"slot_bytes\":%" PRIu64 ",\"prefill_chunk\":%" PRIu32 ",\"token_bytes\":%" PRIu64,
                    fits ? "true" : "false", plan->budget_bytes, plan->used_bytes, plan->n_slots_total,
                    plan->classes.n ? class->slot_bytes : 0, plan->prefill_chunk, plan->token_bytes))
        return false;
    if (plan->rate_high > 0 &&
        !buf_printf(json, err, ",\"predicted_tokens_per_second\":[%.6g,%.6g]", plan->rate_low, plan->rate_high))
        return false;
    return buf_add_char(json, '}', err);
}

static uint64_t disk_rate(const struct command_context *context)
{
    uint64_t rate = context->settings->disk_rate_bytes;
    return rate == SETTING_WORD ? 0 : rate;
}

static bool fit_here(const struct command_context *context, const struct engine_settings *settings, struct buf *json,
                     struct err *err)
{
    struct plan plan;
    struct err why = {0};
    bool fits = engine_fit(&plan, context->alloc, context->fs, settings, NULL, disk_rate(context), &why);
    *err = why;
    if (!fits && why.kind != ERR_FIT) return false;
    if (!context->settings->json)
        print_plan(context->out, &plan, fits);
    else if (!add_json(json, &plan, fits, err))
        return false;
    return fits;
}

static const unsigned machines_gib[] = {16, 24, 32, 48, 64, 96, 128};

static void print_machine(FILE *out, unsigned gib, const struct plan *plan, bool fits, const struct err *why)
{
    char used[UNITS_TEXT_MAX], slots[UNITS_TEXT_MAX];
    if (!fits) {
        fprintf(out, "%4u GiB  does not fit: %s\n", gib, why->text);
        return;
    }
    uint64_t slot_bytes = plan->items[plan->n_items - 1].bytes;
    fprintf(out, "%4u GiB  %10s without experts, %10s for %6" PRIu32 " expert slots, %5.1f to %5.1f %% found", gib,
            units_format_bytes(used, plan->used_bytes - slot_bytes), units_format_bytes(slots, slot_bytes),
            plan->n_slots_total, 100 * plan->hits_low, 100 * plan->hits_high);
    if (plan->rate_high > 0) fprintf(out, ", %.3g to %.3g tokens/s", plan->rate_low, plan->rate_high);
    fprintf(out, "\n");
}

/* Machines that do nothing else: all their memory counts, less the reserve that every plan keeps. */
static bool fit_machines(const struct command_context *context, const struct engine_settings *settings,
                         struct buf *json, struct err *err)
{
    size_t n = sizeof machines_gib / sizeof *machines_gib;
    for (size_t i = 0; i < n; i++) {
        struct memory_facts facts = {.physical = {.state = FACT_KNOWN, .bytes = (uint64_t)machines_gib[i] << 30}};
        struct plan plan;
        struct err why = {0};
        snprintf(facts.physical.source, sizeof facts.physical.source, "%u GiB of memory", machines_gib[i]);
        bool fits = engine_fit(&plan, context->alloc, context->fs, settings, &facts, disk_rate(context), &why);
        if (!fits && why.kind != ERR_FIT) {
            *err = why;
            return false;
        }
        if (!context->settings->json)
            print_machine(context->out, machines_gib[i], &plan, fits, &why);
        else if (!buf_printf(json, err, "%s{\"machine_gib\":%u,\"plan\":", i ? "," : "[", machines_gib[i]) ||
                 !add_json(json, &plan, fits, err) || !buf_add_text(json, i + 1 < n ? "}" : "}]", err))
            return false;
    }
    return true;
}

int command_fit(struct command_context *context)
{
    struct err err = {0};
    struct engine_settings settings;
    struct buf json;
    buf_init(&json, context->alloc, JSON_BYTES_MAX);
    bool ok = engine_settings_from(&settings, context, &err) &&
              (context->settings->machines ? fit_machines(context, &settings, &json, &err)
                                           : fit_here(context, &settings, &json, &err));
    if (json.bytes) fprintf(context->out, "%s\n", json.data);
    buf_fini(&json);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
