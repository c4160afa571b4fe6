/* The converter, from outside: what it writes against a second implementation that holds everything in memory, and what
 * it does when it is killed, lied to, or short of room. */
#include "convert/convert.h"
#include "support/check.h"
#include "support/faulty_files.h"
#include "support/faulty_write.h"
#include "support/plain_tensors.h"
#include "support/source_model.h"
#include "support/temp_folder.h"

#include "fmt/inventory.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FP8_FIXTURE "tests/fixtures/glm52-tiny/fp8"

static struct temp_folder folder;
static struct plain_set model; /* the random model, in SOURCE */
static char source[300];

static int prepare(void **state)
{
    (void)state;
    temp_folder_make(&folder);
    snprintf(source, sizeof source, "%s/source", folder.path);
    mkdir(source, 0700);
    printf("seed 11\n");
    source_model_make(&model, 11);
    source_model_save(&model, source);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    plain_free(&model);
    temp_folder_remove(&folder);
    return 0;
}

/* --- running it --- */

static struct convert_options small_options(void)
{
    struct convert_options o = convert_options_default();
    o.group = 16;
    o.keep_mtp_indexer = true;
    o.block_values = 100;
    o.reserve_bytes = 0;
    return o;
}

static bool convert_between(const char *from, const char *to, struct convert_options options, struct file_system fs,
                            struct write_system ws, struct alloc *alloc, struct err *err)
{
    struct convert_result result;
    struct convert_job job = {
        .source = from,
        .destination = to,
        .options = options,
        .alloc = alloc,
        .fs = fs,
        .ws = ws,
        .clock = clock_real(),
    };
    *err = (struct err){0};
    bool ok = convert_folder(&job, &result, err);
    if (!ok && !err->text[0]) fail_msg("failed without a word");
    return ok;
}

static bool convert_with(const char *from, const char *to, struct convert_options options, struct write_system ws,
                         struct alloc *alloc, struct err *err)
{
    return convert_between(from, to, options, file_system_real(), ws, alloc, err);
}

static bool convert_plainly(const char *from, const char *to, struct convert_options options, struct err *err)
{
    struct alloc alloc = {0};
    struct faulty_write quick = {0}; /* without faults, and without waiting for the disk */
    bool ok = convert_with(from, to, options, faulty_write_system(&quick), &alloc, err);
    assert_int_equal(alloc.live, 0);
    return ok;
}

static void must_convert(const char *from, const char *to, struct convert_options options)
{
    struct err err;
    if (!convert_plainly(from, to, options, &err)) fail_msg("%s", err.text);
}

/* Converts and expects a refusal whose message holds all the words (up to a NULL). */
static void must_refuse(const char *from, const char *to, struct convert_options options, enum err_kind kind,
                        const char *const *words)
{
    struct err err;
    if (convert_plainly(from, to, options, &err)) fail_msg("not refused, want '%s'", words[0]);
    printf("refused: %s\n", err.text);
    assert_int_equal(err.kind, kind);
    for (; *words; words++)
        if (!strstr(err.text, *words)) fail_msg("'%s' is not in: %s", *words, err.text);
}

#define REFUSE(from, to, options, kind, ...) \
    must_refuse(from, to, options, kind, (const char *const[]){__VA_ARGS__, NULL})

/* --- the second implementation --- */

