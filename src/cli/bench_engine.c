/* weir bench disk, memory and engine: the ceilings of this machine, and a streaming engine against them. */
#include "cli/bench.h"
#include "cli/open_engine.h"
#include "plat/cpu.h"
#include "run/disk_bench.h"
#include "run/engine_bench.h"
#include <inttypes.h>

enum { BLOCKS_A_TRIAL = 16 };

static bool open_model(struct engine **engine, const struct command_context *context, struct err *err)
{
    struct engine_settings settings;
    if (!engine_settings_from(&settings, context, err)) return false;
    settings.model_dir = context->operands[1];
    if (!engine_open(engine, context->alloc, context->fs, &settings, err)) return false;
    return engine_plan(*engine) || err_set(err, ERR_USER,
                                           "%s: a checkpoint does not stream; weir convert makes a "
                                           "container of it",
                                           settings.model_dir);
}

/* --- disk --- */

static const unsigned depths[] = {1, 2, 4, 8, 16, 32};
enum { N_DEPTHS = sizeof depths / sizeof *depths, N_ROUNDS = 2 };

struct disk_cell {
    double rate; /* the better one of the rounds, because disks are shared */
    bool is_direct;
};

static bool fill_disk_cell(struct disk_cell *cell, const struct command_context *context, const struct engine *engine,
                           const struct disk_trial *trial, struct err *err)
{
    struct disk_bench *bench;
    struct disk_figures figures = {0};
    if (!disk_bench_new(&bench, context->alloc, engine_inventory(engine)->catalogue, trial, err)) return false;
    bool ok = disk_bench_run(bench, BLOCKS_A_TRIAL, &figures, err);
    cell->is_direct = disk_bench_is_direct(bench);
    disk_bench_free(bench);
    if (disk_figures_rate(&figures) > cell->rate) cell->rate = disk_figures_rate(&figures);
    return ok;
}

static void print_disk_table(const struct command_context *context, const struct disk_cell cells[N_DEPTHS][2],
                             uint64_t block)
{
    FILE *out = context->out;
    bool json = context->settings->json;
    if (json)
        fprintf(out, "{\"part\":\"disk\",\"block_bytes\":%" PRIu64 ",\"trials\":[", block);
    else
        fprintf(out, "random blocks of %.1f MB    buffered       direct\n", (double)block / 1e6);
    for (int d = 0; d < N_DEPTHS; d++) {
        const struct disk_cell *cell = cells[d];
        if (!json)
            fprintf(out, "  %2u in flight       %8.2f GB/s  %8.2f GB/s%s\n", depths[d], cell[0].rate / 1e9,
                    cell[1].rate / 1e9, cell[1].is_direct ? "" : " (direct reads are not to be had)");
        for (int way = 0; json && way < 2; way++)
            fprintf(out, "%s{\"depth\":%u,\"direct\":%s,\"bytes_per_second\":%.0f}", d + way ? "," : "", depths[d],
                    cell[way].is_direct ? "true" : "false", cell[way].rate);
    }
    if (json) fprintf(out, "]}\n");
}

/* Blocks of one expert from random places, with so many reads in flight, around the page cache and through it, turn by
 * turn. */
static bool disk_table(const struct command_context *context, const struct engine *engine, struct err *err)
{
    struct disk_cell cells[N_DEPTHS][2] = {0};
    uint64_t block = engine_plan(engine)->classes.of[0].slot_bytes;
    for (int i = 0; i < N_ROUNDS * N_DEPTHS * 2; i++) {
        int depth = i / 2 % N_DEPTHS, way = i % 2;
        const struct disk_trial trial = {
            .direct = way, .depth = depths[depth], .block_bytes = block, .seed = (uint64_t)i + 1};
        if (!fill_disk_cell(&cells[depth][way], context, engine, &trial, err)) return false;
    }
    print_disk_table(context, cells, block);
    return true;
}

bool bench_disk(const struct command_context *context, struct err *err)
{
    struct engine *engine = NULL;
    bool ok = open_model(&engine, context, err) && disk_table(context, engine, err);
    engine_close(engine);
    return ok;
}

/* --- memory --- */

bool bench_memory(const struct command_context *context, struct err *err)
{
    struct engine_settings settings;
    FILE *out = context->out;
    bool json = context->settings->json;
    if (!engine_settings_from(&settings, context, err)) return false;
    unsigned most = settings.n_threads ? settings.n_threads : cpu_threads_usable();
    if (json) fprintf(out, "{\"part\":\"memory\",\"trials\":[");
    for (unsigned n = 1; n <= most; n = n < most && 2 * n > most ? most : 2 * n) {
        double bytes_per_s;
        if (!memory_bench_run(&bytes_per_s, context->alloc, n, err)) return false;
        if (json)
            fprintf(out, "%s{\"threads\":%u,\"bytes_per_second\":%.0f}", n > 1 ? "," : "", n, bytes_per_s);
        else
            fprintf(out, "%3u threads read memory at %6.1f GB/s\n", n, bytes_per_s / 1e9);
    }
    if (json) fprintf(out, "]}\n");
    return true;
}

/* --- engine --- */

/* A model whose context is shorter gets a shorter run. */
static struct engine_bench_shape shape_for(uint32_t context_tokens)
{
    struct engine_bench_shape shape = {.prompt_tokens = 64,
                                       .prompt_rounds = 3,
                                       .warm_up_tokens = 16,
                                       .decode_tokens = 48,
                                       .decode_rounds = 12,
                                       .resident_tokens = 8,
                                       .seed = 1};
    while (engine_bench_tokens(&shape) > context_tokens && shape.prompt_tokens > 1) {
        shape.prompt_tokens /= 2;
        shape.warm_up_tokens /= 2;
        shape.decode_tokens /= 2;
        shape.resident_tokens /= 2;
    }
    return shape;
}

