/* weir bench disk, memory and engine: the ceilings of this machine, and a streaming engine against them. */
#include "cli/bench.h"
#include "cli/open_engine.h"
#include "plat/cpu.h"
#include "run/disk_bench.h"
#include "run/engine_bench.h"
#include <inttypes.h>

enum { BLOCKS_A_TRIAL = 16, PROMPT_TOKENS = 64, WARM_UP_TOKENS = 16, DECODE_TOKENS = 32 };

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

/* Blocks of one expert from random places, with so many reads in flight, around the page cache and through it. Ways
 * take turns, and the better of two rounds counts, because disks are shared. */
static bool disk_table(const struct command_context *context, const struct engine *engine, struct err *err)
{
    static const unsigned depths[] = {1, 2, 4, 8, 16, 32};
    enum { N_DEPTHS = sizeof depths / sizeof *depths };
    struct disk_figures best[2][N_DEPTHS] = {0};
    uint64_t block = engine_plan(engine)->classes.of[0].slot_bytes, seed = 1;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2 * N_DEPTHS; i++, seed++) {
            struct disk_figures now, *kept = &best[i % 2][i / 2];
            const struct disk_trial trial = {.direct = i % 2,
                                             .depth = depths[i / 2],
                                             .block_bytes = block,
                                             .n_blocks = BLOCKS_A_TRIAL,
                                             .seed = seed};
            if (!disk_bench_run(&now, context->alloc, engine_inventory(engine)->catalogue, &trial, err)) return false;
            if (now.bytes_per_s > kept->bytes_per_s) *kept = now;
        }
    FILE *out = context->out;
    bool json = context->settings->json;
    if (json)
        fprintf(out, "{\"part\":\"disk\",\"block_bytes\":%" PRIu64 ",\"trials\":[", block);
    else
        fprintf(out, "random blocks of %.1f MB    buffered       direct\n", (double)block / 1e6);
    for (int d = 0; d < N_DEPTHS; d++) {
        if (!json)
            fprintf(out, "  %2u in flight       %8.2f GB/s  %8.2f GB/s%s\n", depths[d], best[0][d].bytes_per_s / 1e9,
                    best[1][d].bytes_per_s / 1e9, best[1][d].is_direct ? "" : " (direct reads are not to be had)");
        for (int way = 0; json && way < 2; way++)
            fprintf(out, "%s{\"depth\":%u,\"direct\":%s,\"bytes_per_second\":%.0f}", d + way ? "," : "", depths[d],
                    best[way][d].is_direct ? "true" : "false", best[way][d].bytes_per_s);
    }
    if (json) fprintf(out, "]}\n");
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

static void print_phase(FILE *out, const char *name, const struct engine_bench_phase *p)
{
    double seconds = (double)p->ns / 1e9, n = p->n_tokens > 0 ? (double)p->n_tokens : 1;
    uint64_t wants = p->n_hits + p->n_misses + p->n_joined;
    fprintf(out, "%s: %" PRIu64 " tokens in %.3f s, %.3f tokens/s\n", name, p->n_tokens, seconds, n / seconds);
    fprintf(out,
            "  %.1f MB a token from disk, %.1f %% of %" PRIu64 " experts found, %" PRIu64 " of %" PRIu64
            " hints used\n",
            (double)p->bytes_read / 1e6 / n, wants ? 100.0 * (double)(p->n_hits + p->n_joined) / (double)wants : 0,
            wants, p->n_hint_hits, p->n_hints);
    fprintf(out, "  floors: disk %.3f s, memory %.3f s; the processor took %.3f s\n", p->disk_floor_s,
            p->memory_floor_s, p->processor_s);
    fprintf(out,
            "  %.2f x the larger of disk floor and processor; the disk gave %.1f %% of its ceiling, and was busy %.1f "
            "%% of the time\n",
            p->over_floor, 100 * p->disk_share, 100 * (double)p->busy_ns / (double)p->ns);
}

static void print_json_phase(FILE *out, const char *name, const struct engine_bench_phase *p)
{
    fprintf(out,
            ",\"%s\":{\"tokens\":%" PRIu64 ",\"passes\":%" PRIu32 ",\"ns\":%" PRId64 ",\"waited_ns\":%" PRId64
            ",\"busy_ns\":%" PRId64 ",\"bytes_wanted\":%" PRIu64 ",\"bytes_read\":%" PRIu64 ",\"bytes_spine\":%" PRIu64
            ",\"hits\":%" PRIu64 ",\"misses\":%" PRIu64 ",\"joined\":%" PRIu64 ",\"hints\":%" PRIu64
            ",\"hint_hits\":%" PRIu64 ",\"disk_floor_seconds\":%.6f,\"memory_floor_seconds\":%.6f"
            ",\"processor_seconds\":%.6f,\"over_floor\":%.4f,\"disk_share\":%.4f}",
            name, p->n_tokens, p->n_passes, p->ns, p->waited_ns, p->busy_ns, p->bytes_wanted, p->bytes_read,
            p->bytes_spine, p->n_hits, p->n_misses, p->n_joined, p->n_hints, p->n_hint_hits, p->disk_floor_s,
            p->memory_floor_s, p->processor_s, p->over_floor, p->disk_share);
}

bool bench_engine(const struct command_context *context, struct err *err)
{
    struct engine *engine = NULL;
    struct engine_bench_result r;
    const struct engine_bench_shape shape = {
        .prompt_tokens = PROMPT_TOKENS, .warm_up_tokens = WARM_UP_TOKENS, .decode_tokens = DECODE_TOKENS, .seed = 1};
    FILE *out = context->out;
    bool ok = open_model(&engine, context, err) && engine_bench_run(&r, engine, &shape, err);
    if (ok && context->settings->json) {
        fprintf(out, "{\"part\":\"engine\",\"slots\":%" PRIu32 ",\"direct\":%s", r.n_slots,
                r.is_direct ? "true" : "false");
        fprintf(out, ",\"disk_bytes_per_second\":%.0f,\"memory_bytes_per_second\":%.0f", r.disk_bytes_per_s,
                r.memory_bytes_per_s);
        print_json_phase(out, "prefill", &r.prefill);
        print_json_phase(out, "warm_up", &r.warm_up);
        print_json_phase(out, "decode", &r.decode);
        fprintf(out, ",\"regret\":{\"misses\":%" PRIu64 ",\"misses_best\":%" PRIu64 "}}\n", r.regret.n_misses,
                r.regret.n_misses_best);
    } else if (ok) {
        fprintf(out, "%" PRIu32 " expert slots; the disk gives %.2f GB/s (%s), memory %.1f GB/s\n", r.n_slots,
                r.disk_bytes_per_s / 1e9, r.is_direct ? "direct" : "buffered", r.memory_bytes_per_s / 1e9);
        print_phase(out, "prompt", &r.prefill);
        print_phase(out, "decode, first", &r.warm_up);
        print_phase(out, "decode", &r.decode);
        fprintf(out, "%" PRIu64 " experts were read; with perfect foresight it were at least %" PRIu64 "\n",
                r.regret.n_misses, r.regret.n_misses_best);
    }
    engine_close(engine);
    return ok;
}