struct rules {
    unsigned n_layers, group, bits, expert_bits, io_bits;
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static const char *family_of(const char *name, const struct rules *rules)
{
    unsigned layer = 0;
    if (ends_with(name, "_scale_inv")) return "none";
    if (strstr(name, "indexer")) return "out-idx";
    if (sscanf(name, "model.layers.%u.", &layer) == 1 && layer >= rules->n_layers) return "out-mtp";
    return "out";
}

static unsigned bits_by_name(const struct plain_tensor *t, const struct rules *rules)
{
    if (t->rank != 2 || ends_with(t->name, "norm.weight") || ends_with(t->name, "mlp.gate.weight")) return 32;
    if (strstr(t->name, "embed_tokens") || strstr(t->name, "lm_head")) return rules->io_bits;
    if (strcmp(family_of(t->name, rules), "out") != 0) return 8;
    return strstr(t->name, ".mlp.experts.") ? rules->expert_bits : rules->bits;
}

/* Floats to payload and scales, row by row, value by value. */
static void quantise_plainly(struct plain_set *out, const struct plain_tensor *t, const float *w, unsigned bits,
                             unsigned group)
{
    uint64_t rows = t->shape[0], columns = t->shape[1];
    int qmax = bits == 8 ? 127 : 7;
    uint64_t span = bits == 8 || group == 0 ? columns : group, n_groups = (columns + span - 1) / span;
    uint64_t row_bytes = bits == 8 ? columns : (columns + 1) / 2;
    unsigned char *payload = plain_add(out, t->name, "U8", rows * row_bytes, 0, NULL, rows * row_bytes);
    memset(payload, 0, rows * row_bytes);
    char name[200];
    snprintf(name, sizeof name, "%s.qs", t->name);
    unsigned char *scales = plain_add(out, name, "F32", rows * n_groups, 0, NULL, 4 * rows * n_groups);
    for (uint64_t i = 0; i < rows * n_groups; i++) {
        uint64_t row = i / n_groups, begin = i % n_groups * span, end = begin + span < columns ? begin + span : columns;
        float largest = 0;
        for (uint64_t k = begin; k < end; k++) largest = fmaxf(largest, fabsf(w[row * columns + k]));
        float scale = fmaxf(largest / (float)qmax, 1e-8f);
        memcpy(scales + 4 * i, &scale, 4);
        for (uint64_t k = begin; k < end; k++) {
            int q = (int)nearbyintf(w[row * columns + k] / scale);
            q = q > qmax ? qmax : q < -qmax - 1 ? -qmax - 1 : q;
            if (bits == 8)
                payload[row * row_bytes + k] = (unsigned char)q;
            else
                payload[row * row_bytes + k / 2] |= (unsigned char)((q + 8) << (k % 2 ? 4 : 0));
        }
    }
}

static int f32_then_names(const void *a, const void *b)
{
    const struct plain_tensor *x = a, *y = b;
    int by_dtype = strcmp(x->dtype, y->dtype); /* "F32" < "U8" */
    return by_dtype ? by_dtype : strcmp(x->name, y->name);
}

/* The one file that a family makes when it is not cut. */
static void expect_family(const struct plain_set *from, const char *to, const char *family, const struct rules *rules)
{
    struct plain_set out = {0};
    for (unsigned i = 0; i < from->n; i++) {
        const struct plain_tensor *t = &from->tensors[i];
        if (strcmp(family_of(t->name, rules), family) != 0) continue;
        float *w = plain_floats(from, t);
        unsigned bits = bits_by_name(t, rules);
        if (bits == 32)
            plain_add(&out, t->name, "F32", t->shape[0], t->rank == 2 ? t->shape[1] : 0, w,
                      4 * t->shape[0] * (t->rank == 2 ? t->shape[1] : 1));
        else
            quantise_plainly(&out, t, w, bits, rules->group);
        free(w);
    }
    qsort(out.tensors, out.n, sizeof *out.tensors, f32_then_names);
    size_t want_bytes, got_bytes;
    unsigned char *want = plain_bytes(&out, &want_bytes);
    char path[400];
    snprintf(path, sizeof path, "%s/%s-00000.safetensors", to, family);
    unsigned char *got = take_file(path, &got_bytes);
    printf("%s: %u tensors, %zu bytes\n", family, out.n, want_bytes);
    assert_true(out.n > 5);
    assert_int_equal(got_bytes, want_bytes);
    for (size_t i = 0; i < want_bytes; i++)
        if (got[i] != want[i]) fail_msg("%s: byte %zu is %u, want %u", path, i, got[i], want[i]);
    free(want);
    free(got);
    plain_free(&out);
}

static void expect_all(const struct plain_set *from, const char *to, struct rules rules)
{
    expect_family(from, to, "out", &rules);
    expect_family(from, to, "out-mtp", &rules);
    expect_family(from, to, "out-idx", &rules);
}

static void assert_same_file(const char *a, const char *b)
{
    size_t n, m;
    unsigned char *x = take_file(a, &n), *y = take_file(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* What comes out must be a whole model for the reader that engines use. */
static void must_load(const char *to)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct config config;
    struct catalogue catalogue;
    struct inventory inventory;
    if (!config_read(&config, &alloc, file_system_real(), to, &err) ||
        !catalogue_open(&catalogue, &alloc, file_system_real(), to, &err) ||
        !inventory_build(&inventory, &alloc, &config, &catalogue, &err))
        fail_msg("%s", err.text);
    assert_int_equal(inventory.mtp, CAPABILITY_PRESENT);
    assert_int_equal(inventory.dsa, CAPABILITY_PRESENT);
    assert_true(inventory.mtp_has_indexer);
    inventory_fini(&inventory);
    catalogue_close(&catalogue);
    assert_int_equal(alloc.live, 0);
}

/* --- what is written --- */

static void the_fp8_fixture(void **state)
{
    (void)state;
    struct plain_set from = {0};
    plain_read(&from, FP8_FIXTURE "/model.safetensors");
    struct convert_options o = convert_options_default();
    o.keep_mtp_indexer = true;
    o.group = 32;
    o.block_values = 20000; /* partial FP8 blocks at both ends of a block of rows */
    const char *to = temp_path(&folder, "fp8");
    struct alloc alloc = {0};
    struct err err;
    if (!convert_with(FP8_FIXTURE, to, o, write_system_real(), &alloc, &err)) fail_msg("%s", err.text);
    expect_all(&from, to, (struct rules){.n_layers = 4, .group = 32, .bits = 4, .expert_bits = 4, .io_bits = 8});
    must_load(to);
    assert_same_file(FP8_FIXTURE "/config.json", temp_path(&folder, "fp8/config.json"));
    plain_free(&from);
}

static void random_models_at_all_widths(void **state)
{
    (void)state;
    static const struct rules all[] = {
        {3, 16, 4, 4, 8}, {3, 0, 4, 4, 8}, {3, 16, 8, 4, 4}, {3, 16, 4, 8, 4}, {3, 0, 8, 8, 8},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        static const uint64_t blocks[] = {1, 7, 100, 5000, 1 << 20};
        struct convert_options o = small_options();
        o.group = all[i].group;
        o.bits = all[i].bits;
        o.expert_bits = all[i].expert_bits == all[i].bits ? 0 : all[i].expert_bits;
        o.io_bits = all[i].io_bits;
        o.block_values = blocks[i]; /* the bytes must not depend on it */
        char to[300];
        snprintf(to, sizeof to, "%s/random-%zu", folder.path, i);
        must_convert(source, to, o);
        expect_all(&model, to, all[i]);
        must_load(to);
        assert_same_file(temp_path(&folder, "source/tokenizer.json"),
                         strcat(strcpy((char[400]){0}, to), "/tokenizer.json"));
    }
}

/* Cut in many pieces, the same tensors come out; experts stay whole; the record names every file with its digest. */
static void many_shards(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    o.shard_bytes = 3000;
    const char *to = temp_path(&folder, "cut");
    must_convert(source, to, o);
    o.shard_bytes = 1 << 30;
    must_convert(source, temp_path(&folder, "whole"), o);
    struct plain_set whole = {0};
    plain_read(&whole, temp_path(&folder, "whole/out-00000.safetensors"));
    unsigned n_found = 0, n_files = 0;
    for (;; n_files++) {
        struct plain_set part = {0};
        char name[64];
        snprintf(name, sizeof name, "cut/out-%05u.safetensors", n_files);
        if (!file_exists(temp_path(&folder, name))) break;
        plain_read(&part, temp_path(&folder, name));
        unsigned n_expert_tensors = 0;
        for (unsigned i = 0; i < part.n; i++) {
            const struct plain_tensor *other = plain_find(&whole, part.tensors[i].name);
            assert_non_null(other);
            assert_int_equal(other->bytes, part.tensors[i].bytes);
            assert_memory_equal(other->data, part.tensors[i].data, other->bytes);
            n_expert_tensors += strstr(part.tensors[i].name, ".mlp.experts.") != NULL;
        }
        assert_int_equal(n_expert_tensors % 6, 0); /* three matrices with scales */
        n_found += part.n;
        plain_free(&part);
    }
    printf("%u tensors in %u shards\n", n_found, n_files);
    assert_true(n_files > 4);
    assert_int_equal(n_found, whole.n);
    plain_free(&whole);
}

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, key, &value)) fail_msg("the record lacks %s", key);
    return value;
}