static void print_phase(FILE *out, const char *name, const struct engine_bench_phase *p)
{
    double seconds = (double)p->ns / 1e9, n = p->n_tokens > 0 ? (double)p->n_tokens : 1;
    uint64_t wants = p->n_hits + p->n_misses + p->n_joined;
    fprintf(out, "%s: %" PRIu64 " tokens in %.3f s, %.3f tokens/s\n", name, p->n_tokens, seconds, n / seconds);
    fprintf(out, "  from disk a token: %.1f MB needed, %.1f MB read; %.1f %% of %" PRIu64 " experts found\n",
            (double)p->bytes_needed / 1e6 / n, (double)p->bytes_read / 1e6 / n,
            wants ? 100.0 * (double)(p->n_hits + p->n_joined) / (double)wants : 0, wants);
    if (p->n_hint_hits > 0)
        fprintf(out, "  hints: %.1f %% used, %.1f %% of what had to be read, begun %.1f ms ahead\n",
                100.0 * (double)p->n_hint_hits / (double)p->n_hints,
                100.0 * (double)p->n_hint_hits / (double)(p->n_hint_hits + p->n_misses),
                (double)p->lead_ns / 1e6 / (double)p->n_hint_hits);
    fprintf(out, "  floors: disk %.3f s (at %.2f GB/s), processor %.3f s (memory alone %.3f s); waited %.3f s\n",
            p->disk_floor_s, disk_figures_rate(&p->ceiling) / 1e9, p->processor_s, p->memory_floor_s,
            (double)p->waited_ns / 1e9);
    fprintf(out, "  time over the larger floor, which is the %s's: %.3f; the disk at %.1f %% of its ceiling\n",
            p->disk_floor_s > p->processor_s ? "disk" : "processor", p->over_floor, 100 * p->disk_share);
}

static void print_json_phase(FILE *out, const char *name, const struct engine_bench_phase *p)
{
    fprintf(out,
            ",\"%s\":{\"tokens\":%" PRIu64 ",\"passes\":%" PRIu32 ",\"ns\":%" PRId64 ",\"waited_ns\":%" PRId64
            ",\"busy_ns\":%" PRId64 ",\"bytes_wanted\":%" PRIu64 ",\"bytes_needed\":%" PRIu64 ",\"bytes_read\":%" PRIu64
            ",\"bytes_spine\":%" PRIu64,
            name, p->n_tokens, p->n_passes, p->ns, p->waited_ns, p->busy_ns, p->bytes_wanted, p->bytes_needed,
            p->bytes_read, p->bytes_spine);
    fprintf(out,
            ",\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"joined\":%" PRIu64 ",\"hints\":%" PRIu64
            ",\"hint_hits\":%" PRIu64 ",\"lead_ns\":%" PRId64
            ",\"disk_bytes_per_second\":%.0f,\"disk_floor_seconds\":%.6f"
            ",\"memory_floor_seconds\":%.6f,\"processor_seconds\":%.6f,\"over_floor\":%.4f,\"disk_share\":%.4f}",
            p->n_hits, p->n_misses, p->n_joined, p->n_hints, p->n_hint_hits, p->lead_ns, disk_figures_rate(&p->ceiling),
            p->disk_floor_s, p->memory_floor_s, p->processor_s, p->over_floor, p->disk_share);
}

static void print_json(FILE *out, const struct engine_bench_result *r)
{
    fprintf(out, "{\"part\":\"engine\",\"slots\":%" PRIu32 ",\"direct\":%s,\"memory_bytes_per_second\":%.0f",
            r->n_slots, r->is_direct ? "true" : "false", r->memory_bytes_per_s);
    print_json_phase(out, "first_prompt", &r->first_prompt);
    print_json_phase(out, "prefill", &r->prefill);
    print_json_phase(out, "warm_up", &r->warm_up);
    print_json_phase(out, "decode", &r->decode);
    fprintf(out, ",\"resident\":{\"tokens\":%" PRIu32 ",\"ns\":%" PRId64 "}", r->n_resident, r->resident_ns);
    fprintf(out, ",\"regret\":{\"misses\":%" PRIu64 ",\"misses_best\":%" PRIu64 "}}\n", r->regret.n_misses,
            r->regret.n_misses_best);
}

static void print_text(FILE *out, const struct engine_bench_result *r)
{
    fprintf(out, "%" PRIu32 " expert slots, %s reads, memory at %.1f GB/s\n", r->n_slots,
            r->is_direct ? "direct" : "buffered", r->memory_bytes_per_s / 1e9);
    print_phase(out, "first prompt", &r->first_prompt);
    print_phase(out, "prompts", &r->prefill);
    print_phase(out, "decode, first", &r->warm_up);
    print_phase(out, "decode", &r->decode);
    fprintf(out, "with all experts in memory: %.1f ms a token (the fastest of %" PRIu32 ")\n",
            (double)r->resident_ns / 1e6, r->n_resident);
    fprintf(out, "%" PRIu64 " experts were read; with perfect foresight it were at least %" PRIu64 "\n",
            r->regret.n_misses, r->regret.n_misses_best);
}

bool bench_engine(const struct command_context *context, struct err *err)
{
    struct engine *engine = NULL;
    struct engine_bench_result r;
    bool ok = open_model(&engine, context, err);
    if (ok) {
        const struct engine_bench_shape shape = shape_for(engine_settings_of(engine)->context_tokens);
        ok = engine_bench_run(&r, engine, &shape, err);
    }
    if (ok && context->settings->json)
        print_json(context->out, &r);
    else if (ok)
        print_text(context->out, &r);
    engine_close(engine);
    return ok;
}
