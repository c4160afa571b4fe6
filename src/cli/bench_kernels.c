/* weir bench kernels: every kernel of the list against the memory and the processor. */
#include "cli/bench.h"
#include "cli/open_engine.h"
#include "plat/cpu.h"
#include "run/kernel_bench.h"
#include <inttypes.h>

static void print_text(FILE *out, const struct kernel_bench_result *r, unsigned runs)
{
    fprintf(out,
            "%u threads read memory at %.1f GB/s and do %.0f GFLOP/s of f32, %.0f Gop/s of bytes in registers; medians "
            "of %u interleaved runs\n",
            r->n_threads, r->read_bytes_per_s / 1e9, r->peak_f32_per_s / 1e9, r->peak_int8_per_s / 1e9, runs);
    fprintf(out, "%-31s %-11s %4s %11s %12s %8s %5s %8s %5s  %s\n", "operation", "with", "rows", "shape", "us", "GB/s",
            "% mem", "Gop/s", "% cpu", "us, least .. most");
    for (size_t i = 0; i < r->n; i++) {
        const struct kernel_figure *f = &r->figures[i];
        char shape[48];
        double bytes_per_s = (double)f->bytes / f->ns * 1e9;
        if (f->n_out)
            snprintf(shape, sizeof shape, "%zux%zu", f->n_out, f->n_in);
        else
            snprintf(shape, sizeof shape, "%zu", f->n_in);
        fprintf(out, "%-31s %-11s %4zu %11s %12.2f %8.2f %5.0f %8.1f %5.0f  %.2f .. %.2f\n", f->op, f->isa, f->n_rows,
                shape, f->ns / 1e3, bytes_per_s / 1e9, 100 * bytes_per_s / r->read_bytes_per_s,
                (double)f->operations / f->ns, 100 * f->peak_share, f->ns_min / 1e3, f->ns_max / 1e3);
    }
}

static void print_json(FILE *out, const struct kernel_bench_result *r, unsigned runs)
{
    fprintf(out,
            "{\"part\":\"kernels\",\"threads\":%u,\"runs\":%u,\"read_bytes_per_second\":%.0f,"
            "\"peak_f32_per_second\":%.0f,\"peak_int8_per_second\":%.0f,\"kernels\":[",
            r->n_threads, runs, r->read_bytes_per_s, r->peak_f32_per_s, r->peak_int8_per_s);
    for (size_t i = 0; i < r->n; i++) {
        const struct kernel_figure *f = &r->figures[i];
        fprintf(out,
                "%s{\"op\":\"%s\",\"isa\":\"%s\",\"rows\":%zu,\"out\":%zu,\"in\":%zu,\"ns\":%.1f,\"ns_min\":%.1f,"
                "\"ns_max\":%.1f,\"bytes\":%" PRIu64 ",\"operations\":%" PRIu64
                ",\"read_share\":%.4f,\"peak_share\":%.4f}",
                i ? "," : "", f->op, f->isa, f->n_rows, f->n_out, f->n_in, f->ns, f->ns_min, f->ns_max, f->bytes,
                f->operations, (double)f->bytes / f->ns * 1e9 / r->read_bytes_per_s, f->peak_share);
    }
    fprintf(out, "]}\n");
}

bool bench_kernels(const struct command_context *context, struct err *err)
{
    struct engine_settings settings;
    struct kernel_bench_result result;
    const char *only = context->n_operands > 1 ? context->operands[1] : "";
    if (!engine_settings_from(&settings, context, err)) return false;
    const struct kernel_bench_choice choice = {.cpu = settings.cpu_mask & cpu_mask(),
                                               .only = only,
                                               .n_threads =
                                                   settings.n_threads ? settings.n_threads : cpu_threads_usable(),
                                               .runs = (unsigned)context->settings->runs};
    bool ok = kernel_bench_run(&result, context->alloc, &choice, err);
    if (ok && context->settings->json)
        print_json(context->out, &result, choice.runs);
    else if (ok)
        print_text(context->out, &result, choice.runs);
    kernel_bench_fini(&result, context->alloc);
    return ok;
}