/* Whether a file is what the record says. */
static void check_recorded(const char *to, struct json_object *entry)
{
    char path[600], text[65];
    size_t bytes;
    unsigned char sum[32];
    snprintf(path, sizeof path, "%s/%s", to, json_object_get_string(member(entry, "name")));
    unsigned char *data = take_file(path, &bytes);
    assert_int_equal(json_object_get_int64(member(entry, "bytes")), bytes);
    assert_int_equal(EVP_Digest(data, bytes, sum, NULL, EVP_sha256(), NULL), 1);
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", sum[i]);
    assert_string_equal(json_object_get_string(member(entry, "sha256")), text);
    free(data);
}

static void the_record_is_true(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    o.shard_bytes = 9000;
    o.bits = 8;
    o.expert_bits = 4;
    const char *to = temp_path(&folder, "recorded");
    must_convert(source, to, o);
    struct json_object *record = json_object_from_file(temp_path(&folder, "recorded/weir-conversion.json"));
    assert_non_null(record);
    struct json_object *outputs = member(record, "outputs"), *files = member(record, "files");
    assert_true(json_object_array_length(outputs) > 5);
    assert_int_equal(json_object_array_length(files), 3);
    for (size_t i = 0; i < json_object_array_length(files); i++)
        check_recorded(to, json_object_array_get_idx(files, i));
    for (size_t i = 0; i < json_object_array_length(outputs); i++) {
        struct json_object *output = json_object_array_get_idx(outputs, i);
        check_recorded(to, output);
        const char *worst = json_object_get_string(member(output, "worst_tensor"));
        double loss = json_object_get_double(member(output, "worst_relative_error"));
        bool is_int4 = strstr(worst, ".mlp.experts.") && strncmp(worst, "model.layers.3.", 15) != 0;
        printf("%s loses %.4f\n", worst, loss);
        /* Uniform weights lose a step / sqrt(12) of a range of 7 or 127 steps. */
        if (worst[0]) assert_true(is_int4 ? loss > 0.03 && loss < 0.15 : loss > 0.001 && loss < 0.02);
    }
    json_object_put(record);
}

