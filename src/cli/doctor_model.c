/* What weir doctor says about a model: its files, its text side, its storage, its plan. */
#include "base/units.h"
#include "cli/doctor.h"
#include "cli/open_engine.h"
#include "fmt/inventory.h"
#include "fmt/template_check.h"
#include "fmt/tokenizer_config.h"
#include "run/text_model.h"
#include <inttypes.h>
#include <string.h>

#define CONFIG_BYTES_MAX (UINT64_C(16) << 20)
#define WARNINGS_BYTES_MAX (UINT64_C(1) << 16)
enum { PATH_BYTES_MAX = 4096, FILES_BESIDES = 64 };

/* Below these the answer comes, but nobody would wait for it. */
#define RATE_WELL 0.2
#define RATE_HOPELESS 0.02

struct examination {
    const struct command_context *context;
    const struct machine_facts *machine;
    struct findings *findings;
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
};

static const char *folder(const struct examination *e)
{
    return e->context->operands[0];
}

/* An error is a finding, unless it is about us and not about the model. */
static bool note_error(struct examination *e, const char *subject, const char *advice, const struct err *problem,
                       struct err *err)
{
    if (problem->kind == ERR_NOMEM) {
        *err = *problem;
        return false;
    }
    finding_advise(findings_add_error(e->findings, subject, problem), "%s", advice);
    return true;
}

static void judge_damage(struct finding *finding)
{
    finding->kind = ERR_DATA;
    finding_advise(finding, "fetch the file again, or take the incomplete set out of the folder");
}

static void judge_capability(struct findings *findings, const char *subject, enum capability has, const char *reason,
                             const char *without)
{
    if (has == CAPABILITY_PRESENT)
        findings_add(findings, SEVERITY_OK, subject, "complete");
    else if (has == CAPABILITY_ABSENT)
        finding_advise(findings_add(findings, SEVERITY_WARNING, subject, "absent: %s", reason), "%s", without);
    else
        judge_damage(findings_add(findings, SEVERITY_PROBLEM, subject, "%s", reason));
}

static void judge_inventory(struct examination *e)
{
    struct findings *f = e->findings;
    const struct inventory *has = &e->inventory;
    char bytes[UNITS_TEXT_MAX];
    findings_add(f, SEVERITY_OK, "files", "%" PRIu32 " shards, complete: %" PRIu32 " tensors, %s in use",
                 e->catalogue.n_shards, e->catalogue.n_tensors, units_format_bytes(bytes, has->bytes));
    judge_capability(f, "sparse index", has->dsa, has->dsa_reason,
                     "fetch the out-idx files: without them every position is attended, which is slow far into a text");
    if (has->mtp == CAPABILITY_PRESENT && has->mtp_is_degraded)
        finding_advise(findings_add(f, SEVERITY_WARNING, "MTP", "%s", has->mtp_reason),
                       "fetch or convert MTP files of 8 bits: drafts of fewer are rarely right");
    else
        judge_capability(f, "MTP", has->mtp, has->mtp_reason,
                         "fetch the out-mtp files: without them nothing is drafted");
    if (e->catalogue.n_ignored_files)
        findings_add(f, SEVERITY_NOTE, "files", "%" PRIu32 " are of no known family and ignored, such as %s",
                     e->catalogue.n_ignored_files, e->catalogue.ignored_file);
    if (has->n_ignored)
        findings_add(f, SEVERITY_NOTE, "files", "%" PRIu32 " tensors have no part in the model, such as %s",
                     has->n_ignored, has->ignored_tensor);
}

static void judge_open_files(struct examination *e)
{
    const struct memory_fact *limit = &e->machine->files_limit;
    uint64_t needed = 2 * (uint64_t)e->catalogue.n_shards + FILES_BESIDES;
    if (limit->state != FACT_KNOWN || limit->bytes >= needed) return;
    struct finding *f =
        findings_add(e->findings, SEVERITY_PROBLEM, "open files",
                     "this model needs about %" PRIu64 ", and %" PRIu64 " are allowed", needed, limit->bytes);
    finding_advise(f, "ulimit -n %" PRIu64 ", or --direct-io off, which needs half as many", needed);
}

