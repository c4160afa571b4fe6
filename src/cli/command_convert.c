#include "base/units.h"
#include "cli/commands.h"
#include "convert/convert.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 24 };
#define BAR_PERIOD_NS INT64_C(100000000)

/* What is told while it runs: on a terminal one line that is written over, elsewhere one line for each output. */
struct teller {
    FILE *log;
    struct clock clock;
    bool is_terminal;
    bool has_bar; /* the cursor stands behind one */
    int64_t told_ns;
    uint32_t told_output;
};

static bool parse_passes(const char *list, uint32_t *passes, struct err *err)
{
    *passes = 0;
    while (list && *list) {
        size_t n = strcspn(list, ",");
        enum convert_pass pass = 0;
        while (pass < CONVERT_PASSES &&
               (strlen(convert_pass_name(pass)) != n || strncmp(convert_pass_name(pass), list, n) != 0))
            pass++;
        if (pass == CONVERT_PASSES)
            return err_set(err, ERR_USER, "--pass: '%.*s' is none of main, mtp, indexer", n > 40 ? 40 : (int)n, list);
        *passes |= UINT32_C(1) << pass;
        list += n + (list[n] == ',');
    }
    return true;
}

static bool read_options(const struct settings *settings, struct convert_options *options, struct err *err)
{
    static const uint32_t widths[] = {4, 8}, expert_widths[] = {0, 4, 8};
    *options = convert_options_default();
    options->bits = widths[settings->bits];
    options->expert_bits = expert_widths[settings->expert_bits];
    options->io_bits = widths[settings->io_bits];
    options->group = (uint32_t)settings->group;
    options->keep_mtp_indexer = settings->keep_mtp_indexer;
    options->shard_bytes = settings->shard_bytes;
    return parse_passes(settings->passes, &options->passes, err);
}

static void tell_width(FILE *log, const char *what, uint32_t bits, uint32_t group)
{
    if (bits == 8)
        fprintf(log, "  %s: int8, one scale per row\n", what);
    else if (group)
        fprintf(log, "  %s: int4, one scale per %" PRIu32 " columns\n", what, group);
    else
        fprintf(log, "  %s: int4, one scale per row\n", what);
}

static bool tell_plan(void *context, const struct convert_summary *s)
{
    FILE *log = ((struct teller *)context)->log;
    const struct convert_options *o = &s->options;
    char text[UNITS_TEXT_MAX];
    for (enum convert_pass pass = 0; pass < CONVERT_PASSES; pass++) {
        if (!(o->passes >> pass & 1)) {
            fprintf(log, "%s: not made\n", convert_pass_name(pass));
            continue;
        }
        fprintf(log, "%s: %" PRIu32 " matrices, %" PRIu32 " tensors kept as F32, %s\n", convert_pass_name(pass),
                s->tensors[pass].quantised, s->tensors[pass].kept, units_format_bytes(text, s->pass_bytes[pass]));
        if (pass != CONVERT_MAIN) {
            tell_width(log, "matrices", 8, 0);
            continue;
        }
        tell_width(log, "routed experts", o->expert_bits, o->group);
        tell_width(log, "embedding and head", o->io_bits, o->group);
        tell_width(log, "other matrices", o->bits, o->group);
    }
    if (s->n_unused)
        fprintf(log, "%" PRIu32 " tensors of the source are left out, such as %s\n", s->n_unused, s->unused);
    if (s->n_outputs_done)
        fprintf(log, "%" PRIu32 " of %" PRIu32 " shards are finished already\n", s->n_outputs_done, s->n_outputs);
    return true;
}

static void tell_numbers(FILE *log, const struct convert_progress *p)
{
    char done[UNITS_TEXT_MAX], all[UNITS_TEXT_MAX], rate[UNITS_TEXT_MAX];
    fprintf(log, "%s of %s read", units_format_bytes(done, p->source_bytes_done),
            units_format_bytes(all, p->source_bytes));
    if (p->seconds_left < 0) return;
    uint64_t minutes = (uint64_t)(p->seconds_left / 60);
    fprintf(log, ", %s/s", units_format_bytes(rate, (uint64_t)p->bytes_per_second));
    if (minutes >= 60)
        fprintf(log, ", %" PRIu64 " h %" PRIu64 " min left", minutes / 60, minutes % 60);
    else if (minutes > 0)
        fprintf(log, ", %" PRIu64 " min left", minutes);
    else
        fprintf(log, ", %.0f s left", p->seconds_left);
}

static void draw_bar(struct teller *t, const struct convert_progress *p)
{
    char bar[BAR_WIDTH + 1];
    uint64_t whole = p->source_bytes ? p->source_bytes : 1;
    int filled = (int)((double)p->source_bytes_done / (double)whole * BAR_WIDTH);
    for (int i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    fprintf(t->log, "\r\033[K[%s] shard %" PRIu32 " of %" PRIu32 ", ", bar, p->output_number, p->n_outputs);
    tell_numbers(t->log, p);
    fflush(t->log);
    t->has_bar = true;
}

static bool tell_progress(void *context, const struct convert_progress *p)
{
    struct teller *t = context;
    int64_t now_ns = clock_now_ns(t->clock);
    if (t->is_terminal) {
        if (now_ns - t->told_ns < BAR_PERIOD_NS) return true;
        t->told_ns = now_ns;
        draw_bar(t, p);
    } else if (t->told_output != p->output_number) {
        t->told_output = p->output_number;
        fprintf(t->log, "%s, %" PRIu32 " of %" PRIu32 ": ", p->output, p->output_number, p->n_outputs);
        tell_numbers(t->log, p);
        fputc('\n', t->log);
    }
    return true;
}

int command_convert(struct command_context *context)
{
    struct err err = {0};
    struct convert_result result;
    struct teller teller = {.log = context->log, .clock = clock_real(), .is_terminal = isatty(fileno(context->log))};
    struct convert_job job = {
        .source = context->operands[0],
        .destination = context->operands[1],
        .watch = {.context = &teller, .planned = tell_plan, .progress = tell_progress},
        .alloc = context->alloc,
        .fs = context->fs,
        .ws = write_system_real(),
        .clock = teller.clock,
    };
    bool ok = read_options(context->settings, &job.options, &err) && convert_folder(&job, &result, &err);
    if (teller.has_bar) fputs("\r\033[K", context->log);
    if (!ok) return command_fail(context, &err);
    char bytes[UNITS_TEXT_MAX];
    fprintf(context->out, "%s: %" PRIu32 " shards, %s", job.destination, result.n_outputs,
            units_format_bytes(bytes, result.bytes));
    if (result.worst_tensor[0])
        fprintf(context->out, ", largest relative error %.4f in %s", result.worst_loss, result.worst_tensor);
    fputc('\n', context->out);
    return EXIT_CODE_DONE;
}
