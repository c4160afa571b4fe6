/* weir generate: continue a prompt of token ids. */
#include "base/buf.h"
#include "cli/commands.h"
#include "cli/open_engine.h"
#include "plat/clock.h"
#include "run/generation.h"
#include "run/random.h"
#include "run/sampling_json.h"
#include <inttypes.h>
#include <math.h>

#define JSON_BYTES_MAX (UINT64_C(1) << 30)

struct generating {
    const struct command_context *context;
    struct token_list prompt;
    struct engine *engine;
    struct session session;
    struct sampling sampling;
    struct sampler_rules rules;
    struct generation generation;
    struct buf ids; /* what was generated, parted by commas or blanks */
    uint32_t n_generated;
    double prefill_s, decode_s;
};

/* The command line over the model's generation_config.json over what is built in. */
static bool choose_sampling(struct generating *g, struct err *err)
{
    const struct settings *s = g->context->settings;
    struct sampling model = {0}, built_in = sampling_built_in();
    enum sampling_fault fault;
    enum sampling_field field;
    const struct sampling_value max_tokens = {.kind = SAMPLING_INTEGER, .integer = (int64_t)s->max_tokens};
    const struct sampling_value temperature = {.kind = SAMPLING_REAL, .real = s->temperature};
    const struct sampling_value ignore_eos = {.kind = SAMPLING_BOOL, .integer = s->ignore_eos};
    if (!sampling_put(&g->sampling, SAMPLING_MAX_TOKENS, "--max-tokens", max_tokens, &fault, err)) return false;
    if (!sampling_put(&g->sampling, SAMPLING_IGNORE_EOS, "--ignore-eos", ignore_eos, &fault, err)) return false;
    if (!isnan(s->temperature) &&
        !sampling_put(&g->sampling, SAMPLING_TEMPERATURE, "--temperature", temperature, &fault, err))
        return false;
    if (!sampling_json_defaults(&model, g->context->alloc, g->context->fs, g->context->operands[0], err)) return false;
    sampling_fill(&g->sampling, &model);
    sampling_fill(&g->sampling, &built_in);

    const struct config *config = engine_config(g->engine);
    g->rules = (struct sampler_rules){.sampling = &g->sampling, .eos = config->eos, .n_eos = config->n_eos};
    if (!sampling_check(&g->sampling, config->vocab, config->vocab, &field, err)) return false;
    if (s->seed != SETTING_WORD) g->rules.key = random_key_from_seed((int64_t)s->seed);
    return s->seed != SETTING_WORD || random_key_fresh(&g->rules.key, err);
}

static bool run(struct generating *g, struct err *err)
{
    struct clock clock = clock_real();
    int64_t start = clock_now_ns(clock);
    if (!generation_start(&g->generation, g->prompt.ids, (uint32_t)g->prompt.n, err)) return false;
    int64_t prefilled = clock_now_ns(clock);
    for (;;) {
        struct sampled token;
        if (!generation_next(&g->generation, &token, err)) return false;
        if (g->generation.reason != STOP_NONE) break;
        const char *parting = g->context->settings->json ? "," : " ";
        if (!buf_printf(&g->ids, err, "%s%" PRIu32, g->n_generated ? parting : "", token.id)) return false;
        g->n_generated++;
    }
    g->prefill_s = (double)(prefilled - start) / 1e9;
    g->decode_s = (double)(clock_now_ns(clock) - prefilled) / 1e9;
    return true;
}

static void print_result(const struct generating *g)
{
    FILE *out = g->context->out;
    const char *ids = g->ids.data ? g->ids.data : "";
    double rate = g->decode_s > 0 ? g->n_generated / g->decode_s : 0;
    if (!g->context->settings->json) {
        fprintf(out, "%s\n", ids);
        fprintf(g->context->log, "%zu tokens read in %.3f s, %" PRIu32 " written in %.3f s (%.2f a second)\n",
                g->prompt.n, g->prefill_s, g->n_generated, g->decode_s, rate);
        return;
    }
    fprintf(out,
            "{\"ids\":[%s],\"finish_reason\":\"%s\",\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%" PRIu32
            "},\"timings\":{\"prefill_seconds\":%.6f,\"decode_seconds\":%.6f,\"decode_tokens_per_second\":%.6g}}\n",
            ids, stop_reason_name(g->generation.reason), g->prompt.n, g->n_generated, g->prefill_s, g->decode_s, rate);
}

static bool generate(struct generating *g, struct err *err)
{
    if (!open_token_list(&g->prompt, g->context, err)) return false;
    if (!open_engine(&g->engine, g->context, err)) return false;
    if (!choose_sampling(g, err)) return false;
    session_init(&g->session, g->engine);
    if (!generation_init(&g->generation, &g->session, &g->rules, engine_config(g->engine)->vocab, err)) return false;
    if (!run(g, err)) return false;
    print_result(g);
    return true;
}

int command_generate(struct command_context *context)
{
    struct err err = {0};
    struct generating g = {.context = context};
    buf_init(&g.ids, context->alloc, JSON_BYTES_MAX);
    bool ok = generate(&g, &err);
    generation_fini(&g.generation);
    session_fini(&g.session);
    engine_close(g.engine);
    token_list_fini(&g.prompt);
    buf_fini(&g.ids);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