/* True and false as everywhere; *is_read: the headers are good, so that there is more to look at. */
static bool read_headers(struct examination *e, bool *is_read, struct err *err)
{
    const struct command_context *c = e->context;
    struct err problem = {0};
    *is_read = config_read(&e->config, c->alloc, c->fs, folder(e), &problem) &&
               catalogue_open(&e->catalogue, c->alloc, c->fs, folder(e), &problem) &&
               inventory_build(&e->inventory, c->alloc, &e->config, &e->catalogue, &problem);
    if (!*is_read)
        return note_error(e, "files",
                          "weir inspect tells what the folder holds; an incomplete download goes on where it "
                          "stopped",
                          &problem, err);
    judge_inventory(e);
    judge_open_files(e);
    return true;
}

static bool compare_tokenizer_config(struct examination *e, const struct tokenizer *tokenizer, struct err *err)
{
    const struct command_context *c = e->context;
    struct err problem = {0};
    struct buf warnings;
    char path[PATH_BYTES_MAX];
    size_t bytes;
    if (snprintf(path, sizeof path, "%s/tokenizer_config.json", folder(e)) >= (int)sizeof path) return true;
    if (!file_present(c->fs, path)) return true;
    buf_init(&warnings, c->alloc, WARNINGS_BYTES_MAX);
    char *text = file_read_all(c->alloc, c->fs, path, CONFIG_BYTES_MAX, &bytes, &problem);
    bool is_read = text && tokenizer_config_compare(tokenizer, c->alloc, path, text, bytes, &warnings, &problem);
    bool ok = is_read || note_error(e, "tokenizer", "fetch tokenizer_config.json again", &problem, err);
    for (size_t i = 0; i + 1 < warnings.bytes; i++)
        if (warnings.data[i] == '\n') warnings.data[i] = ';';
    if (is_read && warnings.bytes)
        finding_advise(findings_add(e->findings, SEVERITY_WARNING, "tokenizer", "%.*s",
                                    (int)strcspn(warnings.data, "\n"), warnings.data),
                       "tokenizer.json is what counts; other tools may see other tokens");
    alloc_put(c->alloc, text);
    buf_fini(&warnings);
    return ok;
}

static bool judge_template(struct examination *e, struct err *err)
{
    const struct command_context *c = e->context;
    struct err problem = {0};
    struct template_report report;
    if (!template_check(&report, c->alloc, c->fs, folder(e), &problem))
        return note_error(e, "template", "fetch chat_template.jinja again", &problem, err);
    enum severity severity = report.kind == TEMPLATE_DIFFERS ? SEVERITY_WARNING
                             : report.kind == TEMPLATE_ALIKE ? SEVERITY_NOTE
                                                             : SEVERITY_OK;
    struct finding *f = findings_add(e->findings, severity, "template", "%s", report.text);
    if (report.kind == TEMPLATE_DIFFERS) finding_advise(f, "give prompts that you made yourself with generate --raw");
    return true;
}

static bool examine_text(struct examination *e, struct err *err)
{
    const struct command_context *c = e->context;
    struct text_model model;
    struct err problem = {0};
    if (!text_model_open(&model, c->alloc, c->fs, folder(e), &e->config, &problem))
        return note_error(e, "tokenizer", "fetch the model's tokenizer.json; without it only token ids can be given",
                          &problem, err) &&
               judge_template(e, err);
    findings_add(e->findings, SEVERITY_OK, "tokenizer", "%" PRIu32 " tokens, all markers of the chat there",
                 model.n_tokens - model.n_dead);
    bool ok = compare_tokenizer_config(e, model.tokenizer, err) && judge_template(e, err);
    text_model_close(&model);
    return ok;
}

/* Measured on the files themselves, with the depth that the options ask for. */
static bool measure_disk(struct examination *e, const struct engine_settings *settings, struct storage_facts *facts,
                         struct err *err)
{
    const struct reader_settings with = {
        .depth = settings->streamed.io_depth, .requests_max = STREAMED_REQUESTS_MAX, .files_max = 2};
    struct reader *reader;
    struct read_rates rates = {0};
    struct err problem = {0};
    if (!reader_new_real(&reader, e->context->alloc, &with, settings->streamed.n_io_threads, err)) return false;
    bool is_measured = read_rates_measure(&rates, e->context->alloc, &e->catalogue, reader, clock_real(), &problem);
    reader_free(reader);
    if (!is_measured) return note_error(e, "disk", "the files cannot be read: copy or fetch them again", &problem, err);
    facts->has_direct = rates.direct_bytes_per_s > 0;
    facts->bytes_per_s =
        rates.direct_bytes_per_s > rates.buffered_bytes_per_s ? rates.direct_bytes_per_s : rates.buffered_bytes_per_s;
    return true;
}

