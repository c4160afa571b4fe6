#include "cli/command_line.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/temp_folder.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct temp_folder folder;

static int make_folder(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

struct ran {
    int code;
    char *out, *log;
    size_t out_bytes, log_bytes;
};

static void run(struct ran *ran, const char *dir, const char *option, const char *another)
{
    char program[] = "weir", command[] = "inspect", path[256], first[32] = "", second[32] = "";
    char *no_environment[] = {NULL}, *argv[] = {program, command, path, NULL, NULL, NULL};
    snprintf(path, sizeof path, "%s", dir);
    snprintf(first, sizeof first, "%s", option ? option : "");
    snprintf(second, sizeof second, "%s", another ? another : "");
    if (option) argv[3] = first;
    if (another) argv[4] = second;
    FILE *out = open_memstream(&ran->out, &ran->out_bytes), *log = open_memstream(&ran->log, &ran->log_bytes);
    ran->code = command_line_run(argv, no_environment, out, log);
    fclose(out);
    fclose(log);
}

static void done(struct ran *ran)
{
    free(ran->out);
    free(ran->log);
}

static void write_made(struct made_model *made)
{
    remove_tree(folder.path);
    assert_int_equal(mkdir(folder.path, 0700), 0);
    made_write(made, folder.path);
    made_model_fini(made);
}

static int64_t number(struct json_object *root, const char *key)
{
    struct json_object *value;
    if (!json_object_object_get_ex(root, key, &value)) fail_msg("no key %s", key);
    assert_true(json_object_is_type(value, json_type_int));
    return json_object_get_int64(value);
}

static bool flag(struct json_object *root, const char *key)
{
    struct json_object *value;
    if (!json_object_object_get_ex(root, key, &value)) fail_msg("no key %s", key);
    assert_true(json_object_is_type(value, json_type_boolean));
    return json_object_get_boolean(value);
}

static void json_says_what_the_folder_holds(void **state)
{
    (void)state;
    struct made_model made;
    struct ran ran;
    struct json_object *value;
    made_model_tiny(&made);
    size_t n_tensors = made.n_tensors;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n_tensors; i++) bytes += made.tensors[i].bytes;
    write_made(&made);
    run(&ran, folder.path, "--json", "--tensors");
    if (ran.code != 0) fail_msg("%s", ran.log);
    assert_string_equal(ran.log, "");
    struct json_object *root = json_tokener_parse(ran.out);
    assert_non_null(root);
    assert_int_equal(number(root, "tensors"), n_tensors);
    assert_int_equal(number(root, "quantised"), 85);
    assert_int_equal(number(root, "routed_experts"), 12);
    assert_int_equal(number(root, "full_indexers"), 2);
    assert_int_equal(number(root, "bytes"), bytes);
    assert_int_equal(number(root, "ignored_tensors"), 0);
    assert_true(flag(root, "dsa"));
    assert_true(flag(root, "mtp"));
    assert_true(json_object_object_get_ex(root, "identity", &value));
    assert_int_equal(strlen(json_object_get_string(value)), 64);
    assert_true(json_object_object_get_ex(root, "formats", &value));
    assert_int_equal(number(value, "int4-row"), 4 * 5 + 3 + 3 * 12);
    assert_int_equal(number(value, "int8-row"), 2 + 5 + 12 + 1 + 6);
    assert_true(json_object_object_get_ex(root, "tensor_list", &value));
    assert_int_equal(json_object_array_length(value), n_tensors);
    json_object_put(root);
    done(&ran);
}

static void text_names_what_is_absent_and_what_is_ignored(void **state)
{
    (void)state;
    struct made_model made;
    struct ran ran;
    made_model_init(&made, made_tiny_config, 0, 2, 0, 0);
    write_made(&made);
    put_file(temp_path(&folder, "other.safetensors"), "", 0);
    made_put_shard(temp_path(&folder, "out-00002.safetensors"),
                   "{\"extra\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
    run(&ran, folder.path, NULL, NULL);
    if (ran.code != 0) fail_msg("%s", ran.log);
    static const char *const lines[] = {
        "3 shards",
        "4 layers (1 dense, 3 with experts; 2 full, 2 shared)",
        "routed experts",
        "DSA           absent: no indexer tensors for the 2 full layers",
        "MTP           absent: no tensors of the MTP layer 4",
        "1 safetensors file of no known family, such as other.safetensors",
        "1 tensor that no part of the model uses, such as extra",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(ran.out, lines[i])) fail_msg("'%s' is not in:\n%s", lines[i], ran.out);
    assert_null(strstr(ran.out, "\textra"));
    done(&ran);
    run(&ran, folder.path, "--tensors", NULL);
    assert_non_null(strstr(ran.out, "\nextra\tU8\t[3]\t3\tout-00002.safetensors\t"));
    assert_non_null(strstr(ran.out, "\tignored\n"));
    assert_non_null(strstr(ran.out, "\nmodel.norm.weight\tF32\t[64]\t256\t"));
    done(&ran);
}

static void damage_is_exit_code_4(void **state)
{
    (void)state;
    struct made_model made;
    struct ran ran;
    made_model_tiny(&made);
    made_drop(&made, "model.layers.2.self_attn.indexer.k_norm.bias");
    write_made(&made);
    run(&ran, folder.path, NULL, NULL); /* the core is told, and that DSA is damaged */
    assert_int_equal(ran.code, 4);
    assert_non_null(strstr(ran.out, "DSA           refused: "));
    assert_non_null(strstr(ran.log, "DSA is incomplete: "));
    assert_non_null(strstr(ran.log, "model.layers.2.self_attn.indexer.k_norm.bias"));
    done(&ran);

    made_model_tiny(&made);
    made_drop(&made, "model.norm.weight");
    write_made(&made);
    run(&ran, folder.path, "--json", NULL);
    assert_int_equal(ran.code, 4);
    assert_string_equal(ran.out, "");
    assert_non_null(strstr(ran.log, "model.norm.weight"));
    done(&ran);

    run(&ran, "/nonexistent", NULL, NULL);
    assert_int_equal(ran.code, 4);
    assert_non_null(strstr(ran.log, "/nonexistent/config.json"));
    done(&ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_says_what_the_folder_holds),
        cmocka_unit_test(text_names_what_is_absent_and_what_is_ignored),
        cmocka_unit_test(damage_is_exit_code_4),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