/* The bundled model: whole, and unchanged since it was converted. */
static void the_demo_model_is_what_its_record_says(void **state)
{
    (void)state;
    must_load("models/demo");
    struct json_object *record = json_object_from_file("models/demo/weir-conversion.json");
    assert_non_null(record);
    struct json_object *outputs = member(record, "outputs"), *files = member(record, "files");
    assert_int_equal(json_object_array_length(outputs), 3);
    assert_int_equal(json_object_array_length(files), 5);
    for (size_t i = 0; i < 3; i++) check_recorded("models/demo", json_object_array_get_idx(outputs, i));
    for (size_t i = 0; i < 5; i++) check_recorded("models/demo", json_object_array_get_idx(files, i));
    json_object_put(record);
}

static void the_source_cut_does_not_matter(void **state)
{
    (void)state;
    char other[300];
    snprintf(other, sizeof other, "%s/one-file", folder.path);
    mkdir(other, 0700);
    source_model_save(&model, other);
    remove_tree(temp_path(&folder, "one-file/model-00001-of-00002.safetensors"));
    remove_tree(temp_path(&folder, "one-file/model-00002-of-00002.safetensors"));
    plain_write(&model, temp_path(&folder, "one-file/model.safetensors"));
    must_convert(source, temp_path(&folder, "from-two"), small_options());
    must_convert(other, temp_path(&folder, "from-one"), small_options());
    assert_same_file(temp_path(&folder, "from-two/out-00000.safetensors"),
                     temp_path(&folder, "from-one/out-00000.safetensors"));
}

static void single_passes(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    must_convert(source, temp_path(&folder, "all"), o);
    o.passes = 1 << CONVERT_INDEXER;
    must_convert(source, temp_path(&folder, "overlay"), o);
    assert_same_file(temp_path(&folder, "all/out-idx-00000.safetensors"),
                     temp_path(&folder, "overlay/out-idx-00000.safetensors"));
    assert_false(file_exists(temp_path(&folder, "overlay/out-00000.safetensors")));
    assert_false(file_exists(temp_path(&folder, "overlay/config.json"))); /* it comes with the main pass */
    o.passes = 1 << CONVERT_MTP;
    o.keep_mtp_indexer = false;
    must_convert(source, temp_path(&folder, "mtp"), o);
    assert_same_file(temp_path(&folder, "all/out-mtp-00000.safetensors"),
                     temp_path(&folder, "mtp/out-mtp-00000.safetensors"));
}

/* --- interruptions --- */

static void clean_run(char to[300], const struct convert_options *o)
{
    snprintf(to, 300, "%s/clean", folder.path);
    remove_tree(to);
    must_convert(source, to, *o);
    assert_true(file_exists(temp_path(&folder, "clean/weir-conversion.json")));
    assert_false(file_exists(temp_path(&folder, "clean/.weir-convert.json")));
}

/* Stops at every single operation in turn, in three ways, and goes on with the same command. */
static void killed_anywhere_the_result_is_the_same(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    o.shard_bytes = 9000;
    o.block_values = 5000;
    char clean[300], to[300];
    clean_run(clean, &o);
    snprintf(to, sizeof to, "%s/killed", folder.path);
    uint64_t n_stops = 0, n_resumed = 0;
    for (int kind = 0; kind < 3; kind++) {
        for (uint64_t k = 1;; k++) {
            struct alloc alloc = {0};
            struct err err;
            struct faulty_write faulty = {.fail_at = k, .stops = kind > 0, .loses = kind > 1, .tears = kind > 0};
            remove_tree(to);
            bool ok = convert_with(source, to, o, faulty_write_system(&faulty), &alloc, &err);
            assert_int_equal(alloc.live, 0);
            if (ok && faulty.calls < k) break;
            n_stops++;
            n_resumed += !ok && file_exists(temp_path(&folder, "killed/out-00000.safetensors"));
            struct faulty_write quick = {0};
            if (!convert_with(source, to, o, faulty_write_system(&quick), &alloc, &err))
                fail_msg("kind %d, operation %d: cannot go on: %s", kind, (int)k, err.text);
            assert_same_folders(clean, to);
        }
    }
    printf("%d stops, %d of them with something finished\n", (int)n_stops, (int)n_resumed);
    assert_true(n_stops > 100 && n_resumed > 50);
}

/* That it goes on, and does not begin anew, shows in the bytes written. */
static void finished_shards_are_not_made_again(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    o.shard_bytes = 9000;
    struct alloc alloc = {0};
    struct err err;
    struct faulty_write whole = {0};
    assert_true(convert_with(source, temp_path(&folder, "again"), o, faulty_write_system(&whole), &alloc, &err));
    struct faulty_write nothing = {0};
    assert_true(convert_with(source, temp_path(&folder, "again"), o, faulty_write_system(&nothing), &alloc, &err));
    assert_int_equal(nothing.bytes_written, 0);
    /* A finished shard that got lost or was cut is made again, and nothing else but the record. */
    size_t bytes;
    unsigned char *shard = take_file(temp_path(&folder, "again/out-00001.safetensors"), &bytes);
    put_file(temp_path(&folder, "again/out-00001.safetensors"), shard, bytes - 1);
    struct faulty_write one = {0};
    assert_true(convert_with(source, temp_path(&folder, "again"), o, faulty_write_system(&one), &alloc, &err));
    assert_true(one.bytes_written >= bytes);
    assert_true(one.bytes_written < whole.bytes_written / 2);
    size_t bytes_now;
    unsigned char *now = take_file(temp_path(&folder, "again/out-00001.safetensors"), &bytes_now);
    assert_int_equal(bytes_now, bytes);
    assert_memory_equal(now, shard, bytes);
    free(shard);
    free(now);
}

