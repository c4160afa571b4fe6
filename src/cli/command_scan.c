/* weir scan: which models there are, in the hub cache and in given folders. */
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/resolve_model.h"
#include "store/scan.h"
#include <inttypes.h>

static bool tell_found(void *context, const struct registry_model *model, bool is_new)
{
    const struct command_context *c = context;
    if (is_new) fprintf(c->log, "%s: found in %s\n", model->name, model->path);
    return true;
}

static bool tell_passed_over(void *context, const char *path, const char *reason)
{
    const struct command_context *c = context;
    fprintf(c->log, "%s: passed over: %s\n", path, reason);
    return true;
}

static bool tell_gone(void *context, const char *path)
{
    const struct command_context *c = context;
    fprintf(c->log, "%s: no longer there\n", path);
    return true;
}

static bool scan(struct command_context *context, struct registry *registry, struct err *err)
{
    struct location cache;
    struct scan_result result;
    if (!location_hub_cache(&cache, context->environment, err)) return false;
    const struct scan_job job = {
        .registry = registry,
        .hub_cache = cache.path,
        .roots = context->operands,
        .n_roots = context->n_operands,
        .watch = {.context = context, .found = tell_found, .passed_over = tell_passed_over, .gone = tell_gone},
        .alloc = context->alloc,
        .fs = context->fs,
    };
    if (!scan_all(&job, &result, err)) return false;
    if (context->settings->json)
        fprintf(context->out,
                "{\"models\": %" PRIu32 ", \"new\": %" PRIu32 ", \"gone\": %" PRIu32 ", \"passed_over\": %" PRIu32
                "}\n",
                result.n_models, result.n_new, result.n_gone, result.n_passed_over);
    else
        fprintf(context->out,
                "%" PRIu32 " models, %" PRIu32 " of them new; %" PRIu32 " gone, %" PRIu32 " passed over\n",
                result.n_models, result.n_new, result.n_gone, result.n_passed_over);
    return true;
}

int command_scan(struct command_context *context)
{
    struct err err = {0};
    struct registry *registry = NULL;
    bool ok = open_registry(&registry, context, true, &err) && scan(context, registry, &err);
    registry_close(registry);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
