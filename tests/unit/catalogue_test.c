#include "fmt/catalogue.h"
#include "support/check.h"
#include "support/faulty_files.h"
#include "support/made_model.h"
#include "support/temp_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A fresh tiny model in the folder. */
static void write_tiny(struct made_model *model)
{
    remove_tree(folder.path);
    assert_int_equal(mkdir(folder.path, 0700), 0);
    made_model_tiny(model);
    made_write(model, folder.path);
}

static bool open_catalogue(struct catalogue *c, struct alloc *alloc, struct err *err)
{
    *err = (struct err){0};
    return catalogue_open(c, alloc, file_system_real(), folder.path, err);
}

/* Opens the folder, expects a refusal (or, with says NULL, success), and that nothing stays behind. */
static void expect(const char *label, const char *says, const char *also)
{
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err;
    bool ok = open_catalogue(&c, &alloc, &err);
    if (ok) catalogue_close(&c);
    catalogue_close(&c);
    assert_int_equal(alloc.live, 0);
    if (ok != !says) fail_msg("%s: %s", label, ok ? "was accepted" : err.text);
    if (!ok && (!strstr(err.text, says) || !strstr(err.text, also)))
        fail_msg("%s: expected \"%s\" and \"%s\", got \"%s\"", label, says, also, err.text);
}

/* --- contents --- */

static void every_tensor_is_found_and_read(void **state)
{
    (void)state;
    struct made_model model;
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err;
    write_tiny(&model);
    if (!open_catalogue(&c, &alloc, &err)) fail_msg("%s", err.text);
    assert_int_equal(c.n_tensors, model.n_tensors);
    assert_int_equal(c.n_shards, 6);
    assert_int_equal(c.n_ignored_files, 0);
    assert_string_equal(c.shards[0].name, "out-00000.safetensors");
    assert_string_equal(c.shards[4].name, "out-idx-00000.safetensors");
    assert_string_equal(c.shards[5].name, "out-mtp-00000.safetensors");
    for (size_t i = 0; i < model.n_tensors; i++) {
        const struct made_tensor *made = &model.tensors[i];
        const struct tensor *t = catalogue_find(&c, made->name);
        assert_non_null(t);
        assert_string_equal(dtype_name(t->dtype), made->dtype);
        assert_int_equal(t->bytes, made->bytes);
        assert_string_equal(c.shards[t->shard].name, model.shards[made->shard]);
        unsigned char *bytes = malloc(t->bytes);
        if (!catalogue_read(&c, t, 0, bytes, t->bytes, &err)) fail_msg("%s", err.text);
        assert_memory_equal(bytes, made->data, t->bytes);
        if (!catalogue_read(&c, t, t->bytes - 1, bytes, 1, &err)) fail_msg("%s", err.text);
        assert_int_equal(bytes[0], made->data[t->bytes - 1]);
        free(bytes);
    }
    assert_null(catalogue_find(&c, "model.layers.0"));
    assert_null(catalogue_find(&c, ""));
    assert_null(catalogue_find(&c, "zzz"));
    catalogue_close(&c);
    assert_int_equal(alloc.live, 0);
    made_model_fini(&model);
}

/* --- damaged files --- */

static void cut(const char *name, uint64_t bytes)
{
    if (truncate(temp_path(&folder, name), (off_t)bytes) != 0) fail_msg("%s: cannot cut", name);
}

static uint64_t size_of(const char *name)
{
    struct stat st;
    assert_int_equal(stat(temp_path(&folder, name), &st), 0);
    return (uint64_t)st.st_size;
}