/* Every open, stat and read fails in turn, or finds the file cut short; then the same command goes on. */
static void a_source_that_cannot_be_read(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    o.shard_bytes = 9000;
    o.block_values = 5000;
    char clean[300], to[300];
    clean_run(clean, &o);
    snprintf(to, sizeof to, "%s/unread", folder.path);
    unsigned n_faults = 0;
    for (int kind = 0; kind < 2; kind++) {
        remove_tree(to);
        for (uint64_t k = 1;; k += 1 + k / 40) {
            struct alloc alloc = {0};
            struct err err;
            struct faulty_files reads = {.fail_at = k, .ends_early = kind, .interrupts = true, .read_most = 3000};
            struct faulty_write quick = {0};
            bool ok =
                convert_between(source, to, o, faulty_files_system(&reads), faulty_write_system(&quick), &alloc, &err);
            assert_int_equal(alloc.live, 0);
            assert_int_equal(reads.n_open, 0);
            if (ok && reads.calls < k) break;
            n_faults += !ok;
            /* An optional file whose first open fails is looked at once more, and then is not there. */
            if (!ok && kind == 0 && err.kind != ERR_IO && !strstr(err.text, "generation_config.json"))
                fail_msg("read %d: %s", (int)k, err.text);
            if (ok || k % 7 == 0) remove_tree(to); /* else what is finished stays for the next round */
        }
        must_convert(source, to, o);
        assert_same_folders(clean, to);
    }
    printf("%u faults\n", n_faults);
    assert_true(n_faults > 100);
}

/* Leaves a conversion half done in `name`. */
static const char *half_done(const char *name, const struct convert_options *o)
{
    struct alloc alloc = {0};
    struct err err;
    struct faulty_write faulty = {.fail_at = 60, .stops = true};
    const char *to = temp_path(&folder, name);
    assert_false(convert_with(source, to, *o, faulty_write_system(&faulty), &alloc, &err));
    char path[400];
    snprintf(path, sizeof path, "%s/.weir-convert.json", to);
    assert_true(file_exists(path));
    return to;
}

static void other_options_or_another_source_are_refused(void **state)
{
    (void)state;
    struct convert_options o = small_options(), other;
    o.shard_bytes = 9000;
    char to[300];
    snprintf(to, sizeof to, "%s", half_done("half", &o));
    other = o;
    other.group = 0;
    REFUSE(source, to, other, ERR_USER, "\"group\": 16", "\"group\": 0", "another folder");
    other = o;
    other.bits = 8;
    REFUSE(source, to, other, ERR_USER, "\"bits\": 4", "\"bits\": 8");
    other = o;
    other.keep_mtp_indexer = false;
    REFUSE(source, to, other, ERR_USER, "keep_mtp_indexer");
    other = o;
    other.shard_bytes = 8000;
    REFUSE(source, to, other, ERR_USER, "\"shard_bytes\": 9000", "\"shard_bytes\": 8000");
    other = o;
    other.passes = 1 << CONVERT_MAIN;
    other.keep_mtp_indexer = false;
    REFUSE(source, to, other, ERR_USER, "\"passes\": \"main,mtp,indexer\"", "\"passes\": \"main\"");

    /* The same names and sizes, other weights; then the first ones again. */
    struct plain_set changed = {0};
    source_model_make(&changed, 12);
    source_model_save(&changed, source);
    REFUSE(source, to, o, ERR_USER, "model-00001-of-00002.safetensors", "sampled_sha256");
    plain_free(&changed);
    source_model_save(&model, source);
    put_file(temp_path(&folder, "source/tokenizer.json"), "{}", 2);
    REFUSE(source, to, o, ERR_USER, "tokenizer.json");
    source_model_save(&model, source);
    other = o;
    other.block_values = 77; /* how it is done may change, what comes out may not */
    must_convert(source, to, other);
    other = o;
    other.group = 0;
    REFUSE(source, to, other, ERR_USER, "\"group\": 16"); /* a finished container, too */
}