static void judge_rate(struct examination *e, const struct plan *plan)
{
    char bytes[UNITS_TEXT_MAX];
    if (plan->hits_low >= 1) {
        findings_add(e->findings, SEVERITY_OK, "speed",
                     "all experts find room in memory: the disk counts at the start only");
        return;
    }
    if (plan->rate_high <= 0) return;
    bool is_hopeless = plan->rate_high < RATE_HOPELESS, is_well = plan->rate_high >= RATE_WELL;
    struct finding *f = findings_add(e->findings,
                                     is_hopeless ? SEVERITY_PROBLEM
                                     : is_well   ? SEVERITY_OK
                                                 : SEVERITY_WARNING,
                                     "speed",
                                     "%.3g to %.3g tokens a second at most, predicted: a token needs %s of experts and "
                                     "finds %.0f to %.0f %% of them in "
                                     "memory (%s)",
                                     plan->rate_low, plan->rate_high, units_format_bytes(bytes, plan->token_bytes),
                                     100 * plan->hits_low, 100 * plan->hits_high, plan->rate_derivation);
    if (!is_well) finding_advise(f, "a faster SSD, or more memory for --ram-budget");
}

static bool judge_plan(struct examination *e, const struct engine_settings *settings, uint64_t bytes_per_s,
                       struct err *err)
{
    struct err problem = {0};
    struct plan plan;
    char used[UNITS_TEXT_MAX], budget[UNITS_TEXT_MAX];
    bool fits = engine_fit(&plan, e->context->alloc, e->context->fs, settings, NULL, bytes_per_s, &problem);
    if (!fits)
        return note_error(e, "plan",
                          problem.kind == ERR_FIT ? "weir fit shows the plan line by line"
                                                  : "weir inspect shows the files",
                          &problem, err);
    findings_add(e->findings, SEVERITY_OK, "plan", "%s of %s (%s), %" PRIu32 " expert slots",
                 units_format_bytes(used, plan.used_bytes), units_format_bytes(budget, plan.budget_bytes),
                 plan.budget_source, plan.n_slots_total);
    if (plan.is_thin)
        finding_advise(findings_add(e->findings, SEVERITY_WARNING, "plan", "fewer slots than one token's experts"),
                       "a larger --ram-budget, or a smaller --context-length");
    judge_rate(e, &plan);
    return true;
}

/* Narrow floats and FP8 are what checkpoints have, and no container: their weights become f32 in memory, all of them.
 */
static bool is_checkpoint(const struct inventory *inventory)
{
    enum weight_format format = inventory->layers[0].role[ROLE_Q_A].format;
    return format == FORMAT_F16 || format == FORMAT_BF16 || format == FORMAT_FP8_BLOCK;
}

static void judge_checkpoint(struct examination *e)
{
    const struct memory_fact *least = memory_facts_least(&e->machine->memory);
    const struct catalogue *catalogue = &e->catalogue;
    char expanded[UNITS_TEXT_MAX];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < catalogue->n_tensors; i++)
        if (e->inventory.is_used[i])
            bytes += catalogue->tensors[i].bytes * 8 / dtype_bits(catalogue->tensors[i].dtype) * sizeof(float);
    bool fits = !least || bytes < least->bytes;
    struct finding *f = findings_add(e->findings, fits ? SEVERITY_NOTE : SEVERITY_PROBLEM, "plan",
                                     "a checkpoint: all of its weights are expanded in memory, to %s",
                                     units_format_bytes(expanded, bytes));
    f->kind = ERR_FIT;
    finding_advise(f, "weir convert makes a container of it, which streams and needs an eighth of that on disk");
}

static bool examine_running(struct examination *e, struct err *err)
{
    struct engine_settings settings;
    struct storage_facts storage = storage_look(e->context->fs, "", folder(e));
    if (!engine_settings_from(&settings, e->context, err)) return false;
    if (!measure_disk(e, &settings, &storage, err)) return false;
    storage_judge(&storage, e->findings);
    if (is_checkpoint(&e->inventory)) {
        judge_checkpoint(e);
        return true;
    }
    return judge_plan(e, &settings, storage.bytes_per_s, err);
}

bool model_examine(const struct command_context *context, const struct machine_facts *machine,
                   struct findings *findings, struct err *err)
{
    struct examination e = {.context = context, .machine = machine, .findings = findings};
    bool is_read;
    bool ok = read_headers(&e, &is_read, err);
    if (ok && is_read) ok = examine_text(&e, err) && examine_running(&e, err);
    inventory_fini(&e.inventory);
    catalogue_close(&e.catalogue);
    return ok;
}
