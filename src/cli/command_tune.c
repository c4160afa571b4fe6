/* weir tune: which settings run a model fastest here, and the profile that keeps them. */
#include "base/nearest.h"
#include "cli/interrupt.h"
#include "cli/open_engine.h"
#include "cli/profile.h"
#include "fmt/json_text.h"
#include "run/dialogue.h"
#include "run/tuning.h"
#include <inttypes.h>
#include <string.h>

enum { PROMPT_TOKENS = 64, ANSWER_TOKENS = 24, REPORT_BYTES_MAX = 1 << 16 };

/* What is tried, in this order: each setting is measured with what was kept of those before. The first value of a
 * setting is its default. Nothing in here changes an answer. */
static const struct tuning_setting candidates[] = {
    {"direct-io", {"auto", "on", "off"}, 3},
    {"io-depth", {"auto", "4", "16", "32"}, 4},
    {"prefetch", {"on", "off"}, 2},
    {"policy", {"due", "lfru", "lru"}, 3},
    {"prefill-chunk", {"auto", "32", "128", "512"}, 4},
    {"num-draft-tokens", {"auto", "1", "3"}, 3},
};
enum { N_CANDIDATES = sizeof candidates / sizeof *candidates };

struct tune {
    const struct command_context *context;
    struct tuning_setting settings[N_CANDIDATES]; /* those that are tried */
    unsigned n_settings, n_runs;
    const atomic_bool *cancel; /* watched once: a second watch would forget a Ctrl-C that came between two runs */
    struct buf trials;         /* JSON */
};

/* --- one run --- */

/* The command's settings with the chosen values laid over. */
static bool choose(struct settings *out, const struct tune *t, const unsigned *chosen, struct err *err)
{
    *out = *t->context->settings;
    for (unsigned i = 0; i < t->n_settings; i++) {
        const struct tuning_setting *s = &t->settings[i];
        if (chosen[i] && !options_store(options_find(s->name), out, s->values[chosen[i]], s->name, err)) return false;
    }
    return true;
}

/* A prompt of ids from all over the vocabulary, so that it wants experts as a text would, and a greedy answer. */
static bool answer(const struct tune *t, struct engine *engine, double *seconds, struct err *err)
{
    uint32_t prompt[PROMPT_TOKENS], vocab = engine_config(engine)->vocab,
                                    room = engine_settings_of(engine)->context_tokens;
    uint32_t n = room > PROMPT_TOKENS + ANSWER_TOKENS ? PROMPT_TOKENS : room / 2;
    struct sampling sampling = sampling_built_in();
    struct dialogue *dialogue;
    struct sampled token;
    sampling.temperature = 0;
    sampling.max_tokens = ANSWER_TOKENS;
    sampling.ignore_eos = true;
    for (uint32_t i = 0; i < n; i++) prompt[i] = (uint32_t)(UINT64_C(2654435761) * (i + 1) % vocab);
    const struct dialogue_request request = {
        .prompt = prompt, .n_prompt = n, .sampling = &sampling, .key = 1, .cancel = t->cancel};
    if (!dialogue_new(&dialogue, engine, NULL, clock_real(), err)) return false;
    bool ok = dialogue_start(dialogue, &request, err);
    while (ok && dialogue_result(dialogue)->reason == STOP_NONE) ok = dialogue_next(dialogue, &token, err);
    const struct dialogue_result *r = dialogue_result(dialogue);
    if (ok && r->reason == STOP_CANCELLED) ok = err_set(err, ERR_CANCELLED, "stopped before a decision");
    *seconds = (double)(r->prefill_ns + r->decode_ns) / 1e9;
    dialogue_free(dialogue);
    return ok;
}

/* With an engine of its own, so that no run finds what another left in memory, and without the usage history. */
static bool run(void *context, const unsigned *chosen, double *seconds, struct err *err)
{
    struct tune *t = context;
    struct settings settings;
    struct command_context with = *t->context;
    struct engine_settings engine_settings;
    struct engine *engine = NULL;
    with.settings = &settings;
    bool ok = choose(&settings, t, chosen, err) && engine_settings_from(&engine_settings, &with, err) &&
              engine_open(&engine, with.alloc, with.fs, &engine_settings, err) && answer(t, engine, seconds, err);
    engine_close(engine);
    if (ok && t->n_runs++ == 0)
        fprintf(with.log, "weir: a run takes %.1f s, apart from opening the model; there are at most %u\n", *seconds,
                tuning_runs_max(&(struct tuning){
                    .settings = t->settings, .n_settings = t->n_settings, .n_pairs = (unsigned)with.settings->runs}));
    return ok;
}

/* --- what is told --- */

static void name_trial(char *text, size_t room, const struct tune *t, const struct tuning_trial *trial)
{
    if (trial->setting == t->n_settings) {
        snprintf(text, room, "all of these together");
    } else {
        const struct tuning_setting *s = &t->settings[trial->setting];
        snprintf(text, room, "%s %s instead of %s", s->name, s->values[trial->value], s->values[trial->against]);
    }
}

static bool add_json_trial(struct buf *out, const char *name, const struct tuning_trial *r, struct err *err)
{
    if (!buf_add_text(out, out->bytes ? ",{\"trial\":" : "{\"trial\":", err)) return false;
    if (!json_text_add_string(out, name, strlen(name), err)) return false;
    if (r->n_pairs == 0)
        return buf_add_text(out, ",\"refused\":", err) &&
               json_text_add_string(out, r->refusal.text, strlen(r->refusal.text), err) && buf_add_text(out, "}", err);
    return buf_printf(out, err, ",\"pairs\":%u,\"ratio\":%.4f,\"ratio_min\":%.4f,\"ratio_max\":%.4f,\"kept\":%s}",
                      r->n_pairs, r->ratio, r->ratio_min, r->ratio_max, r->is_kept ? "true" : "false");
}