static void a_damaged_manifest_is_refused(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    o.shard_bytes = 9000;
    char to[300], path[400];
    snprintf(to, sizeof to, "%s", half_done("damaged", &o));
    snprintf(path, sizeof path, "%s/.weir-convert.json", to);
    size_t bytes;
    char *text = (char *)take_file(path, &bytes), *sha = strstr(strstr(text, "\"outputs\""), "\"sha256\": \"");
    assert_non_null(sha);
    char saved = sha[15];
    sha[15] = 'X';
    put_file(path, text, bytes);
    REFUSE(source, to, o, ERR_DATA, "damaged");
    sha[15] = saved;
    put_file(path, text, 10);
    REFUSE(source, to, o, ERR_USER, "begun with");
    put_file(path, text, bytes);
    must_convert(source, to, o);
    free(text);
}

static void strangers_are_left_alone(void **state)
{
    (void)state;
    mkdir(temp_path(&folder, "taken"), 0700);
    put_file(temp_path(&folder, "taken/model-x.safetensors"), "", 0);
    REFUSE(source, temp_path(&folder, "taken"), small_options(), ERR_USER, "model-x.safetensors", "empty folder");
    mkdir(temp_path(&folder, "taken2"), 0700);
    put_file(temp_path(&folder, "taken2/config.json"), "", 0);
    REFUSE(source, temp_path(&folder, "taken2"), small_options(), ERR_USER, "config.json");
    REFUSE(source, source, small_options(), ERR_USER, "empty folder"); /* onto itself */
}

static void one_conversion_per_folder(void **state)
{
    (void)state;
    struct err err;
    struct folder_lock lock = {0};
    const char *to = temp_path(&folder, "busy");
    assert_true(folder_lock(&lock, write_system_real(), to, &err));
    REFUSE(source, to, small_options(), ERR_BUSY, "another process");
    folder_unlock(&lock);
    must_convert(source, to, small_options());
}

/* --- no room --- */

static void no_room(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    struct alloc alloc = {0};
    struct err err;
    struct faulty_write little = {.free_bytes = 5000}, full = {.fail_at = 30, .error = ENOSPC, .tears = true};
    struct faulty_write read_only = {.fail_at = 2, .stops = true, .error = EROFS};
    char to[300];
    snprintf(to, sizeof to, "%s/room", folder.path);
    assert_false(convert_with(source, to, o, faulty_write_system(&little), &alloc, &err));
    printf("refused: %s\n", err.text);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "5000; make room"));
    assert_int_equal(little.bytes_written, 0);
    o.reserve_bytes = UINT64_MAX / 2;
    REFUSE(source, to, o, ERR_IO, "must stay free");
    o.reserve_bytes = 0;

    o.shard_bytes = 9000;
    assert_false(convert_with(source, to, o, faulty_write_system(&full), &alloc, &err));
    printf("refused: %s\n", err.text);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "make room"));
    must_convert(source, to, o); /* after somebody made room */
    char clean[300];
    clean_run(clean, &o);
    assert_same_folders(clean, to);

    assert_false(
        convert_with(source, temp_path(&folder, "read-only"), o, faulty_write_system(&read_only), &alloc, &err));
    assert_non_null(strstr(err.text, "may write"));
    REFUSE(source, temp_path(&folder, "no/such/parent"), o, ERR_IO, "cannot make the folder");
}

/* --- bad sources --- */

/* A source of its own, with one change. */
static const char *changed_source(void (*change)(struct plain_set *set))
{
    struct plain_set set = {0};
    source_model_make(&set, 11);
    change(&set);
    const char *path = temp_path(&folder, "changed");
    remove_tree(path);
    mkdir(path, 0700);
    source_model_save(&set, path);
    plain_free(&set);
    return path;
}

static void make_nan(struct plain_set *set)
{
    float nan = NAN;
    memcpy(plain_find(set, "lm_head.weight")->data + 4 * (5 * 40 + 7), &nan, 4);
}

static void make_infinite_norm(struct plain_set *set)
{
    memcpy(plain_find(set, "model.norm.weight")->data + 2 * 9, "\x80\xff", 2); /* -inf as BF16 */
}

static void make_fp8_nan(struct plain_set *set)
{
    for (unsigned i = 0; i < set->n; i++) {
        if (strcmp(set->tensors[i].dtype, "F8_E4M3") != 0) continue;
        set->tensors[i].data[3] = 0xff;
        return;
    }
}

static void rename_tensor(struct plain_set *set, const char *from, const char *to)
{
    struct plain_tensor *t = plain_find(set, from);
    assert_non_null(t);
    snprintf(t->name, sizeof t->name, "%s", to);
}

static void lose_tensor(struct plain_set *set)
{
    rename_tensor(set, "model.layers.2.mlp.experts.1.up_proj.weight", "x");
}
static void fuse_experts(struct plain_set *set)
{
    rename_tensor(set, "model.layers.1.mlp.experts.0.gate_proj.weight", "model.layers.1.mlp.experts.gate_up_proj");
}
static void lose_mtp_tensor(struct plain_set *set)
{
    rename_tensor(set, "model.layers.3.enorm.weight", "x");
}

static void lose_factors(struct plain_set *set)
{
    for (unsigned i = 0; i < set->n; i++)
        if (ends_with(set->tensors[i].name, "_scale_inv")) {
            strcpy(set->tensors[i].name, "x");
            return;
        }
}

