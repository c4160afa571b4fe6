/* weir bench draft: the engine's choice of drafts beside fixed numbers of them, on this disk and on slower ones. */
#include "cli/bench.h"
#include "cli/open_engine.h"
#include "fmt/token_list.h"
#include "run/draft_bench.h"
#include <inttypes.h>

enum { PROMPT_TOKENS = 8, WARM_UP_TOKENS = 4, TURN_TOKENS = 20, PASS_ROWS = 64, LIST_MAX = 16, PERCENT = 100 };

struct list {
    uint32_t n, of[LIST_MAX];
};

static bool read_list(struct list *list, const struct command_context *context, const char *option, const char *text,
                      uint32_t n_max, uint32_t most, struct err *err)
{
    struct token_list ids;
    if (!token_list_parse(&ids, context->alloc, option, text, err)) return false;
    bool ok = ids.n <= n_max;
    for (size_t i = 0; ok && i < ids.n; i++) {
        ok = ids.ids[i] <= most;
        list->of[list->n++] = ids.ids[i];
    }
    token_list_fini(&ids);
    return ok || err_set(err, ERR_USER, "%s: give 1 to %" PRIu32 " numbers up to %" PRIu32, option, n_max, most);
}

struct bench {
    const struct command_context *context;
    struct list depths, rates, hits; /* depths: fixed, without the two ways that are always there */
    struct aio_pace pace;
    struct engine *engine;
};

static bool read_lists(struct bench *b, struct err *err)
{
    const struct settings *s = b->context->settings;
    const char *depths = s->sizes ? s->sizes : "1,2,3";
    return read_list(&b->depths, b->context, "--sizes", depths, DRAFT_BENCH_WAYS_MAX - 2, DRAFTS_MTP_MAX, err) &&
           read_list(&b->rates, b->context, "--throttle", s->throttle, LIST_MAX, 1 << 20, err) &&
           read_list(&b->hits, b->context, "--hits", s->hits, LIST_MAX, PERCENT, err);
}

static struct draft_bench_shape shape_of(struct bench *b, uint32_t rate, uint32_t hits)
{
    struct draft_bench_shape shape = {.prompt_tokens = PROMPT_TOKENS,
                                      .warm_up_tokens = WARM_UP_TOKENS,
                                      .turn_tokens = TURN_TOKENS,
                                      .rounds = (uint32_t)b->context->settings->runs,
                                      .chance = (double)hits / PERCENT,
                                      .pace = &b->pace,
                                      .bytes_per_s = (uint64_t)rate * 1000000,
                                      .seed = hits + 1};
    shape.depths[shape.n_depths++] = 0;
    for (uint32_t i = 0; i < b->depths.n; i++) shape.depths[shape.n_depths++] = b->depths.of[i];
    shape.depths[shape.n_depths++] = DRAFT_BENCH_AUTO;
    return shape;
}

static bool open_model(struct bench *b, struct err *err)
{
    struct engine_settings settings;
    const struct draft_bench_shape shape = shape_of(b, 0, 0);
    if (!engine_settings_from(&settings, b->context, err)) return false;
    settings.model_dir = b->context->operands[1];
    settings.drafts = (struct draft_choice){.kind = DRAFT_MTP, .is_weighed = true, .n_max = DRAFTS_MTP_MAX};
    settings.context_tokens = draft_bench_context(&shape);
    settings.streamed.device = (struct device_source){draft_bench_device, &b->pace};
    if (settings.pass_rows == 0) settings.pass_rows = PASS_ROWS;
    if (!engine_open(&b->engine, b->context->alloc, b->context->fs, &settings, err)) return false;
    return engine_plan(b->engine) ||
           err_set(err, ERR_USER, "%s: a checkpoint does not stream; weir convert makes a container of it",
                   settings.model_dir);
}

/* --- the table --- */

static void print_head(const struct bench *b)
{
    FILE *out = b->context->out;
    const struct plan *plan = engine_plan(b->engine);
    if (b->context->settings->json) {
        fprintf(out, "{\"part\":\"draft\",\"slots\":%" PRIu32 ",\"experts\":%" PRIu32 ",\"cells\":[",
                plan->n_slots_total, engine_inventory(b->engine)->n_routed_experts);
        return;
    }
    fprintf(out,
            "%" PRIu32 " of %" PRIu32 " experts fit; tokens a second, median of the turns; automatic against the best "
            "fixed number and against none, turn by turn (least to most)\n",
            plan->n_slots_total, engine_inventory(b->engine)->n_routed_experts);
    fprintf(out, "  MB/s  hits    none");
    for (uint32_t i = 0; i < b->depths.n; i++) fprintf(out, "  %6" PRIu32, b->depths.of[i]);
    fprintf(out, "    auto  drafts a pass  best  against it            against none          first turn\n");
}

static uint32_t best_fixed(const struct draft_bench_result *r, uint32_t rounds)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < r->n_ways; i++)
        if (draft_bench_rate(&r->ways[i], rounds) > draft_bench_rate(&r->ways[best], rounds)) best = i;
    return best;
}

