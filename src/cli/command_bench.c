/* weir bench: how fast this machine is at one part of the work, and how far that is from what it could be. */
#include "base/nearest.h"
#include "cli/bench.h"
#include <string.h>

struct part {
    const char *name;
    bool (*run)(const struct command_context *context, struct err *err);
    bool needs_model;
};

static const struct part parts[] = {
    {"disk", bench_disk, true},   {"memory", bench_memory, true},    {"engine", bench_engine, true},
    {"batch", bench_batch, true}, {"prefill", bench_prefill, true},  {"decode", bench_decode, true},
    {"draft", bench_draft, true}, {"kernels", bench_kernels, false},
};

static bool run_part(const struct command_context *context, struct err *err)
{
    struct nearest nearest = {.word = context->operands[0]};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, context->operands[0]) == 0)
            return parts[i].needs_model && context->n_operands < 2
                       ? err_set(err, ERR_USER, "bench %s needs a MODEL", parts[i].name)
                       : parts[i].run(context, err);
        nearest_offer(&nearest, parts[i].name);
    }
    return err_set(err, ERR_USER, "bench has no part '%s'; the nearest is '%s' (see weir help bench)",
                   context->operands[0], nearest.best);
}

int command_bench(struct command_context *context)
{
    struct err err = {0};
    return run_part(context, &err) ? EXIT_CODE_DONE : command_fail(context, &err);
}