/* Factors of a tensor that is none of FP8. */
static void add_factors(struct plain_set *set)
{
    static const float one = 1;
    plain_add(set, "lm_head.weight_scale_inv", "F32", 1, 1, &one, sizeof one);
}

static void make_fp8_vector(struct plain_set *set)
{
    static const float one = 1;
    struct plain_tensor *t = plain_find(set, "model.norm.weight");
    strcpy(t->dtype, "F8_E4M3");
    t->bytes = t->shape[0];
    plain_add(set, "model.norm.weight_scale_inv", "F32", 1, 1, &one, sizeof one);
}

static void change_factors(struct plain_set *set)
{
    for (unsigned i = 0; i < set->n; i++)
        if (ends_with(set->tensors[i].name, "_scale_inv")) strcpy(set->tensors[i].dtype, "I32");
}

static void lose_indexers(struct plain_set *set)
{
    for (unsigned i = 0; i < set->n; i++)
        if (strstr(set->tensors[i].name, "indexer")) snprintf(set->tensors[i].name, 160, "x%u", i);
}

static void cut_rows(struct plain_set *set)
{
    struct plain_tensor *t = plain_find(set, "lm_head.weight");
    t->shape[0]--;
    t->bytes -= 160;
}

static void change_dtype(struct plain_set *set)
{
    struct plain_tensor *t = plain_find(set, "model.embed_tokens.weight");
    strcpy(t->dtype, "I16");
}

