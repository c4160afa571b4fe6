#include "cli/commands.h"
#include "plat/cpu.h"

#include <json-c/json.h>
#include <openssl/crypto.h>

/* Version, commit, compiler and build come from cmake/BuildFacts.cmake. Libraries are those of this run. */
static const struct {
    const char *name, *value;
} facts[] = {
    {"version", WEIR_VERSION}, {"commit", WEIR_COMMIT},         {"compiler", WEIR_COMPILER},
    {"build", WEIR_BUILD},     {"sanitizers", WEIR_SANITIZERS},
};

enum { CPU_BITS = 32 };

static bool add_instruction_sets(struct json_object *root)
{
    struct json_object *sets = json_object_new_array();
    uint32_t mask = cpu_mask();
    if (!sets) return false;
    if (json_object_object_add(root, "instruction_sets", sets) != 0) {
        json_object_put(sets);
        return false;
    }
    for (unsigned bit = 0; bit < CPU_BITS && cpu_feature_name(bit); bit++)
        if (mask >> bit & 1) json_object_array_add(sets, json_object_new_string(cpu_feature_name(bit)));
    return true;
}

static void print_json(FILE *out, struct err *err)
{
    struct json_object *root = json_object_new_object(), *libraries = json_object_new_object();
    if (!root || !libraries) goto fail;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (json_object_object_add(root, facts[i].name, json_object_new_string(facts[i].value)) != 0) goto fail;
    json_object_object_add(libraries, "json-c", json_object_new_string(json_c_version()));
    json_object_object_add(libraries, "openssl", json_object_new_string(OpenSSL_version(OPENSSL_VERSION)));
    if (json_object_object_add(root, "libraries", libraries) != 0) goto fail;
    libraries = NULL; /* root's now */
    if (!add_instruction_sets(root)) goto fail;
    fprintf(out, "%s\n", json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
    json_object_put(root);
    return;
fail:
    err_set(err, ERR_NOMEM, "out of memory while writing JSON");
    json_object_put(libraries);
    json_object_put(root);
}

const char *version_text(void)
{
    return WEIR_VERSION " " WEIR_COMMIT;
}

int command_version(struct command_context *context)
{
    struct err err = {0};
    FILE *out = context->out;
    if (context->settings->json) {
        print_json(out, &err);
        return err.kind ? command_fail(context, &err) : EXIT_CODE_DONE;
    }
    fprintf(out, "weir %s (commit %s)\n", WEIR_VERSION, WEIR_COMMIT);
    fprintf(out, "built by %s, %s%s%s\n", WEIR_COMPILER, WEIR_BUILD, *WEIR_SANITIZERS ? ", sanitizers " : "",
            WEIR_SANITIZERS);
    fprintf(out, "instruction sets that this machine offers:");
    for (unsigned bit = 0; bit < CPU_BITS && cpu_feature_name(bit); bit++)
        if (cpu_mask() >> bit & 1) fprintf(out, " %s", cpu_feature_name(bit));
    fprintf(out, "%s\n", cpu_mask() ? "" : " none beyond the baseline");
    fprintf(out, "with json-c %s, %s\n", json_c_version(), OpenSSL_version(OPENSSL_VERSION));
    return EXIT_CODE_DONE;
}