static struct draft_bench_turn total_of(const struct draft_bench_way *way, uint32_t rounds)
{
    struct draft_bench_turn t = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        t.n_tokens += way->turns[i].n_tokens;
        t.n_passes += way->turns[i].n_passes;
        t.n_drafted += way->turns[i].n_drafted;
        t.n_accepted += way->turns[i].n_accepted;
        t.bytes_read += way->turns[i].bytes_read;
        t.ns += way->turns[i].ns;
    }
    return t;
}

/* First turns of the automatic way against those of none. */
static double first_ratio(const struct draft_bench_result *r)
{
    const struct draft_bench_turn *first = &r->ways[r->n_ways - 1].first, *none = &r->ways[0].first;
    return (double)first->n_tokens / (double)first->ns / ((double)none->n_tokens / (double)none->ns);
}

static void print_cell(const struct bench *b, const struct draft_bench_shape *shape, uint32_t rate, uint32_t hits,
                       const struct draft_bench_result *r)
{
    FILE *out = b->context->out;
    uint32_t n = shape->rounds, best = best_fixed(r, n);
    const struct draft_bench_way *chosen = &r->ways[r->n_ways - 1];
    struct draft_bench_ratio to_best = draft_bench_compare(chosen, &r->ways[best], n);
    struct draft_bench_ratio to_none = draft_bench_compare(chosen, &r->ways[0], n);
    struct draft_bench_turn total = total_of(chosen, n);
    fprintf(out, "%6" PRIu32 "  %3" PRIu32 "%%", rate, hits);
    for (uint32_t i = 0; i < r->n_ways; i++) fprintf(out, "  %6.3f", draft_bench_rate(&r->ways[i], n));
    fprintf(out, "  %13.2f  %4" PRIu32 "  %.3f (%.3f to %.3f)  %.3f (%.3f to %.3f)  %.3f\n",
            (double)total.n_drafted / (double)total.n_passes, r->ways[best].depth, to_best.median, to_best.least,
            to_best.most, to_none.median, to_none.least, to_none.most, first_ratio(r));
    fflush(out);
}

static void print_json_turn(FILE *out, const struct draft_bench_turn *t)
{
    fprintf(out,
            "{\"tokens\":%" PRIu64 ",\"ns\":%" PRId64 ",\"passes\":%" PRIu64 ",\"drafted\":%" PRIu64
            ",\"accepted\":%" PRIu64 ",\"bytes_read\":%" PRIu64 "}",
            t->n_tokens, t->ns, t->n_passes, t->n_drafted, t->n_accepted, t->bytes_read);
}

static void print_json_cell(const struct bench *b, const struct draft_bench_shape *shape, uint32_t rate, uint32_t hits,
                            const struct draft_bench_result *r, bool is_first)
{
    FILE *out = b->context->out;
    fprintf(out, "%s{\"bytes_per_second\":%" PRIu64 ",\"hit_percent\":%" PRIu32 ",\"ways\":[", is_first ? "" : ",",
            (uint64_t)rate * 1000000, hits);
    for (uint32_t i = 0; i < r->n_ways; i++) {
        const struct draft_bench_way *way = &r->ways[i];
        bool is_auto = way->depth == DRAFT_BENCH_AUTO;
        fprintf(out, "%s{\"drafts\":", i ? "," : "");
        if (is_auto)
            fprintf(out, "\"auto\"");
        else
            fprintf(out, "%" PRIu32, way->depth);
        fprintf(out, ",\"tokens_per_second\":%.4f,\"first\":", draft_bench_rate(way, shape->rounds));
        print_json_turn(out, &way->first);
        fprintf(out, ",\"turns\":[");
        for (uint32_t k = 0; k < shape->rounds; k++) {
            fprintf(out, "%s", k ? "," : "");
            print_json_turn(out, &way->turns[k]);
        }
        fprintf(out, "]}");
    }
    fprintf(out, "]}");
}

static bool run_cells(struct bench *b, struct err *err)
{
    struct draft_bench_result result;
    bool json = b->context->settings->json;
    print_head(b);
    for (uint32_t i = 0; i < b->rates.n * b->hits.n; i++) {
        uint32_t rate = b->rates.of[i / b->hits.n], hits = b->hits.of[i % b->hits.n];
        const struct draft_bench_shape shape = shape_of(b, rate, hits);
        if (!draft_bench_run(&result, b->engine, &shape, err)) return false;
        if (json)
            print_json_cell(b, &shape, rate, hits, &result, i == 0);
        else
            print_cell(b, &shape, rate, hits, &result);
    }
    if (json) fprintf(b->context->out, "]}\n");
    return true;
}

bool bench_draft(const struct command_context *context, struct err *err)
{
    struct bench b = {.context = context};
    bool ok = read_lists(&b, err) && open_model(&b, err) && draft_bench_fill(b.engine, 1, err) && run_cells(&b, err);
    engine_close(b.engine);
    return ok;
}