static void bad_sources_are_refused_by_name(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    static const struct {
        void (*change)(struct plain_set *set);
        const char *words[5];
    } cases[] = {
        {make_nan, {"lm_head.weight", "nan", "[5, 7]", "which no integer stands for"}},
        {make_infinite_norm, {"model.norm.weight", "-inf", "[9, 0]"}},
        {make_fp8_nan, {"nan", "[0, 3]", "factor"}},
        {lose_tensor, {"model.layers.2.mlp.experts.1.up_proj.weight is missing, which the main pass needs"}},
        {lose_mtp_tensor, {"model.layers.3.enorm.weight is missing", "mtp"}},
        {fuse_experts, {"model.layers.1.mlp.experts.gate_up_proj", "not supported"}},
        {lose_factors, {"_scale_inv", " is FP8, but its factors "}},
        {add_factors, {"lm_head.weight is no FP8 tensor, yet lm_head.weight_scale_inv exists"}},
        {make_fp8_vector, {"model.norm.weight is an FP8 vector; FP8 is read for matrices only"}},
        {change_factors, {"_scale_inv", " is not F32, as factors of FP8 tensors must be"}},
        {cut_rows, {"lm_head.weight has shape [36, 40]", "[37, 40]"}},
        {change_dtype, {"model.embed_tokens.weight", "is I16; F32, F16, BF16 and F8_E4M3 can be converted"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *to = temp_path(&folder, "from-bad");
        remove_tree(to);
        must_refuse(changed_source(cases[i].change), to, o, ERR_DATA, cases[i].words);
        assert_false(file_exists(temp_path(&folder, "from-bad/weir-conversion.json")));
    }
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    const char *to = temp_path(&folder, "bad-options");
    struct convert_options o = small_options();
    o.group = 24;
    REFUSE(source, to, o, ERR_USER, "readers find groups of 16, 32, ", "not 24");
    o = small_options();
    o.io_bits = 3;
    REFUSE(source, to, o, ERR_USER, "3 bits cannot be made, only 4 and 8");
    o = small_options();
    o.passes = 1 << CONVERT_MAIN; /* without the pass that keeps it */
    REFUSE(source, to, o, ERR_USER, "indexer pass");
    o = small_options();
    o.passes = 64;
    REFUSE(source, to, o, ERR_USER, "passes: unknown bits 0x40");
    o = small_options();
    o.shard_bytes = 0;
    REFUSE(source, to, o, ERR_USER, "the size of a shard and the number of weights held at once cannot be 0");
    o = small_options();
    o.passes = 1 << CONVERT_INDEXER;
    REFUSE(changed_source(lose_indexers), to, o, ERR_DATA, "no shard holds an indexer tensor of a full layer");
    /* Group 64 at a width of 144 has the sizes of group 48: a reader would take it for that. */
    o = small_options();
    o.group = 64;
    REFUSE(FP8_FIXTURE, to, o, ERR_USER, "144", "has the sizes of another format", "int4-grouped 48", "--group 32");
    assert_false(file_exists(to));
}

/* --- bounds --- */

/* Live bytes at their highest, as seen from the progress calls. */
struct peak {
    struct alloc *alloc;
    uint64_t before, highest;
    unsigned n_calls;
    unsigned stop_at;
};

static bool planned(void *context, const struct convert_summary *summary)
{
    struct peak *peak = context;
    assert_int_equal(summary->n_unused, 0);
    assert_int_equal(summary->tensors[CONVERT_MTP].kept, 9);
    assert_true(summary->source_bytes > 0);
    peak->before = peak->alloc->live_bytes;
    return true;
}

static bool watched(void *context, const struct convert_progress *progress)
{
    struct peak *peak = context;
    assert_true(progress->source_bytes_done <= progress->source_bytes);
    assert_in_range(progress->output_number, 1, progress->n_outputs);
    if (peak->alloc->live_bytes > peak->highest) peak->highest = peak->alloc->live_bytes;
    return ++peak->n_calls != peak->stop_at;
}

static bool run_watched(const char *from, const char *to, struct convert_options o, struct peak *peak, struct err *err)
{
    struct faulty_write quick = {0};
    struct convert_result result;
    struct convert_job job = {
        .source = from,
        .destination = to,
        .options = o,
        .watch = {.context = peak, .planned = planned, .progress = watched},
        .alloc = peak->alloc,
        .fs = file_system_real(),
        .ws = faulty_write_system(&quick),
        .clock = clock_real(),
    };
    return convert_folder(&job, &result, err);
}

/* With blocks of 40 values the buffers are the two fixed ones for writing and next to nothing else, although every
 * matrix is larger; the same with larger blocks shows that it is the blocks that count. */
static void memory_follows_the_block_not_the_tensor(void **state)
{
    (void)state;
    uint64_t used[2];
    static const uint64_t blocks[2] = {40, 1000};
    for (int i = 0; i < 2; i++) {
        struct alloc alloc = {0};
        struct peak peak = {.alloc = &alloc};
        struct err err = {0};
        struct convert_options o = small_options();
        o.block_values = blocks[i];
        char to[300];
        snprintf(to, sizeof to, "%s/bounded-%d", folder.path, i);
        if (!run_watched(source, to, o, &peak, &err)) fail_msg("%s", err.text);
        used[i] = peak.highest - peak.before;
        printf("blocks of %d values: %d bytes in %u steps\n", (int)blocks[i], (int)used[i], peak.n_calls);
        assert_true(used[i] < (2 << 20) + 20 * (blocks[i] + 80) + 4096);
    }
    assert_true(used[0] < used[1]);
}

static void it_stops_when_told_and_goes_on(void **state)
{
    (void)state;
    struct alloc alloc = {0};
    struct peak peak = {.alloc = &alloc, .stop_at = 50};
    struct err err = {0};
    struct convert_options o = small_options();
    assert_false(run_watched(source, temp_path(&folder, "stopped"), o, &peak, &err));
    assert_int_equal(err.kind, ERR_CANCELLED);
    assert_int_equal(alloc.live, 0);
    must_convert(source, temp_path(&folder, "stopped"), o);
    char clean[300];
    clean_run(clean, &o);
    assert_same_folders(clean, temp_path(&folder, "stopped"));
}

static void allocation_failures(void **state)
{
    (void)state;
    struct convert_options o = small_options();
    o.shard_bytes = 9000;
    o.block_values = 5000;
    char clean[300], to[300];
    clean_run(clean, &o);
    snprintf(to, sizeof to, "%s/lean", folder.path);
    remove_tree(to);
    uint64_t k = 1;
    for (;; k++) { /* what one failing run finished, the next one finds */
        struct alloc alloc = {.fail_at = k};
        struct err err;
        struct faulty_write quick = {0};
        if (k % 8 == 0) remove_tree(to);
        bool ok = convert_with(source, to, o, faulty_write_system(&quick), &alloc, &err);
        assert_int_equal(alloc.live, 0);
        if (!ok && err.kind != ERR_NOMEM) fail_msg("allocation %d: %s", (int)k, err.text);
        if (ok && alloc.calls >= k) fail_msg("allocation %d failed and nobody noticed", (int)k);
        if (ok && k % 8 == 0) break;
        if (ok) remove_tree(to);
    }
    printf("%d allocations\n", (int)k);
    assert_true(k > 50);
    assert_same_folders(clean, to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fp8_fixture),
        cmocka_unit_test(random_models_at_all_widths),
        cmocka_unit_test(many_shards),
        cmocka_unit_test(the_record_is_true),
        cmocka_unit_test(the_demo_model_is_what_its_record_says),
        cmocka_unit_test(the_source_cut_does_not_matter),
        cmocka_unit_test(single_passes),
        cmocka_unit_test(killed_anywhere_the_result_is_the_same),
        cmocka_unit_test(a_source_that_cannot_be_read),
        cmocka_unit_test(finished_shards_are_not_made_again),
        cmocka_unit_test(other_options_or_another_source_are_refused),
        cmocka_unit_test(a_damaged_manifest_is_refused),
        cmocka_unit_test(strangers_are_left_alone),
        cmocka_unit_test(one_conversion_per_folder),
        cmocka_unit_test(no_room),
        cmocka_unit_test(bad_sources_are_refused_by_name),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(memory_follows_the_block_not_the_tensor),
        cmocka_unit_test(it_stops_when_told_and_goes_on),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
