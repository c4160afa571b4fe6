/* weir bench batch: what sequences that decode together cost. */
#include "cli/bench.h"
#include "cli/open_engine.h"
#include "fmt/token_list.h"
#include "run/batch_bench.h"
#include <inttypes.h>

enum { SEQUENCES_MAX = 64, WARM_UP_TOKENS = 16, TURN_TOKENS = 48 };

static void print_rows(const struct command_context *context, const struct batch_bench_result *r)
{
    FILE *out = context->out;
    bool json = context->settings->json;
    if (json)
        fprintf(out, "{\"part\":\"batch\",\"slots\":%" PRIu32 ",\"rows\":[", r->n_slots);
    else
        fprintf(out, "together      tokens/s    MB wanted a token    MB read a token    waiting\n");
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const struct batch_bench_row *row = &r->rows[i];
        double seconds = (double)row->ns / 1e9, n = (double)row->n_tokens;
        if (json)
            fprintf(out,
                    "%s{\"sequences\":%" PRIu32 ",\"tokens\":%" PRIu64 ",\"ns\":%" PRId64 ",\"waited_ns\":%" PRId64
                    ",\"bytes_wanted\":%" PRIu64 ",\"bytes_read\":%" PRIu64
                    ",\"tokens_per_second\":%.4f,\"bytes_read_per_token\":%.0f,\"bytes_wanted_per_token\":%.0f}",
                    i ? "," : "", row->n_sequences, row->n_tokens, row->ns, row->waited_ns, row->bytes_wanted,
                    row->bytes_read, n / seconds, (double)row->bytes_read / n, (double)row->bytes_wanted / n);
        else
            fprintf(out, "%8" PRIu32 "    %10.3f    %17.1f    %15.1f    %6.1f%%\n", row->n_sequences, n / seconds,
                    (double)row->bytes_wanted / 1e6 / n, (double)row->bytes_read / 1e6 / n,
                    100 * (double)row->waited_ns / (double)row->ns);
    }
    if (json) fprintf(out, "]}\n");
}

static bool read_sizes(struct batch_bench_shape *shape, const struct command_context *context, struct err *err)
{
    struct token_list list;
    const char *text = context->settings->sizes ? context->settings->sizes : "1,2,4,8";
    if (!token_list_parse(&list, context->alloc, "--sizes", text, err)) return false;
    bool ok = list.n <= BATCH_BENCH_SIZES_MAX;
    for (size_t i = 0; ok && i < list.n; i++) {
        ok = list.ids[i] > 0 && list.ids[i] <= SEQUENCES_MAX;
        shape->sizes[shape->n_sizes++] = list.ids[i];
    }
    token_list_fini(&list);
    return ok || err_set(err, ERR_USER, "--sizes: give 1 to %d numbers of sequences from 1 to %d",
                         BATCH_BENCH_SIZES_MAX, SEQUENCES_MAX);
}

bool bench_batch(const struct command_context *context, struct err *err)
{
    struct engine *engine = NULL;
    struct engine_settings settings;
    struct batch_bench_result result;
    struct batch_bench_shape shape = {.warm_up_tokens = WARM_UP_TOKENS,
                                      .turn_tokens = TURN_TOKENS,
                                      .rounds = (uint32_t)context->settings->runs,
                                      .seed = 1};
    uint32_t n_most = 1;
    if (!read_sizes(&shape, context, err) || !engine_settings_from(&settings, context, err)) return false;
    for (uint32_t i = 0; i < shape.n_sizes; i++)
        if (shape.sizes[i] > n_most) n_most = shape.sizes[i];
    settings.model_dir = context->operands[1];
    settings.n_sequences = settings.logit_rows = n_most;
    settings.context_tokens = batch_bench_context(&shape);
    if (settings.pass_rows == 0) settings.pass_rows = n_most;
    bool ok = engine_open(&engine, context->alloc, context->fs, &settings, err) &&
              batch_bench_run(&result, engine, &shape, err);
    if (ok) print_rows(context, &result);
    engine_close(engine);
    return ok;
}
