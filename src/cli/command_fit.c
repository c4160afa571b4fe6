/* weir fit: the memory plan of a model, from its headers alone. */
#include "base/buf.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/library.h"
#include "fmt/json_text.h"
#include <inttypes.h>
#include <string.h>

#define JSON_BYTES_MAX (UINT64_C(1) << 20)

/* A plan, and what is to be told of it. */
struct fitting {
    const struct command_context *context;
    struct weir_model *model;
    struct weir_settings settings;
    struct weir_plan *plan;
    struct weir_plan_facts facts;
    struct buf json;
};

/* False: there is none. One that does not fit is one, and *why then says so. */
static bool make_plan(struct fitting *f, uint64_t memory_bytes, struct err *why, struct err *err)
{
    struct weir_error error;
    uint64_t rate = f->context->settings->disk_rate_bytes;
    weir_plan_free(f->plan);
    enum weir_status status =
        weir_plan_make(&f->plan, f->model, &f->settings, memory_bytes, rate == SETTING_WORD ? 0 : rate, &error);
    if (!library_ok(status, &error, why) && status != WEIR_FIT) {
        *err = *why;
        return false;
    }
    f->facts.size = sizeof f->facts;
    return library_ok(weir_plan_describe(f->plan, &f->facts, &error), &error, err);
}

struct line {
    const char *name, *derivation;
    uint64_t bytes;
};

static struct line line_of(const struct fitting *f, uint32_t i)
{
    struct line line = {"", "", 0};
    weir_plan_item(f->plan, i, &line.name, &line.bytes, &line.derivation, NULL);
    return line;
}

static void print_plan(const struct fitting *f)
{
    char bytes[UNITS_TEXT_MAX];
    FILE *out = f->context->out;
    const struct weir_plan_facts *plan = &f->facts;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct line line = line_of(f, i);
        fprintf(out, "%-16s %12s  %s\n", line.name, units_format_bytes(bytes, line.bytes), line.derivation);
    }
    fprintf(out, "%-16s %12s  of a budget of ", "together", units_format_bytes(bytes, plan->used_bytes));
    fprintf(out, "%s (%s)\n", units_format_bytes(bytes, plan->budget_bytes), plan->budget_source);
    if (!plan->fits) return;
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
static bool add_items(struct fitting *f, struct err *err)
{
    for (uint32_t i = 0; i < f->facts.n_items; i++) {
        char key[64];
        struct line line = line_of(f, i);
        snprintf(key, sizeof key, "%s", line.name);
        for (char *c = key; *c; c++)
            if (*c == ' ') *c = '_';
        if (!buf_printf(&f->json, err, "%s\"%s\":{\"bytes\":%" PRIu64 ",\"derivation\":", i ? "," : "", key,
                        line.bytes) ||
            !json_text_add_string(&f->json, line.derivation, strlen(line.derivation), err) ||
            !buf_add_char(&f->json, '}', err))
            return false;
    }
    return true;
}

static bool add_json(struct fitting *f, struct err *err)
{
    const struct weir_plan_facts *plan = &f->facts;
    if (!buf_add_text(&f->json, "{\"items\":{", err) || !add_items(f, err)) return false;
    if (!buf_printf(&f->json, err,
                    "},\"fits\":%s,\"budget\":%" PRIu64 ",\"used\":%" PRIu64 ",\"slots\":%" PRIu32
                    ",\"slot_bytes\":%" PRIu64 ",\"prefill_chunk\":%" PRIu32 ",\"token_bytes\":%" PRIu64,
                    plan->fits ? "true" : "false", plan->budget_bytes, plan->used_bytes, plan->n_slots,
                    plan->slot_bytes, plan->prefill_chunk, plan->token_bytes))
        return false;
    if (plan->rate_high > 0 &&
        !buf_printf(&f->json, err, ",\"predicted_tokens_per_second\":[%.6g,%.6g]", plan->rate_low, plan->rate_high))
        return false;
    return buf_add_char(&f->json, '}', err);
}

static bool fit_here(struct fitting *f, struct err *err)
{
    struct err why = {0};
    if (!make_plan(f, 0, &why, err)) return false;
    if (!f->context->settings->json)
        print_plan(f);
    else if (!add_json(f, err))
        return false;
    if (!f->facts.fits) *err = why;
    return f->facts.fits;
}

static const unsigned machines_gib[] = {16, 24, 32, 48, 64, 96, 128};

static void print_machine(const struct fitting *f, unsigned gib, const struct err *why)
{
    char used[UNITS_TEXT_MAX], slots[UNITS_TEXT_MAX];
    FILE *out = f->context->out;
    const struct weir_plan_facts *plan = &f->facts;
    if (!plan->fits) {
        fprintf(out, "%4u GiB  does not fit: %s\n", gib, why->text);
        return;
    }
    fprintf(out, "%4u GiB  %10s without experts, %10s for %6" PRIu32 " expert slots, %5.1f to %5.1f %% found", gib,
            units_format_bytes(used, plan->used_bytes - plan->slots_bytes),
            units_format_bytes(slots, plan->slots_bytes), plan->n_slots, 100 * plan->hits_low, 100 * plan->hits_high);
    if (plan->rate_high > 0) fprintf(out, ", %.3g to %.3g tokens/s", plan->rate_low, plan->rate_high);
    fprintf(out, "\n");
}

/* Machines that do nothing else. */
static bool fit_machines(struct fitting *f, struct err *err)
{
    size_t n = sizeof machines_gib / sizeof *machines_gib;
    for (size_t i = 0; i < n; i++) {
        struct err why = {0};
        if (!make_plan(f, (uint64_t)machines_gib[i] << 30, &why, err)) return false;
        if (!f->context->settings->json)
            print_machine(f, machines_gib[i], &why);
        else if (!buf_printf(&f->json, err, "%s{\"machine_gib\":%u,\"plan\":", i ? "," : "[", machines_gib[i]) ||
                 !add_json(f, err) || !buf_add_text(&f->json, i + 1 < n ? "}" : "}]", err))
            return false;
    }
    return true;
}

int command_fit(struct command_context *context)
{
    struct err err = {0};
    struct fitting f = {.context = context};
    buf_init(&f.json, context->alloc, JSON_BYTES_MAX);
    bool ok = library_settings(&f.settings, context, &err) && library_open_model(&f.model, context, &err) &&
              (context->settings->machines ? fit_machines(&f, &err) : fit_here(&f, &err));
    if (f.json.bytes) fprintf(context->out, "%s\n", f.json.data);
    weir_plan_free(f.plan);
    library_close_model(f.model);
    buf_fini(&f.json);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