static void tried(void *context, const struct tuning_trial *trial)
{
    struct tune *t = context;
    struct err ignored = {0};
    char name[128];
    name_trial(name, sizeof name, t, trial);
    bool is_told = add_json_trial(&t->trials, name, trial, &ignored);
    (void)is_told; /* without memory for a line the report is shorter, and the search as good */
    if (trial->n_pairs == 0)
        fprintf(t->context->log, "%s: not here: %s\n", name, trial->refusal.text);
    else
        fprintf(t->context->log, "%s: takes %.2f of the time (%.2f to %.2f in %u pairs), %s\n", name, trial->ratio,
                trial->ratio_min, trial->ratio_max, trial->n_pairs, trial->is_kept ? "kept" : "not kept");
}

/* --- from start to end --- */

static bool is_wanted(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || !at[n])) return true;
    return !list;
}

static bool check_list(const char *list, struct err *err)
{
    for (const char *at = list; at && *at;) {
        char word[64];
        size_t n = strcspn(at, ",");
        struct nearest nearest = {.word = word};
        bool is_known = false;
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        for (unsigned i = 0; i < N_CANDIDATES && !is_known; i++) {
            is_known = strcmp(candidates[i].name, word) == 0;
            nearest_offer(&nearest, candidates[i].name);
        }
        if (!is_known)
            return err_set(err, ERR_USER, "--only: '%s' is not tried; the nearest that is is '%s'", word, nearest.best);
        at += n + (at[n] == ',');
    }
    return true;
}

/* What the caller states himself is not tried. */
static bool pick(struct tune *t, struct err *err)
{
    const struct settings *s = t->context->settings;
    if (!check_list(s->only, err)) return false;
    for (unsigned i = 0; i < N_CANDIDATES; i++) {
        const char *name = candidates[i].name;
        if (!options_find(name) || settings_origin(s, name) > ORIGIN_PROFILE || !is_wanted(s->only, name)) continue;
        t->settings[t->n_settings++] = candidates[i];
    }
    return t->n_settings > 0 ||
           err_set(err, ERR_USER, "all that would be tried is stated already; leave some of it out");
}

static bool make_lines(struct buf *lines, const struct tune *t, const unsigned *chosen, struct err *err)
{
    bool ok = true;
    for (unsigned i = 0; ok && i < t->n_settings; i++)
        if (chosen[i]) ok = buf_printf(lines, err, "%s = %s\n", t->settings[i].name, t->settings[i].values[chosen[i]]);
    return ok;
}

static bool make_json(struct buf *out, const struct tune *t, const unsigned *chosen, const char *path, struct err *err)
{
    const char *parting = "";
    bool ok = buf_add_text(out, "{\"profile\":", err) &&
              (path ? json_text_add_string(out, path, strlen(path), err) : buf_add_text(out, "null", err)) &&
              buf_add_text(out, ",\"settings\":{", err);
    for (unsigned i = 0; ok && i < t->n_settings; i++) {
        if (!chosen[i]) continue;
        ok = buf_printf(out, err, "%s\"%s\":\"%s\"", parting, t->settings[i].name, t->settings[i].values[chosen[i]]);
        parting = ",";
    }
    return ok && buf_printf(out, err, "},\"trials\":[%s]}\n", t->trials.data ? t->trials.data : "");
}

static bool save(const struct tune *t, const unsigned *chosen, const char *path, struct err *err)
{
    struct buf lines, json;
    const struct command_context *context = t->context;
    buf_init(&lines, context->alloc, REPORT_BYTES_MAX);
    buf_init(&json, context->alloc, REPORT_BYTES_MAX);
    bool ok = make_lines(&lines, t, chosen, err) &&
              profile_write(path, context->alloc, lines.data ? lines.data : "", lines.bytes, err) &&
              make_json(&json, t, chosen, lines.bytes ? path : NULL, err);
    if (ok) fprintf(context->out, "%s", context->settings->json ? json.data : lines.data ? lines.data : "");
    if (ok && lines.bytes)
        fprintf(context->log, "weir: saved in %s; --profile off does without\n", path);
    else if (ok)
        fprintf(context->log, "weir: nothing is 3 %% faster than the defaults here, so there is no profile\n");
    buf_fini(&lines);
    buf_fini(&json);
    return ok;
}

static bool tune(struct tune *t, struct err *err)
{
    unsigned chosen[TUNING_SETTINGS_MAX];
    struct location place;
    if (!pick(t, err) || !profile_locate(&place, t->context, t->context->operands[0], err)) return false;
    t->cancel = interrupt_watch();
    const struct tuning tuning = {
        .settings = t->settings,
        .n_settings = t->n_settings,
        .n_pairs = (unsigned)t->context->settings->runs,
        .win = 0.03,
        .context = t,
        .run = run,
        .tried = tried,
        .cancel = t->cancel,
    };
    return tuning_search(&tuning, chosen, err) && save(t, chosen, place.path, err);
}

int command_tune(struct command_context *context)
{
    struct err err = {0};
    struct tune t = {.context = context};
    buf_init(&t.trials, context->alloc, REPORT_BYTES_MAX);
    bool ok = tune(&t, &err);
    interrupt_unwatch();
    buf_fini(&t.trials);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
