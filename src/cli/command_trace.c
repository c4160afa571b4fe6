/* weir trace: records which experts a model chooses, and tells what policies would have made of it. */
#include "base/buf.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/open_engine.h"
#include "fmt/token_list.h"
#include "plat/file_write.h"
#include "run/route_recorder.h"
#include "run/session.h"
#include "run/trace_study.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define IDS_FILE_BYTES_MAX (UINT64_C(64) << 20)
#define JSON_BYTES_MAX (UINT64_C(64) << 20)

struct recording {
    const struct command_context *context;
    struct engine *engine;
    struct route_recorder *recorder;
    uint64_t n_tokens, n_texts;
};

/* In passes of --prefill-chunk tokens where that is given: a pass of the engine may hold more, for rows that ride
 * along. */
static bool feed(struct recording *r, struct session *session, const struct token_list *ids, struct err *err)
{
    uint64_t chunk = r->context->settings->prefill_chunk;
    for (size_t done = 0, n; done < ids->n; done += n) {
        n = ids->n - done < chunk ? ids->n - done : chunk;
        if (!session_feed(session, ids->ids + done, n, NULL, NULL, err)) return false;
    }
    return true;
}

/* The text, and behind it greedy tokens if some were asked for. */
static bool run_ids(struct recording *r, const char *source, const char *text, struct err *err)
{
    const struct settings *s = r->context->settings;
    uint64_t n_more = settings_origin(s, "max-tokens") == ORIGIN_DEFAULT ? 0 : s->max_tokens;
    uint32_t vocab = engine_config(r->engine)->vocab;
    struct token_list ids = {0};
    struct session session;
    session_init(&session, r->engine);
    bool ok = token_list_parse(&ids, r->context->alloc, source, text, err) && feed(r, &session, &ids, err);
    for (uint64_t i = 0; ok && i < n_more; i++) {
        uint32_t next = forward_argmax(session.logits, vocab);
        ok = session_feed(&session, &next, 1, NULL, NULL, err);
    }
    r->n_tokens += ids.n + n_more;
    r->n_texts++;
    session_fini(&session);
    token_list_fini(&ids);
    return ok;
}

/* Every line is a text of its own. */
static bool run_lines(struct recording *r, const char *path, struct err *err)
{
    size_t bytes;
    char *text = file_read_all(r->context->alloc, r->context->fs, path, IDS_FILE_BYTES_MAX, &bytes, err);
    if (!text) return false;
    bool ok = true;
    for (char *line = text; ok && line < text + bytes;) {
        char *end = line + strcspn(line, "\n");
        *end = '\0';
        if (end > line) ok = run_ids(r, path, line, err);
        line = end + 1;
    }
    alloc_put(r->context->alloc, text);
    return ok;
}

static bool record(const struct command_context *context, struct err *err)
{
    const struct settings *s = context->settings;
    struct recording r = {.context = context};
    struct engine_settings settings;
    if (context->n_operands != 3) return err_set(err, ERR_USER, "trace record needs MODEL and the FILE to write");
    if (!s->ids == !s->ids_file) return err_set(err, ERR_USER, "give the tokens with either --ids or --ids-file");
    if (!engine_settings_from(&settings, context, err)) return false;
    settings.model_dir = context->operands[1];
    bool ok = engine_open(&r.engine, context->alloc, context->fs, &settings, err) &&
              route_recorder_open(&r.recorder, r.engine, context->fs, write_system_real(), context->operands[2], err);
    if (ok) ok = s->ids ? run_ids(&r, "--ids", s->ids, err) : run_lines(&r, s->ids_file, err);
    uint64_t n_steps = r.recorder ? route_recorder_steps(r.recorder) : 0;
    struct err ignored = {0};
    if (!route_recorder_close(r.recorder, ok ? err : &ignored)) ok = false;
    if (ok && s->json)
        fprintf(context->out, "{\"texts\":%" PRIu64 ",\"tokens\":%" PRIu64 ",\"steps\":%" PRIu64 "}\n", r.n_texts,
                r.n_tokens, n_steps);
    else if (ok)
        fprintf(context->out, "%" PRIu64 " texts, %" PRIu64 " tokens, %" PRIu64 " steps of layers in %s\n", r.n_texts,
                r.n_tokens, n_steps, context->operands[2]);
    engine_close(r.engine);
    return ok;
}

/* --- replay and compare --- */

