/* weir doctor: whether this machine would run weir, or a model, well, and what to change. */
#include "cli/doctor.h"
#include "cli/environment.h"
#include "cli/open_engine.h"
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES_MAX = 4096 };

/* Whether files can be made in the folder, or it can be made itself. */
static bool is_writable(const char *folder)
{
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, "%s", folder);
    while (access(path, F_OK) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) return access(slash ? "/" : ".", W_OK | X_OK) == 0;
        *slash = 0;
    }
    return access(path, W_OK | X_OK) == 0;
}

static void judge_folder(struct findings *findings, enum severity severity, const char *what,
                         const struct location *place, const char *advice)
{
    if (is_writable(place->path))
        findings_add(findings, SEVERITY_OK, "folders", "%s: %s", what, place->path);
    else
        finding_advise(findings_add(findings, severity, "folders", "%s: %s cannot be written", what, place->path),
                       "make it writable, or %s", advice);
}

static void judge_folders(const struct command_context *context, struct findings *findings)
{
    struct location place;
    struct err no_home = {0};
    if (location_state(&place, context->environment, &no_home))
        judge_folder(findings, SEVERITY_WARNING, "what weir remembers", &place, "set XDG_STATE_HOME");
    else
        finding_advise(findings_add(findings, SEVERITY_NOTE, "folders", "no home: nothing is remembered between runs"),
                       "set HOME or XDG_STATE_HOME");
    if (location_hub_cache(&place, context->environment, &no_home))
        judge_folder(findings, SEVERITY_NOTE, "fetched models", &place, "set HF_HUB_CACHE to a folder with room");
    if (context->settings->config_path)
        findings_add(findings, SEVERITY_OK, "settings", "%s is read", context->settings->config_path);
}

/* A CPU mask or another option that is wrong must be told, also when there is no model that it would be for. */
static bool examine(const struct command_context *context, struct findings *findings, struct err *err)
{
    struct machine_facts machine;
    struct engine_settings settings;
    if (!engine_settings_from(&settings, context, err)) return false;
    if (!machine_look(&machine, context->alloc, context->fs, "", err)) return false;
    machine.cpu_mask &= settings.cpu_mask;
    machine_judge(&machine, findings);
    judge_folders(context, findings);
    return context->n_operands == 0 || model_examine(context, &machine, findings, err);
}

int command_doctor(struct command_context *context)
{
    struct err err = {0};
    int code = EXIT_CODE_DONE;
    struct findings *findings = alloc_get(context->alloc, sizeof *findings, &err);
    if (!findings || !examine(context, findings, &err)) {
        code = command_fail(context, &err);
    } else {
        code = (int)findings_exit_code(findings);
        if (!context->settings->json)
            findings_print(findings, context->out);
        else if (!findings_print_json(findings, context->alloc, context->out, &err))
            code = command_fail(context, &err);
    }
    alloc_put(context->alloc, findings);
    return code;
}
