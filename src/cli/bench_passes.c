/* weir bench prefill and weir bench decode: passes over made-up tokens, by stage, against the pace of the memory. */
#include "base/buf.h"
#include "cli/bench.h"
#include "cli/open_engine.h"
#include "fmt/token_list.h"
#include "run/pass_bench.h"
#include <inttypes.h>

#define JSON_BYTES_MAX (UINT64_C(1) << 20)

enum { DECODE_STEPS = 8 };

struct passes {
    const struct command_context *context;
    bool is_prompt;
    struct token_list sizes; /* tokens of a prompt, or of the context in front of decoded ones */
    struct pass_shape shapes[PASS_BENCH_SHAPES_MAX];
    struct engine *engine;
    struct pass_bench_result result;
};

static bool read_shapes(struct passes *p, struct err *err)
{
    const struct settings *s = p->context->settings;
    const char *text = s->sizes ? s->sizes : p->is_prompt ? "16,64,256" : "16,2048";
    if (!token_list_parse(&p->sizes, p->context->alloc, "--sizes", text, err)) return false;
    if (p->sizes.n == 0 || p->sizes.n > PASS_BENCH_SHAPES_MAX)
        return err_set(err, ERR_USER, "--sizes: %zu numbers; give 1 to %d", p->sizes.n, PASS_BENCH_SHAPES_MAX);
    for (size_t i = 0; i < p->sizes.n; i++) {
        uint32_t size = p->sizes.ids[i], chunk = size;
        if (size > 1 << 20 || (p->is_prompt && size == 0))
            return err_set(err, ERR_USER, "--sizes: %" PRIu32 " tokens; sizes go from 1 to %d", size, 1 << 20);
        if (s->prefill_chunk != SETTING_WORD && s->prefill_chunk < size) chunk = (uint32_t)s->prefill_chunk;
        if (p->is_prompt)
            p->shapes[i] = (struct pass_shape){true, (uint32_t)s->depth, size, chunk, 0};
        else
            p->shapes[i] = (struct pass_shape){false, size, (uint32_t)s->sequences, 0, DECODE_STEPS};
    }
    return true;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The engine as other commands open it, with room for the shapes. */
static bool open_for_shapes(struct passes *p, struct err *err)
{
    struct engine_settings settings;
    if (!engine_settings_from(&settings, p->context, err)) return false;
    settings.model_dir = p->context->operands[1];
    settings.pass_rows = 1;
    settings.context_tokens = 1;
    settings.n_sequences = p->is_prompt ? 1 : (uint32_t)p->context->settings->sequences;
    for (size_t i = 0; i < p->sizes.n; i++) {
        const struct pass_shape *shape = &p->shapes[i];
        settings.pass_rows = larger(settings.pass_rows, shape->chunk);
        settings.context_tokens =
            larger(settings.context_tokens, shape->depth + (shape->is_prompt ? shape->rows : shape->steps));
    }
    settings.logit_rows = settings.n_sequences;
    /* All shapes' contexts are held at the same time. */
    settings.n_sequences *= (uint32_t)p->sizes.n;
    return engine_open(&p->engine, p->context->alloc, p->context->fs, &settings, err);
}

/* The least time that reading the weights and the state of a run from memory takes, by its measured time. */
static double share_of_floor(const struct passes *p, const struct pass_figures *f)
{
    return (double)(f->weight_bytes + f->state_bytes) / p->result.read_bytes_per_s / ((double)f->ns / 1e9);
}

static void print_text(const struct passes *p)
{
    FILE *out = p->context->out;
    fprintf(out, "memory is read at %.1f GB/s by %u threads; %s; medians of %" PRIu64 " interleaved runs\n",
            p->result.read_bytes_per_s / 1e9, engine_settings_of(p->engine)->n_threads,
            numerics_name(engine_settings_of(p->engine)->numerics), p->context->settings->runs);
    for (size_t i = 0; i < p->sizes.n; i++) {
        const struct pass_figures *f = &p->result.figures[i];
        const struct pass_shape *shape = &p->shapes[i];
        double tokens = (double)f->n_tokens;
        fprintf(out,
                "\n%s %" PRIu32 ": %.2f tokens/s (best %.2f), %.3f ms a token, %.3f GB a pass, %.1f %% of the floor\n",
                p->is_prompt ? "prompt of" : "context of", p->is_prompt ? shape->rows : shape->depth,
                tokens / ((double)f->ns / 1e9), tokens / ((double)f->ns_min / 1e9), (double)f->ns / 1e6 / tokens,
                (double)(f->weight_bytes + f->state_bytes) / 1e9 / f->n_passes, 100 * share_of_floor(p, f));
        for (int s = 0; s < STAGE_COUNT; s++)
            fprintf(out, "  %-9s%11.3f ms a token %6.1f %%\n", stage_name((enum stage)s),
                    (double)f->stages.ns[s] / 1e6 / tokens, 100 * (double)f->stages.ns[s] / (double)f->ns);
    }
}

static bool add_shape(struct buf *json, const struct passes *p, size_t i, struct err *err)
{
    const struct pass_figures *f = &p->result.figures[i];
    const struct pass_shape *shape = &p->shapes[i];
    if (!buf_printf(json, err,
                    "%s{\"depth\":%" PRIu32 ",\"rows\":%" PRIu32 ",\"passes\":%" PRIu32 ",\"tokens\":%" PRIu64
                    ",\"ns\":%" PRId64 ",\"ns_min\":%" PRId64 ",\"weight_bytes\":%" PRIu64 ",\"expert_bytes\":%" PRIu64
                    ",\"state_bytes\":%" PRIu64 ",\"share_of_floor\":%.4f,\"stages_ns\":{",
                    i ? "," : "", shape->depth, shape->rows, f->n_passes, f->n_tokens, f->ns, f->ns_min,
                    f->weight_bytes, f->expert_bytes, f->state_bytes, share_of_floor(p, f)))
        return false;
    for (int s = 0; s < STAGE_COUNT; s++)
        if (!buf_printf(json, err, "%s\"%s\":%" PRId64, s ? "," : "", stage_name((enum stage)s), f->stages.ns[s]))
            return false;
    return buf_add_text(json, "}}", err);
}

static bool print_json(const struct passes *p, struct err *err)
{
    struct buf json;
    buf_init(&json, p->context->alloc, JSON_BYTES_MAX);
    bool ok =
        buf_printf(&json, err,
                   "{\"part\":\"%s\",\"numerics\":\"%s\",\"threads\":%u,\"runs\":%" PRIu64
                   ",\"read_bytes_per_s\":%.0f,\"shapes\":[",
                   p->is_prompt ? "prefill" : "decode", numerics_name(engine_settings_of(p->engine)->numerics),
                   engine_settings_of(p->engine)->n_threads, p->context->settings->runs, p->result.read_bytes_per_s);
    for (size_t i = 0; ok && i < p->sizes.n; i++) ok = add_shape(&json, p, i, err);
    ok = ok && buf_add_text(&json, "]}", err);
    if (ok) fprintf(p->context->out, "%s\n", json.data);
    buf_fini(&json);
    return ok;
}

static bool bench(const struct command_context *context, bool is_prompt, struct err *err)
{
    struct passes p = {.context = context, .is_prompt = is_prompt};
    unsigned runs = (unsigned)context->settings->runs;
    bool ok = read_shapes(&p, err) && open_for_shapes(&p, err) &&
              pass_bench_run(&p.result, p.engine, p.shapes, p.sizes.n, runs, err);
    if (ok && context->settings->json)
        ok = print_json(&p, err);
    else if (ok)
        print_text(&p);
    engine_close(p.engine);
    token_list_fini(&p.sizes);
    return ok;
}

bool bench_prefill(const struct command_context *context, struct err *err)
{
    return bench(context, true, err);
}

bool bench_decode(const struct command_context *context, struct err *err)
{
    return bench(context, false, err);
}
