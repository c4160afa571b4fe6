#include "cli/commands.h"
#include "fmt/json_build.h"
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
    if (!json_build_member(root, "instruction_sets", sets)) return false;
    for (unsigned bit = 0; bit < CPU_BITS && cpu_feature_name(bit); bit++) {
        if (!(mask >> bit & 1)) continue;
        if (!json_build_element(sets, json_object_new_string(cpu_feature_name(bit)))) return false;
    }
    return true;
}

static bool add_libraries(struct json_object *root)
{
    struct json_object *libraries = json_object_new_object();
    return json_build_member(root, "libraries", libraries) && json_build_words(libraries, "json-c", json_c_version()) &&
           json_build_words(libraries, "openssl", OpenSSL_version(OPENSSL_VERSION));
}

static void print_json(FILE *out, struct err *err)
{
    struct json_object *root = json_object_new_object();
    bool ok = root != NULL;
    for (size_t i = 0; i < sizeof facts / sizeof *facts && ok; i++)
        ok = json_build_words(root, facts[i].name, facts[i].value);
    if (ok && add_libraries(root) && add_instruction_sets(root))
        fprintf(out, "%s\n", json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
    else
        err_set(err, ERR_NOMEM, "out of memory while writing JSON");
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
