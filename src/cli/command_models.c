/* weir models: what the last scan found. */
#include "base/buf.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/resolve_model.h"
#include "fmt/json_text.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define JSON_BYTES_MAX (UINT64_C(64) << 20)

struct listing {
    const struct command_context *context;
    struct buf json;
    uint32_t n;
    struct err err; /* from inside the callback */
};

static bool is_there(const struct registry_model *m)
{
    return access(m->path, F_OK) == 0;
}

static bool print_model(void *context, const struct registry_model *m)
{
    struct listing *l = context;
    char bytes[UNITS_TEXT_MAX];
    fprintf(l->context->out, "%s%s%.8s%s%s\n  %s, %s%s%s\n  %s\n", m->name, m->revision[0] ? "@" : "", m->revision,
            m->is_current ? "" : " (an older one)", is_there(m) ? "" : " (no longer there: run weir scan)",
            units_format_bytes(bytes, m->bytes), m->formats, m->has_dsa ? ", DSA" : "", m->has_mtp ? ", MTP" : "",
            m->path);
    l->n++;
    return true;
}

static bool add_text(struct buf *out, const char *key, const char *value, struct err *err)
{
    return buf_printf(out, err, "\"%s\": ", key) && json_text_add_string(out, value, strlen(value), err);
}

static bool add_model(void *context, const struct registry_model *m)
{
    struct listing *l = context;
    struct buf *out = &l->json;
    struct err *err = &l->err;
    return buf_add_text(out, l->n++ ? ",\n{" : "\n{", err) && add_text(out, "name", m->name, err) &&
           buf_add_text(out, ", ", err) && add_text(out, "path", m->path, err) &&
           buf_printf(out, err,
                      ", \"revision\": \"%s\", \"current\": %s, \"present\": %s, \"bytes\": %" PRIu64
                      ", \"formats\": \"%s\", \"dsa\": %s, \"mtp\": %s, \"identity\": \"%s\"}",
                      m->revision, m->is_current ? "true" : "false", is_there(m) ? "true" : "false", m->bytes,
                      m->formats, m->has_dsa ? "true" : "false", m->has_mtp ? "true" : "false", m->identity);
}

static bool list(struct listing *l, struct registry *registry, struct err *err)
{
    FILE *out = l->context->out;
    if (!l->context->settings->json) {
        if (!registry_each(registry, print_model, l, err)) return false;
        if (l->n == 0) fprintf(l->context->log, "no models are known; weir scan finds them, weir get fetches one\n");
        return true;
    }
    if (!registry_each(registry, add_model, l, err)) return false;
    if (l->err.kind) {
        *err = l->err;
        return false;
    }
    fprintf(out, "{\"models\": [%s]}\n", l->json.data ? l->json.data : "");
    return true;
}

int command_models(struct command_context *context)
{
    struct err err = {0};
    struct registry *registry;
    struct listing l = {.context = context};
    buf_init(&l.json, context->alloc, JSON_BYTES_MAX);
    bool ok = open_registry(&registry, context, false, &err) && list(&l, registry, &err);
    registry_close(registry);
    buf_fini(&l.json);
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