/* "1%,3%,64": shares of the experts and plain numbers. */
static bool read_sizes(struct trace_size sizes[TRACE_STUDY_SIZES_MAX], uint32_t *n, const char *text, struct err *err)
{
    for (*n = 0; *text; (*n)++) {
        char *end;
        if (*n == TRACE_STUDY_SIZES_MAX)
            return err_set(err, ERR_USER, "--slots: more than %d numbers", TRACE_STUDY_SIZES_MAX);
        double value = strtod(text, &end);
        bool is_share = *end == '%';
        end += is_share;
        if (end == text || !(value > 0 && value <= (is_share ? 100 : 1e9)) || (*end && *end != ','))
            return err_set(err, ERR_USER, "--slots: '%s' does not begin with a number of slots or a percentage", text);
        sizes[*n] = (struct trace_size){is_share ? value / 100 : value, is_share};
        text = end + (*end == ',');
    }
    return *n > 0 || err_set(err, ERR_USER, "--slots: the list is empty");
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_layers(FILE *out, const struct trace_study *study, const struct trace_score *score,
                         const struct trace_score *best)
{
    for (uint32_t layer = 0; layer < study->n_layers; layer++) {
        uint64_t n = score->layer_hits[layer] + score->layer_misses[layer];
        if (n > 0)
            fprintf(out, "    layer %3" PRIu32 "  %6.2f %% found, %6.2f %% at best\n", layer,
                    share(score->layer_hits[layer], n), share(best->layer_hits[layer], n));
    }
}

static void print_study(const struct command_context *context, const struct trace_study *study, bool with_layers)
{
    FILE *out = context->out;
    fprintf(out, "%" PRIu64 " layers of passes asked for %" PRIu64 " experts, %" PRIu32 " different ones\n",
            study->n_wants, study->n_wanted, study->n_distinct);
    for (uint32_t i = 0; i < study->n_sizes; i++) {
        fprintf(out, "\n%" PRIu32 " slots       found      read   regret (read beyond the optimum)\n",
                study->n_slots[i]);
        for (uint32_t k = 0; k < study->n_scores; k++) {
            const struct trace_score *score = trace_study_score(study, i, k);
            fprintf(out, "  %-11s %6.2f %% %9" PRIu64 " %8" PRIu64 " (%.1f %%)\n", score->policy,
                    share(score->n_hits, study->n_wanted), score->n_misses, trace_study_regret(study, i, k),
                    share(trace_study_regret(study, i, k), score->n_misses));
            if (with_layers && k + 1 < study->n_scores)
                print_layers(out, study, score, trace_study_score(study, i, study->n_scores - 1));
        }
    }
    if (study->dropped_bytes > 0)
        fprintf(context->log, "the last %" PRIu64 " bytes are no whole record and were left out\n",
                study->dropped_bytes);
}

static bool add_score(struct buf *json, const struct trace_study *study, uint32_t i, uint32_t k, bool with_layers,
                      struct err *err)
{
    const struct trace_score *score = trace_study_score(study, i, k);
    if (!buf_printf(json, err, "%s{\"policy\":\"%s\",\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"regret\":%" PRIu64,
                    k ? "," : "", score->policy, score->n_hits, score->n_misses, trace_study_regret(study, i, k)))
        return false;
    if (!with_layers) return buf_add_char(json, '}', err);
    if (!buf_add_text(json, ",\"layer_misses\":[", err)) return false;
    for (uint32_t layer = 0; layer < study->n_layers; layer++)
        if (!buf_printf(json, err, "%s%" PRIu64, layer ? "," : "", score->layer_misses[layer])) return false;
    return buf_add_text(json, "]}", err);
}

static bool add_study(struct buf *json, const struct trace_study *study, bool with_layers, struct err *err)
{
    if (!buf_printf(json, err,
                    "{\"wants\":%" PRIu64 ",\"wanted\":%" PRIu64 ",\"distinct\":%" PRIu32 ",\"dropped_bytes\":%" PRIu64
                    ",\"sizes\":[",
                    study->n_wants, study->n_wanted, study->n_distinct, study->dropped_bytes))
        return false;
    for (uint32_t i = 0; i < study->n_sizes; i++) {
        if (!buf_printf(json, err, "%s{\"slots\":%" PRIu32 ",\"policies\":[", i ? "," : "", study->n_slots[i]))
            return false;
        for (uint32_t k = 0; k < study->n_scores; k++)
            if (!add_score(json, study, i, k, with_layers, err)) return false;
        if (!buf_add_text(json, "]}", err)) return false;
    }
    return buf_add_text(json, "]}", err);
}

static bool study_trace(const struct command_context *context, const char *policy, bool with_layers, struct err *err)
{
    struct trace_size sizes[TRACE_STUDY_SIZES_MAX];
    struct trace_study study;
    struct buf json;
    uint32_t n;
    if (context->n_operands != 2)
        return err_set(err, ERR_USER, "trace %s needs the FILE that trace record wrote", context->operands[0]);
    if (!read_sizes(sizes, &n, context->settings->slots, err)) return false;
    if (!trace_study_run(&study, context->alloc, context->fs, context->operands[1], policy, sizes, n, err))
        return false;
    buf_init(&json, context->alloc, JSON_BYTES_MAX);
    bool ok = true;
    if (!context->settings->json)
        print_study(context, &study, with_layers);
    else if ((ok = add_study(&json, &study, with_layers, err)))
        fprintf(context->out, "%s\n", json.data);
    buf_fini(&json);
    trace_study_fini(&study);
    return ok;
}

static bool replay(const struct command_context *context, struct err *err)
{
    if (!context->settings->policy)
        return err_set(err, ERR_USER, "trace replay needs --policy; trace compare runs all of them");
    return study_trace(context, context->settings->policy, true, err);
}

static bool compare(const struct command_context *context, struct err *err)
{
    return study_trace(context, context->settings->policy, false, err);
}

static const struct {
    const char *name;
    bool (*run)(const struct command_context *context, struct err *err);
} actions[] = {{"record", record}, {"replay", replay}, {"compare", compare}};

int command_trace(struct command_context *context)
{
    struct nearest nearest = {.word = context->operands[0]};
    struct err err = {0};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(actions[i].name, context->operands[0]) == 0)
            return actions[i].run(context, &err) ? EXIT_CODE_DONE : command_fail(context, &err);
        nearest_offer(&nearest, actions[i].name);
    }
    err_set(&err, ERR_USER, "trace cannot %s; the nearest is '%s' (see weir help trace)", context->operands[0],
            nearest.best);
    return command_fail(context, &err);
}