static void short_files_are_refused_wherever_they_are_cut(void **state)
{
    (void)state;
    static const char *const names[] = {"out-00000.safetensors", "out-00003.safetensors", "out-idx-00000.safetensors",
                                        "out-mtp-00000.safetensors"};
    struct made_model model;
    write_tiny(&model);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t bytes = size_of(names[i]);
        size_t taken;
        unsigned char *whole = take_file(temp_path(&folder, names[i]), &taken);
        uint64_t header = 8 + (whole[0] | (uint64_t)whole[1] << 8 | (uint64_t)whole[2] << 16);
        cut(names[i], bytes - 1);
        expect(names[i], "1 bytes are missing at its end", names[i]);
        cut(names[i], header);
        expect(names[i], "bytes are missing at its end", names[i]);
        cut(names[i], header - 1);
        expect(names[i], "its header alone needs", names[i]);
        put_file(temp_path(&folder, names[i]), whole, taken);
        cut(names[i], bytes / 2 > header ? bytes / 2 : header + 1);
        expect(names[i], "bytes are missing at its end", names[i]);
        for (uint64_t n = 8; n-- > 0;) {
            cut(names[i], n);
            expect(names[i], "too short for a safetensors file", names[i]);
        }
        put_file(temp_path(&folder, names[i]), whole, taken);
        expect(names[i], NULL, NULL);
        free(whole);
    }
    made_model_fini(&model);
}

static void damaged_lengths_and_tails_are_refused(void **state)
{
    (void)state;
    const char *name = "out-00001.safetensors";
    static const struct {
        uint64_t length;
        const char *says;
    } lengths[] = {
        {0, "header of 0 bytes"},
        {1, "header of 1 bytes"},
        {2, "the text ends"}, /* the first two bytes are '{"' */
        {UINT64_C(1) << 40, "more than the limit"},
        {UINT64_MAX, "more than the limit"},
        {99999999, "its header alone needs"},
    };
    struct made_model model;
    size_t bytes;
    write_tiny(&model);
    unsigned char *whole = take_file(temp_path(&folder, name), &bytes);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char *damaged = malloc(bytes);
        memcpy(damaged, whole, bytes);
        for (int b = 0; b < 8; b++) damaged[b] = (unsigned char)(lengths[i].length >> (8 * b));
        put_file(temp_path(&folder, name), damaged, bytes);
        expect("length", lengths[i].says, name);
        free(damaged);
    }
    unsigned char *longer = calloc(1, bytes + 5);
    memcpy(longer, whole, bytes);
    put_file(temp_path(&folder, name), longer, bytes + 5);
    expect("tail", "5 bytes behind the last tensor belong to no tensor", name);
    free(longer);
    free(whole);
    made_model_fini(&model);
}

/* --- kinds of files --- */

static void links_are_followed_to_regular_files_only(void **state)
{
    (void)state;
    struct made_model model;
    write_tiny(&model);
    const char *name = temp_path(&folder, "out-00002.safetensors"), *blob = temp_path(&folder, "blob");
    assert_int_equal(rename(name, blob), 0);
    assert_int_equal(symlink("blob", name), 0);
    expect("a link to a file", NULL, NULL);

    unlink(name);
    assert_int_equal(symlink("nowhere", name), 0);
    expect("a link to nothing", "cannot open", "out-00002");
    unlink(name);
    assert_int_equal(symlink("out-00002.safetensors", name), 0);
    expect("a link to itself", "cannot open", "out-00002");
    unlink(name);
    assert_int_equal(symlink(".", name), 0);
    expect("a link to a folder", "not a regular file", "out-00002");
    unlink(name);
    assert_int_equal(mkfifo(temp_path(&folder, "pipe"), 0600), 0);
    assert_int_equal(symlink("pipe", name), 0);
    expect("a link to a fifo", "not a regular file", "out-00002");
    unlink(name);
    assert_int_equal(mkfifo(name, 0600), 0);
    expect("a fifo", "not a regular file", "out-00002");
    unlink(name);
    assert_int_equal(mkdir(name, 0700), 0);
    expect("a folder", "not a regular file", "out-00002");
    rmdir(name);
    assert_int_equal(symlink("/dev/zero", name), 0);
    expect("a device", "not a regular file", "out-00002");
    made_model_fini(&model);
}

