#ifndef CLI_BENCH_H
#define CLI_BENCH_H
/* The parts of `weir bench PART MODEL`. Each prints its own result, to context->out; operands[1] is the model, which
 * bench_kernels alone does without. */
#include "cli/commands.h"

bool bench_disk(const struct command_context *context, struct err *err) MUST_CHECK;
bool bench_memory(const struct command_context *context, struct err *err) MUST_CHECK;
bool bench_kernels(const struct command_context *context, struct err *err) MUST_CHECK; /* operands[1]: part of a name */
bool bench_engine(const struct command_context *context, struct err *err) MUST_CHECK;
bool bench_batch(const struct command_context *context, struct err *err) MUST_CHECK;
bool bench_draft(const struct command_context *context, struct err *err) MUST_CHECK;
bool bench_prefill(const struct command_context *context, struct err *err) MUST_CHECK;
bool bench_decode(const struct command_context *context, struct err *err) MUST_CHECK;

#endif