static void only_known_families_are_read(void **state)
{
    (void)state;
    static const char *const others[] = {"extra.safetensors",         "out-.safetensors",      "out-1x.safetensors",
                                         "out-fp8-1.safetensors",     ".model.safetensors",    "out-mtp-.safetensors",
                                         "xout-1.safetensors",        "out-1.safetensors.tmp", ".safetensors",
                                         "out-1.safetensors.bak-int4"};
    struct made_model model;
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err;
    write_tiny(&model);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        put_file(temp_path(&folder, others[i]), "no safetensors", 14);
    if (!open_catalogue(&c, &alloc, &err)) fail_msg("%s", err.text);
    assert_int_equal(c.n_shards, 6);
    assert_int_equal(c.n_ignored_files, 7); /* the last three are not even named like shards */
    assert_non_null(c.ignored_file);
    catalogue_close(&c);

    made_put_shard(temp_path(&folder, "model-extra.safetensors"),
                   "{\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
    if (!open_catalogue(&c, &alloc, &err)) fail_msg("%s", err.text);
    assert_int_equal(c.n_shards, 7);
    assert_non_null(catalogue_find(&c, "x"));
    catalogue_close(&c);
    assert_int_equal(alloc.live, 0);
    made_model_fini(&model);
}

static void folders_that_hold_no_model_are_refused(void **state)
{
    (void)state;
    struct made_model model;
    write_tiny(&model);
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err = {0};
    assert_false(catalogue_open(&c, &alloc, file_system_real(), "/nonexistent/folder", &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_false(catalogue_open(&c, &alloc, file_system_real(), temp_path(&folder, "config.json"), &err));
    char *endless = malloc(9000);
    memset(endless, 'x', 8999);
    endless[8999] = 0;
    assert_false(catalogue_open(&c, &alloc, file_system_real(), endless, &err));
    assert_non_null(strstr(err.text, "too long"));
    free(endless);
    assert_int_equal(alloc.live, 0);

    unlink(temp_path(&folder, "config.json"));
    expect("no config", "config.json: cannot open", "");
    put_file(temp_path(&folder, "config.json"), "{}", 2);
    for (uint32_t s = 0; s < model.n_shards; s++) unlink(temp_path(&folder, model.shards[s]));
    expect("no shards", "holds no out-*.safetensors", "");
    made_put_shard(temp_path(&folder, "out-00000.safetensors"), "{}", 0);
    expect("only an empty shard", "hold no tensors", "");
    for (int i = 1; i <= 512; i++) {
        char name[64];
        snprintf(name, sizeof name, "out-%05d.safetensors", i);
        made_put_shard(temp_path(&folder, name), "{}", 0);
    }
    expect("too many shards", "more than 512 shards", "");
    made_model_fini(&model);
}

static void empty_shards_are_accepted(void **state)
{
    (void)state;
    struct made_model model;
    write_tiny(&model);
    made_put_shard(temp_path(&folder, "out-00004.safetensors"), "{}", 0);
    made_put_shard(temp_path(&folder, "out-00005.safetensors"), "{\"__metadata__\":{\"format\":\"pt\"}}", 0);
    expect("empty shards", NULL, NULL);
    made_model_fini(&model);
}

static void a_name_may_occur_once_in_all_shards(void **state)
{
    (void)state;
    struct made_model model;
    write_tiny(&model);
    made_put_shard(temp_path(&folder, "out-idx-00001.safetensors"),
                   "{\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[64],\"data_offsets\":[0,256]}}", 256);
    expect("twice", "tensor 'model.norm.weight' is in both", "out-idx-00001.safetensors");
    made_model_fini(&model);
}

static void stamps_must_agree(void **state)
{
    (void)state;
    struct made_model model;
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err;
    write_tiny(&model);
    made_put_shard(temp_path(&folder, "out-00004.safetensors"),
                   "{\"__metadata__\":{\"colibri.fmt\":\"{\\\"w\\\":\\\"int8-row\\\",\\\"v\\\":\\\"int4-row\\\"}\"}}",
                   0);
    made_put_shard(temp_path(&folder, "out-00005.safetensors"),
                   "{\"__metadata__\":{\"colibri.fmt\":\"{\\\"w\\\":\\\"int8-row\\\"}\"}}", 0);
    if (!open_catalogue(&c, &alloc, &err)) fail_msg("%s", err.text);
    assert_string_equal(catalogue_stamp(&c, "w"), "int8-row");
    assert_string_equal(catalogue_stamp(&c, "v"), "int4-row");
    assert_null(catalogue_stamp(&c, "u"));
    catalogue_close(&c);
    made_put_shard(temp_path(&folder, "out-00005.safetensors"),
                   "{\"__metadata__\":{\"colibri.fmt\":\"{\\\"w\\\":\\\"int4-row\\\"}\"}}", 0);
    expect("stamps", "tensor 'w' is stamped both", "");
    made_model_fini(&model);
}

/* --- identity --- */

static void identify(uint8_t identity[32])
{
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err;
    if (!open_catalogue(&c, &alloc, &err)) fail_msg("%s", err.text);
    memcpy(identity, c.identity, 32);
    catalogue_close(&c);
}

static void identity_covers_config_and_headers(void **state)
{
    (void)state;
    struct made_model model;
    uint8_t first[32], again[32];
    write_tiny(&model);
    identify(first);
    identify(again);
    assert_memory_equal(first, again, 32);

    made_put_shard(temp_path(&folder, "out-00004.safetensors"), "{}", 0);
    identify(again);
    assert_memory_not_equal(first, again, 32);
    unlink(temp_path(&folder, "out-00004.safetensors"));
    identify(again);
    assert_memory_equal(first, again, 32);

    size_t bytes;
    unsigned char *config = take_file(temp_path(&folder, "config.json"), &bytes);
    config[bytes] = ' ';
    put_file(temp_path(&folder, "config.json"), config, bytes + 1);
    free(config);
    identify(again);
    assert_memory_not_equal(first, again, 32);
    made_model_fini(&model);
}

/* --- missing shards --- */

static void explain(const char *tensor, bool knows, const char *says)
{
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err;
    char text[512];
    if (!open_catalogue(&c, &alloc, &err)) fail_msg("%s", err.text);
    bool known = catalogue_explain_missing(&c, tensor, text, sizeof text);
    if (known != knows || !strstr(text, says)) fail_msg("'%s' lacks '%s'", text, says);
    catalogue_close(&c);
    assert_int_equal(alloc.live, 0);
}

static void put_index(const struct made_model *model)
{
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    fprintf(f, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (size_t i = 0; i < model->n_tensors; i++)
        fprintf(f, "%s\"%s\": \"%s\"", i ? ", " : "", model->tensors[i].name, model->shards[model->tensors[i].shard]);
    fprintf(f, "}}");
    fclose(f);
    put_file(temp_path(&folder, "model.safetensors.index.json"), text, bytes);
    free(text);
}

static void missing_shards_are_named_by_the_index(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < 6; s++) {
        struct made_model model;
        write_tiny(&model);
        put_index(&model);
        unlink(temp_path(&folder, model.shards[s]));
        const char *tensor = NULL;
        for (size_t i = 0; i < model.n_tensors; i++)
            if (model.tensors[i].shard == s) tensor = model.tensors[i].name;
        char says[128];
        snprintf(says, sizeof says, "; it belongs into %s, which is missing", model.shards[s]);
        explain(tensor, true, says);
        explain("no.such.tensor", true, model.shards[s]);
        if (s > 0) {
            unlink(temp_path(&folder, model.shards[0]));
            explain(tensor, true, "missing, as are out-00000.safetensors");
        }
        put_file(temp_path(&folder, "model.safetensors.index.json"), "{\"weight_map\": {\"a\": 1}}", 24);
        if (s == 1) explain(tensor, true, "; missing shards: out-00000.safetensors, out-00001.safetensors");
        made_model_fini(&model);
    }
}

static void missing_shards_are_named_by_their_numbers(void **state)
{
    (void)state;
    struct made_model model;
    write_tiny(&model);
    explain("x", false, "; a missing shard comes after out-00003.safetensors");
    unlink(temp_path(&folder, "out-00000.safetensors"));
    explain("x", false, "; a missing shard comes before out-00001.safetensors or after out-00003.safetensors");
    unlink(temp_path(&folder, "out-00001.safetensors"));
    explain("x", true, "; missing shards: out-00000.safetensors, out-00001.safetensors");
    unlink(temp_path(&folder, "out-00002.safetensors"));
    made_put_shard(temp_path(&folder, "out-00012.safetensors"), "{}", 0);
    explain("x", true, "out-00006.safetensors and more");

    /* "-of-" counts from 1 to a known end */
    made_model_fini(&model);
    write_tiny(&model);
    for (int i = 0; i < 6; i++) unlink(temp_path(&folder, model.shards[i]));
    made_put_shard(temp_path(&folder, "model-00002-of-00004.safetensors"),
                   "{\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
    made_put_shard(temp_path(&folder, "model-00003-of-00004.safetensors"), "{}", 0);
    explain("y", true, "; missing shards: model-00001-of-00004.safetensors, model-00004-of-00004.safetensors");
    made_model_fini(&model);
}

/* --- faults --- */

static void a_file_that_shrinks_later_is_an_error_with_the_tensor(void **state)
{
    (void)state;
    struct made_model model;
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err;
    unsigned char byte;
    write_tiny(&model);
    if (!open_catalogue(&c, &alloc, &err)) fail_msg("%s", err.text);
    const struct tensor *t = catalogue_find(&c, "model.norm.weight");
    cut(c.shards[t->shard].name, t->offset);
    assert_false(catalogue_read(&c, t, 0, &byte, 1, &err));
    assert_int_equal(err.kind, ERR_DATA);
    assert_non_null(strstr(err.text, "tensor 'model.norm.weight'"));
    assert_non_null(strstr(err.text, c.shards[t->shard].name));
    catalogue_close(&c);
    made_model_fini(&model);
}

static void every_failed_call_ends_clean(void **state)
{
    (void)state;
    struct made_model model;
    write_tiny(&model);
    uint64_t points = 0;
    for (int ends_early = 0; ends_early < 2; ends_early++) {
        for (uint64_t k = 1;; k++, points++) {
            struct faulty_files faulty = {.fail_at = k, .ends_early = ends_early};
            struct alloc alloc = {0};
            struct catalogue c;
            struct err err = {0};
            bool ok = catalogue_open(&c, &alloc, faulty_files_system(&faulty), folder.path, &err);
            if (!ok) assert_int_equal(err.kind, ends_early ? ERR_DATA : ERR_IO);
            if (ok) catalogue_close(&c);
            assert_int_equal(alloc.live, 0);
            assert_int_equal(faulty.n_open, 0);
            if (!ok) continue;
            assert_true(faulty.calls < k);
            break;
        }
    }
    printf("%" PRIu64 " failing calls tried\n", points);
    assert_true(points > 20);

    struct faulty_files slow = {.read_most = 7, .interrupts = true};
    struct alloc alloc = {0};
    struct catalogue c;
    struct err err = {0};
    if (!catalogue_open(&c, &alloc, faulty_files_system(&slow), folder.path, &err)) fail_msg("%s", err.text);
    catalogue_close(&c);
    assert_int_equal(slow.n_open, 0);
    made_model_fini(&model);
}

static void every_failed_allocation_ends_clean(void **state)
{
    (void)state;
    struct made_model model;
    write_tiny(&model);
    uint64_t k = 1;
    for (;; k++) {
        struct faulty_files counting = {0};
        struct alloc alloc = {.fail_at = k};
        struct catalogue c;
        struct err err = {0};
        bool ok = catalogue_open(&c, &alloc, faulty_files_system(&counting), folder.path, &err);
        if (!ok) assert_int_equal(err.kind, ERR_NOMEM);
        if (ok) catalogue_close(&c);
        assert_int_equal(alloc.live, 0);
        assert_int_equal(counting.n_open, 0);
        if (ok) break;
    }
    printf("%" PRIu64 " failing allocations tried\n", k - 1);
    assert_true(k > 10);
    made_model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_found_and_read),
        cmocka_unit_test(short_files_are_refused_wherever_they_are_cut),
        cmocka_unit_test(damaged_lengths_and_tails_are_refused),
        cmocka_unit_test(links_are_followed_to_regular_files_only),
        cmocka_unit_test(only_known_families_are_read),
        cmocka_unit_test(folders_that_hold_no_model_are_refused),
        cmocka_unit_test(empty_shards_are_accepted),
        cmocka_unit_test(a_name_may_occur_once_in_all_shards),
        cmocka_unit_test(stamps_must_agree),
        cmocka_unit_test(identity_covers_config_and_headers),
        cmocka_unit_test(missing_shards_are_named_by_the_index),
        cmocka_unit_test(missing_shards_are_named_by_their_numbers),
        cmocka_unit_test(a_file_that_shrinks_later_is_an_error_with_the_tensor),
        cmocka_unit_test(every_failed_call_ends_clean),
        cmocka_unit_test(every_failed_allocation_ends_clean),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
